//! One conversation with libcryptsetup about one device.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libcryptsetup_rs::consts::vals::EncryptionFormat;
use libcryptsetup_rs::{CryptDevice, LibcryptErr, set_log_callback};
use libcryptsetup_rs_sys as sys;
use rustix::io::Errno;

use crate::luks1::{self, Undescribed};
use crate::{Description, HeaderCopy, HeaderError, HeaderErrorKind};

/// libcryptsetup's state is global in places (the log callback, the crypto backend's set-up), so only one session
/// exists at a time.
static TURN: Mutex<()> = Mutex::new(());
static CAPTURE_LOG: Once = Once::new();

thread_local! {
    /// What libcryptsetup had to say, in the order it was said. It would go to standard error otherwise.
    static MESSAGES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps messages for people; debug levels are not among them, so no key and no passphrase is.
unsafe extern "C" fn capture(level: c_int, message: *const c_char, _: *mut c_void) {
    if message.is_null() || level < 0 {
        return;
    }
    // SAFETY: libcryptsetup passes a terminated string that lives until this function returns.
    let message = unsafe { CStr::from_ptr(message) };
    MESSAGES.with_borrow_mut(|messages| messages.push(message.to_string_lossy().trim().to_owned()));
}

/// A device that libcryptsetup has been told of.
pub(crate) struct Session {
    pub(crate) device: CryptDevice,
    raw: *mut sys::crypt_device,
    path: PathBuf,
    is_luks1: bool,
    // Dropped last: libcryptsetup frees the device while the turn is still ours.
    _turn: MutexGuard<'static, ()>,
}

impl Session {
    /// Names `path`, a file or block device, to libcryptsetup. Reads nothing yet.
    pub(crate) fn new(path: &Path) -> Result<Self, HeaderError> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        CAPTURE_LOG.call_once(|| set_log_callback::<()>(Some(capture), None));
        MESSAGES.with_borrow_mut(Vec::clear);
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| HeaderError::new(path, HeaderErrorKind::Device, "a path has no zero byte in it"))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is written before success is returned; the path is copied.
        let code = unsafe { sys::crypt_init(&mut raw, c_path.as_ptr()) };
        if code < 0 {
            return Err(Self::story(path, "opening", LibcryptErr::IOError(std::io::Error::from_raw_os_error(-code))));
        }
        Ok(Self { device: CryptDevice::from_ptr(raw), raw, path: path.to_owned(), is_luks1: false, _turn: turn })
    }

    /// Names `path` and loads its header. libcryptsetup checks both copies of a LUKS2 header and mends one from the other.
    pub(crate) fn load(path: &Path) -> Result<Self, HeaderError> {
        let mut session = Self::new(path)?;
        let Err(error) = session.device.context_handle().load::<()>(Some(EncryptionFormat::Luks2), None) else {
            return Ok(session);
        };
        let said = MESSAGES.with_borrow_mut(std::mem::take);
        if session.device.context_handle().load::<()>(Some(EncryptionFormat::Luks1), None).is_ok() {
            session.is_luks1 = true;
            return Ok(session);
        }
        MESSAGES.set(said);
        Err(session.not_loaded(error))
    }

    /// Whether it is a LUKS1 header.
    pub(crate) fn is_luks1(&self) -> bool {
        self.is_luks1
    }

    /// Which of the two formats it is in.
    pub(crate) fn format(&self) -> EncryptionFormat {
        if self.is_luks1 { EncryptionFormat::Luks1 } else { EncryptionFormat::Luks2 }
    }

    /// For what the bindings leave out.
    pub(crate) fn raw(&mut self) -> *mut sys::crypt_device {
        self.raw
    }

    /// What the loaded header's JSON says.
    pub(crate) fn description(&mut self) -> Result<Description, HeaderError> {
        if self.is_luks1() {
            return luks1::describe(&mut self.device).map_err(|error| match error {
                Undescribed::Failed(error) => self.failure("reading the LUKS1 header", error),
                Undescribed::Unsupported(reason) => HeaderError::unsupported(&self.path, reason),
            });
        }
        let json =
            self.device.status_handle().dump_json().map_err(|e| self.failure("reading the LUKS2 metadata", e))?;
        Description::of(&json).map_err(|reason| HeaderError::unsupported(&self.path, reason))
    }

    /// The label, if one is set.
    pub(crate) fn label(&mut self) -> Option<String> {
        // SAFETY: the device is alive as long as `self`; the string lives as long as the device is not changed.
        let label = unsafe { sys::crypt_get_label(self.raw) };
        Self::copied(label)
    }

    /// The UUID as its text.
    pub(crate) fn uuid(&mut self) -> Option<String> {
        // SAFETY: as for the label.
        let uuid = unsafe { sys::crypt_get_uuid(self.raw) };
        Self::copied(uuid)
    }

    fn copied(text: *const c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: not null, and libcryptsetup's strings are terminated.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
    }

    /// The error of a call that failed while `doing` something, with what libcryptsetup said about it.
    pub(crate) fn failure(&self, doing: &str, error: LibcryptErr) -> HeaderError {
        Self::story(&self.path, doing, error)
    }

    fn story(path: &Path, doing: &str, error: LibcryptErr) -> HeaderError {
        let said = MESSAGES.with_borrow_mut(std::mem::take).join(" ");
        let (kind, reason) = match &error {
            LibcryptErr::IOError(error) => (HeaderErrorKind::of_errno(error.raw_os_error()), error.to_string()),
            other => (HeaderErrorKind::Device, other.to_string()),
        };
        let reason = if said.is_empty() { reason } else { said };
        HeaderError::new(path, kind, format!("{doing} failed: {reason}"))
    }

    /// Tells a device without a header from one that cannot be read: libcryptsetup has one error number for a file that
    /// is too short and for a failing disk.
    fn not_loaded(&mut self, error: LibcryptErr) -> HeaderError {
        let errno = match &error {
            LibcryptErr::IOError(error) => error.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        };
        if !matches!(errno, Some(Errno::INVAL | Errno::IO)) {
            return self.failure("loading the LUKS2 header", error);
        }
        let said = MESSAGES.with_borrow_mut(std::mem::take).join(" ");
        let first = File::open(&self.path).and_then(|file| file.read_exact_at(&mut [0; HeaderCopy::BINARY_LEN], 0));
        match first {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                return HeaderError::io(&self.path, "reading the LUKS2 header", &error);
            }
            _ => {}
        }
        let story = if said.is_empty() {
            "there is no intact LUKS header here; if there was one, restore it from a backup".to_owned()
        } else {
            format!("there is no LUKS header here that can be used: {said}")
        };
        HeaderError::new(&self.path, HeaderErrorKind::NoHeader, story)
    }
}
