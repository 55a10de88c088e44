//! A loop device: a file as a disk of the kernel's.

mod control;
mod link;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::control::Flags;
use self::link::DeviceLink;
use crate::ExportError;

pub(crate) use control::{backed_by_files_in, path};

/// How long a detached device may take to go: something like udev may be looking at it.
const DETACH_PATIENCE: Duration = Duration::from_secs(3);

/// How a loop device is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Pass requests to the file as they are, without a second page cache on the file (and so without plaintext in it).
    /// Attaching fails if the kernel cannot.
    pub direct_io: bool,
    /// Bytes of the smallest request; 512, 1024, 2048 or 4096.
    ///
    /// 4096 is the sector that a sealed volume encrypts. With it no file system, partition table or database can issue
    /// a request for a part of a sector, which would have to be read, authenticated, changed and sealed again; XFS for
    /// one writes its log and its headers in pieces of this size, and ext4 on a small disk would choose blocks of 1024.
    /// 512 is for disk images that were made for it: their partition tables count in 512 bytes.
    pub block_size: u32,
    /// Make the device available as `/dev/sealdisk/NAME`, too.
    pub name: Option<String>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { read_only: false, direct_io: true, block_size: 4096, name: None }
    }
}

/// A loop device. It stays until somebody takes it down, even if whoever set it up is killed: see
/// [`cleanup_stale`](crate::fuse::cleanup_stale).
///
/// Nobody keeps a file descriptor of it. With one, the device could be made to vanish with the process that serves it,
/// but that might not be able to die: the last one to close a disk writes back what is cached for it, and the kernel may
/// close a killed process's disk while the process still counts as the server of the file below.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    number: u32,
    link: Option<DeviceLink>,
}

impl LoopDevice {
    /// Puts a loop device on `file`, which this process must not be the server of: see [`Helper`](crate::Helper).
    pub(crate) fn attach(file: &Path, options: &LoopOptions) -> Result<Self, ExportError> {
        let attaching = |error| ExportError::new(format!("putting a loop device on {}", file.display()), error);
        let backing = File::options().read(true).write(!options.read_only).open(file).map_err(attaching)?;
        let size = backing.metadata().map_err(attaching)?.len();
        if options.block_size == 0 || !size.is_multiple_of(u64::from(options.block_size)) {
            let message = format!("its size of {size} bytes is no multiple of {}", options.block_size);
            return Err(attaching(io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
        let mut flags = Flags::empty();
        flags.set(Flags::READ_ONLY, options.read_only);
        flags.set(Flags::DIRECT_IO, options.direct_io);
        let number = control::attach_to_free(&backing, file, flags, options.block_size).map_err(attaching)?;
        let direct = || match options.direct_io && !control::has_direct_io(number)? {
            true => Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no direct I/O for it")),
            false => Ok(()),
        };
        let ready = direct().map_err(attaching).and_then(|()| Self::numbered(number).named(options.name.as_deref()));
        ready.inspect_err(|_| {
            let _ = Self::numbered(number).detach(); // the first failure is the one to tell
        })
    }

    /// The device under this name and no other.
    fn named(mut self, name: Option<&str>) -> Result<Self, ExportError> {
        while let Some(stale) = DeviceLink::find(&self.path) {
            stale.remove()?; // it named what another process had on this device
        }
        self.link = name.map(|name| DeviceLink::make(name, &self.path)).transpose()?;
        Ok(self)
    }

    /// The loop device of this number, which some process has set up.
    pub(crate) fn numbered(number: u32) -> Self {
        let path = control::path(number);
        let link = DeviceLink::find(&path);
        Self { path, number, link }
    }

    /// `/dev/sealdisk/NAME`, or `/dev/loopN` if it was given no name.
    pub fn path(&self) -> &Path {
        self.link.as_ref().map_or(&self.path, DeviceLink::path)
    }

    /// `/dev/loopN`.
    pub fn kernel_path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Writes back what the kernel has cached for the device and takes it down. When this returns `Ok` it is gone; when
    /// it fails because the device is mounted or open, the device is as it was. Not for the process that serves the file
    /// below, as long as that is served.
    pub(crate) fn detach(&self) -> Result<(), ExportError> {
        let (device, path) = (self.number, self.path().display());
        let detaching = |error| ExportError::new(format!("detaching {path}"), error);
        let busy = |reason: &str| {
            ExportError::new(format!("{path} is in use: {reason} and try again"), io::ErrorKind::ResourceBusy)
        };
        // The kernel would only mark a device in use, to be taken down whenever its last user goes. To hold it
        // exclusively shows that nothing is mounted or stacked on it, and keeps it so.
        let exclusive = match File::options().read(true).custom_flags(libc::O_EXCL).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(busy("unmount it")),
            other => other.map_err(detaching)?,
        };
        if control::is_attached(device) {
            control::clear(&exclusive).map_err(detaching)?;
        }
        drop(exclusive); // writes back, and if nobody else has it open, takes it down
        let deadline = Instant::now() + DETACH_PATIENCE;
        while control::is_attached(device) {
            if Instant::now() >= deadline {
                control::keep(&self.path).map_err(detaching)?;
                return Err(busy("a program has it open; end that"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.link.as_ref().map_or(Ok(()), DeviceLink::remove)
    }
}
