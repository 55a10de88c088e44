//! Making, loading and unlocking a header.

use std::fs::OpenOptions;
use std::ops::Range;
use std::path::{Path, PathBuf};

use libcryptsetup_rs::consts::flags::CryptVolumeKey;
use libcryptsetup_rs::consts::vals::EncryptionFormat;
use libcryptsetup_rs::{CryptParamsLuks2, CryptParamsLuks2Ref, Either, LibcryptErr};
use rustix::io::Errno;
use sealdisk_cipher::VolumeKey;
use sealdisk_layout::{Payload, check_combination};
use sealdisk_units::{OBJECT_SIZE, SECTOR_SIZE};
use zeroize::Zeroizing;

use crate::session::Session;
use crate::{Description, HeaderError, HeaderErrorKind, KeySlot, Passphrase, Pbkdf, Priority, rewrite};

/// Bytes in the unit in which libcryptsetup counts offsets.
const CRYPTSETUP_SECTOR: u64 = 512;
/// Bytes of a label with its terminating zero.
const LABEL_LEN: usize = 48;

/// What a new header says.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// What lies behind the header, and from which byte. The header takes all the space before.
    pub payload: Payload,
    /// A name for people and udev, up to 47 bytes.
    pub label: Option<String>,
    /// What the first key slot costs to open.
    pub pbkdf: Pbkdf,
}

/// A LUKS2 header, or one of LUKS1, that was loaded and has the shape of one of ours.
///
/// It remembers what it has read and opens the device anew for every operation; one that meets another payload than it
/// remembers fails with [`HeaderErrorKind::Changed`].
#[derive(Debug)]
pub struct Header {
    pub(crate) device: PathBuf,
    pub(crate) description: Description,
    uuid: String,
    label: Option<String>,
    pub(crate) is_luks1: bool,
}

/// Where the parts of a header lie, in bytes of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderMap {
    /// Both copies of what names the key slots.
    pub copies: Range<u64>,
    /// Where key material may lie.
    pub key_area: Range<u64>,
    /// The key material of each slot.
    pub key_material: Vec<Range<u64>>,
}

impl FormatOptions {
    /// Whether [`Header::format`] would accept them, so that nothing need be overwritten before that is known.
    pub fn check(&self, device: &Path, volume_key: &VolumeKey) -> Result<(), HeaderError> {
        let wrong = |story: String| Err(HeaderError::new(device, HeaderErrorKind::Options, story));
        if let Some(label) = &self.label
            && (label.is_empty() || label.len() >= LABEL_LEN || label.contains('\0'))
        {
            return wrong(format!("a label has 1 to {} bytes, none of them zero", LABEL_LEN - 1));
        }
        let (offset, alignment) = match self.payload {
            Payload::Plain(plain) => {
                if !matches!(plain.sector_size, 512 | 1024 | 2048 | 4096) {
                    return wrong(format!("a sector of {} bytes; use 512, 1024, 2048 or 4096", plain.sector_size));
                }
                let sector = u64::from(plain.sector_size);
                if plain.size.is_some_and(|size| size == 0 || !size.is_multiple_of(sector)) {
                    return wrong(format!("the size is not a multiple of a sector's {sector} bytes"));
                }
                (plain.offset, SECTOR_SIZE as u64)
            }
            Payload::Sealed(sealed) => {
                if volume_key.expose().len() != 64 {
                    return wrong("a sealed volume has a key of 512 bits".to_owned());
                }
                if sealed.cipher.seal_len() == 0 {
                    return wrong(format!("cipher {} seals nothing; its volume is a plain one", sealed.cipher));
                }
                if let Err(reason) = check_combination(sealed.cipher, sealed.layout, sealed.fold) {
                    return wrong(reason.to_string());
                }
                (sealed.offset, OBJECT_SIZE)
            }
        };
        if offset == 0 || !offset.is_multiple_of(alignment) {
            return wrong(format!("the data begins at byte {offset}, which is not a positive multiple of {alignment}"));
        }
        Ok(())
    }

