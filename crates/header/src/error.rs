//! What goes wrong with a header: one kind for control flow, the story for people.

use std::path::{Path, PathBuf};

use crate::Unsupported;

/// What callers match on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderErrorKind {
    /// The options contradict each other or the key.
    Options,
    /// No key slot opens with the passphrase.
    WrongPassphrase,
    /// There is no LUKS2 header, or none that is intact.
    NoHeader,
    /// A LUKS2 header that is not for us.
    Unsupported(Unsupported),
    /// The header has no key slot left: it was erased.
    Erased,
    /// The key slot does not exist.
    NoSuchSlot,
    /// The key slot is taken.
    SlotInUse,
    /// No key slot is free, or no room for its key material.
    NoFreeSlot,
    /// The key slot is the last one, and nothing would open the volume after it.
    LastSlot,
    /// The backup is of another volume, or the device no longer says which volume it is.
    OtherVolume,
    /// The header was changed by someone else since it was loaded.
    Changed,
    /// The file for a backup exists already.
    Exists,
    /// The operating system does not let us.
    Permission,
    /// Not enough memory, for the key derivation most likely.
    OutOfMemory,
    /// Someone else holds the device.
    Busy,
    /// The device failed, is too small, or is no device at all.
    Device,
}

/// Why an operation on a header failed. Its text names the device, says what happened, and where possible what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}: {story}", .device.display())]
pub struct HeaderError {
    device: PathBuf,
    kind: HeaderErrorKind,
    story: String,
}

impl HeaderError {
    pub(crate) fn new(device: &Path, kind: HeaderErrorKind, story: impl Into<String>) -> Self {
        Self { device: device.to_owned(), kind, story: story.into() }
    }

    pub(crate) fn unsupported(device: &Path, reason: Unsupported) -> Self {
        let story = format!("this LUKS2 header is not supported: {reason}");
        Self::new(device, HeaderErrorKind::Unsupported(reason), story)
    }

    pub(crate) fn io(device: &Path, doing: &str, error: &std::io::Error) -> Self {
        Self::new(device, HeaderErrorKind::of_errno(error.raw_os_error()), format!("{doing}: {error}"))
    }

    /// The same error, told of `name`: where a header is worked on in another place than where it lies.
    #[must_use]
    pub fn about(self, name: &str) -> Self {
        let story = self.story.replace(&*self.device.to_string_lossy(), name);
        Self { device: name.into(), story, ..self }
    }

    /// What callers match on.
    pub fn kind(&self) -> &HeaderErrorKind {
        &self.kind
    }

    /// The device or file whose header it is.
    pub fn device(&self) -> &Path {
        &self.device
    }
}

impl HeaderErrorKind {
    /// The kind where nothing but the operating system's error number tells.
    pub(crate) fn of_errno(errno: Option<i32>) -> Self {
        use rustix::io::Errno;
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Self::Permission,
            Some(Errno::NOMEM) => Self::OutOfMemory,
            Some(Errno::BUSY | Errno::TXTBSY | Errno::AGAIN) => Self::Busy,
            Some(Errno::EXIST) => Self::Exists,
            _ => Self::Device,
        }
    }
}