    /// In libcryptsetup's terms, for the ordinary header that comes first.
    fn parameters(&self) -> CryptParamsLuks2 {
        let (sector_size, subsystem) = match self.payload {
            Payload::Plain(plain) => (plain.sector_size, None),
            Payload::Sealed(_) => (SECTOR_SIZE as u32, Some("sealdisk".to_owned())),
        };
        CryptParamsLuks2 {
            pbkdf: Some(Pbkdf::of_digest()),
            integrity: None,
            integrity_params: None,
            data_alignment: 0,
            data_device: None,
            sector_size,
            label: self.label.clone(),
            subsystem,
        }
    }

    fn offset(&self) -> u64 {
        match self.payload {
            Payload::Plain(plain) => plain.offset,
            Payload::Sealed(sealed) => sealed.offset,
        }
    }

    /// Whether libcryptsetup by itself writes the segment that we want.
    fn is_what_libcryptsetup_writes(&self) -> bool {
        matches!(self.payload, Payload::Plain(plain) if plain.size.is_none() && plain.iv_tweak == 0)
    }
}

impl Header {
    /// Writes a new header over whatever lies at the start of `device`, with `volume_key` in one key slot that
    /// `passphrase` opens. A file that is shorter grows up to the payload; the payload itself is not touched.
    ///
    /// The key slot comes last: a header that a crash has left unfinished opens with nothing.
    pub fn format(
        device: &Path,
        options: &FormatOptions,
        volume_key: &VolumeKey,
        passphrase: &Passphrase,
    ) -> Result<Self, HeaderError> {
        options.check(device, volume_key)?;
        let grown = grow_file(device, options.offset());
        grown.map_err(|error| HeaderError::io(device, "making room for the header", &error))?;
        let mut session = Session::new(device)?;
        let made = session.make(options, volume_key);
        made.map_err(|error| session.failure("writing a LUKS2 header", error))?;
        drop(session);
        if !options.is_what_libcryptsetup_writes() {
            rewrite::replace_segment(device, &options.payload, volume_key)?;
        }
        let mut session = Session::load(device)?;
        if session.description()?.payload != options.payload {
            return Err(HeaderError::changed(device));
        }
        let stored = session.store_first_key(options.pbkdf, volume_key, passphrase);
        stored.map_err(|error| session.failure("storing the volume key in a key slot", error))?;
        Self::of_session(&mut session, device)
    }

    /// Loads the header of `device`, a file or block device. A copy that a crash has damaged is mended.
    pub fn load(device: &Path) -> Result<Self, HeaderError> {
        Self::of_session(&mut Session::load(device)?, device)
    }

    pub(crate) fn of_session(session: &mut Session, device: &Path) -> Result<Self, HeaderError> {
        let description = session.description()?;
        let uuid = session.uuid().unwrap_or_default();
        let is_luks1 = session.is_luks1();
        let label = if is_luks1 { None } else { session.label() };
        Ok(Self { device: device.to_owned(), description, uuid, label, is_luks1 })
    }

    /// Opens the device again, and makes sure that it is still the same volume.
    pub(crate) fn session(&self) -> Result<(Session, Description), HeaderError> {
        let mut session = Session::load(&self.device)?;
        let description = session.description()?;
        if description.payload != self.description.payload || session.uuid().unwrap_or_default() != self.uuid {
            return Err(HeaderError::changed(&self.device));
        }
        Ok((session, description))
    }

    /// The file or block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// What lies behind the header.
    pub fn payload(&self) -> &Payload {
        &self.description.payload
    }

    /// Where what it consists of lies.
    pub fn map(&self) -> HeaderMap {
        let key_area = self.description.key_area.clone();
        let key_material = self.description.key_slots.iter().map(|slot| slot.area.clone()).collect();
        HeaderMap { copies: 0..key_area.start, key_area, key_material }
    }

    /// The volume's UUID, as text.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The volume's label.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Whether it is one of LUKS1, the older format.
    pub fn is_luks1(&self) -> bool {
        self.is_luks1
    }

    /// The key slots in use, by number.
    pub fn key_slots(&self) -> &[KeySlot] {
        &self.description.key_slots
    }

    /// The volume key, from the key slot `slot` or from whichever opens with `passphrase`.
    pub fn unlock(&self, passphrase: &Passphrase, slot: Option<u32>) -> Result<VolumeKey, HeaderError> {
        let (mut session, description) = self.session()?;
        self.open_slot(&mut session, &description, passphrase, slot).map(|(key, _)| key)
    }

    /// The volume key and the number of the slot that gave it.
    pub(crate) fn open_slot(
        &self,
        session: &mut Session,
        description: &Description,
        passphrase: &Passphrase,
        slot: Option<u32>,
    ) -> Result<(VolumeKey, u32), HeaderError> {
        if let Some(number) = slot {
            self.bound_slot(description, number)?;
        }
        let Some(key_len) = description.volume_key_len else {
            return Err(self.error(HeaderErrorKind::Erased, "no key slot is left: the volume was erased"));
        };
        let mut bytes = Zeroizing::new(vec![0; key_len].into_boxed_slice());
        let opened = session.device.volume_key_handle().get(slot, &mut bytes, Some(passphrase.expose()));
        let (number, len) =
            opened.map_err(|error| self.slot_failure(session, description, "opening a key slot", error))?;
        if len != key_len {
            return Err(HeaderError::changed(&self.device));
        }
        // Without a slot number only slots of the segment's digest are tried; with one, its digest was looked up above.
        let key = VolumeKey::new(bytes).map_err(|error| self.error(HeaderErrorKind::Device, error.to_string()))?;
        Ok((key, number.unsigned_abs()))
    }

    pub(crate) fn bound_slot<'a>(&self, description: &'a Description, number: u32) -> Result<&'a KeySlot, HeaderError> {
        let slot = description.key_slots.iter().find(|slot| slot.number == number && slot.bound);
        slot.ok_or_else(|| {
            self.error(HeaderErrorKind::NoSuchSlot, format!("key slot {number} holds no key of this volume"))
        })
    }

    /// A failure of libcryptsetup where "not permitted" means that the passphrase did not open a slot. "No entry" means
    /// the same where the last slot that was tried belongs to another key.
    pub(crate) fn slot_failure(
        &self,
        session: &Session,
        description: &Description,
        doing: &str,
        error: LibcryptErr,
    ) -> HeaderError {
        let errno = match &error {
            LibcryptErr::IOError(error) => error.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        };
        let may_be_tried = |slot: &KeySlot| slot.bound && slot.priority != Priority::Ignore;
        match errno {
            Some(Errno::NOENT) if !description.key_slots.iter().any(may_be_tried) => {
                self.error(HeaderErrorKind::NoSuchSlot, "every key slot is to be ignored unless its number is given")
            }
            Some(Errno::PERM | Errno::NOENT) => {
                self.error(HeaderErrorKind::WrongPassphrase, "no key slot opens with this passphrase")
            }
            _ => session.failure(doing, error),
        }
    }

    pub(crate) fn error(&self, kind: HeaderErrorKind, story: impl Into<String>) -> HeaderError {
        HeaderError::new(&self.device, kind, story)
    }
}

/// Makes a file at least `len` bytes long. A block device stays as it is, and libcryptsetup refuses it if it is short.
fn grow_file(device: &Path, len: u64) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(device)?;
    let present = file.metadata()?;
    if present.is_file() && present.len() < len { file.set_len(len) } else { Ok(()) }
}

impl HeaderError {
    fn changed(device: &Path) -> Self {
        Self::new(device, HeaderErrorKind::Changed, "the header was changed by someone else meanwhile; load it again")
    }
}

impl Session {
    /// An ordinary header without key slots.
    fn make(&mut self, options: &FormatOptions, volume_key: &VolumeKey) -> Result<(), LibcryptErr> {
        let parameters = options.parameters();
        let mut parameters: CryptParamsLuks2Ref<'_> = (&parameters).try_into()?;
        self.device.set_data_offset(options.offset() / CRYPTSETUP_SECTOR)?;
        self.device.context_handle().format(
            EncryptionFormat::Luks2,
            ("aes", "xts-plain64"),
            None,
            Either::Left(volume_key.expose()),
            Some(&mut parameters),
        )
    }

    fn store_first_key(
        &mut self,
        pbkdf: Pbkdf,
        volume_key: &VolumeKey,
        passphrase: &Passphrase,
    ) -> Result<(), LibcryptErr> {
        self.set_pbkdf(pbkdf)?;
        let key = Some(Either::Left(volume_key.expose()));
        let flags = CryptVolumeKey::empty();
        self.device.keyslot_handle().add_by_key(Some(0), key, passphrase.expose(), flags).map(drop)
    }
}
