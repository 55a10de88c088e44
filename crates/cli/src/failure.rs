//! What a command ends with when it does not succeed: an exit code for scripts and a sentence for people.

use std::fmt::Display;
use std::io;
use std::path::Path;

use sealdisk_export::ExportError;
use sealdisk_header::{HeaderError, HeaderErrorKind};
use sealdisk_store::StoreError;
use sealdisk_volume::{OpenError, OpenErrorKind, VolumeError};

/// Exit codes: 1 to 5 mean what they mean for cryptsetup(8), 6 is Sealdisk's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The parameters are wrong, or an operation failed for a reason that has no code of its own.
    WrongParameters = 1,
    /// No permission, or a key that opens nothing.
    NoPermission = 2,
    /// Out of memory.
    OutOfMemory = 3,
    /// The file or device is not there, is too small, or holds something else.
    WrongDevice = 4,
    /// The volume, the device or the name is in use, or exists already.
    Busy = 5,
    /// `check` found sectors that are not authentic, or a damaged journal.
    Damaged = 6,
}

impl Kind {
    /// Every kind and what it means, for the manual.
    pub const MEANINGS: [(Self, &'static str); 6] = [
        (Self::WrongParameters, "wrong parameters, or a failure without a code of its own"),
        (Self::NoPermission, "no permission, or a bad key"),
        (Self::OutOfMemory, "out of memory"),
        (Self::WrongDevice, "wrong device: not there, too small, or holding something else"),
        (Self::Busy, "device busy: attached, mounted, or the name is taken"),
        (Self::Damaged, "check found sectors that are not authentic, or a damaged journal"),
    ];

    /// The kind with this exit code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::MEANINGS.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u8 == code)
    }

    /// What an error of the operating system amounts to.
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPermission,
            io::ErrorKind::OutOfMemory => Self::OutOfMemory,
            io::ErrorKind::NotFound
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::UnexpectedEof => Self::WrongDevice,
            io::ErrorKind::ResourceBusy | io::ErrorKind::AddrInUse | io::ErrorKind::AlreadyExists => Self::Busy,
            _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::ENOTBLK)) => Self::WrongDevice,
            _ => Self::WrongParameters,
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What scripts see.
    pub kind: Kind,
    /// What people see: one sentence, without the program's name before it.
    pub message: String,
}

impl Failure {
    /// A failure of `kind`.
    pub fn new(kind: Kind, message: impl Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// Wrong parameters.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Kind::WrongParameters, message)
    }

    /// No permission or a bad key.
    pub fn permission(message: impl Display) -> Self {
        Self::new(Kind::NoPermission, message)
    }

    /// The wrong file or device.
    pub fn device(message: impl Display) -> Self {
        Self::new(Kind::WrongDevice, message)
    }

    /// Something is in use.
    pub fn busy(message: impl Display) -> Self {
        Self::new(Kind::Busy, message)
    }

    /// `what` failed for a reason of the operating system's.
    pub fn io(what: impl Display, error: &io::Error) -> Self {
        let reason = error.to_string();
        // The number says nothing to people, and the exit code says it to scripts.
        let reason = reason.split_once(" (os error ").map_or(&*reason, |(reason, _)| reason);
        Self::new(Kind::of(error), format_args!("{what}: {reason}"))
    }

    /// Doing something with the file at `path` failed.
    pub fn path(path: &Path, error: &io::Error) -> Self {
        Self::io(path.display(), error)
    }
}

impl From<HeaderError> for Failure {
    fn from(error: HeaderError) -> Self {
        use HeaderErrorKind as Header;
        let kind = match error.kind() {
            Header::WrongPassphrase | Header::Permission => Kind::NoPermission,
            Header::OutOfMemory => Kind::OutOfMemory,
            Header::NoHeader | Header::Unsupported(_) | Header::Erased | Header::OtherVolume | Header::Device => {
                Kind::WrongDevice
            }
            Header::Busy | Header::Exists | Header::Changed => Kind::Busy,
            Header::Options | Header::NoSuchSlot | Header::SlotInUse | Header::NoFreeSlot | Header::LastSlot => {
                Kind::WrongParameters
            }
        };
        Self::new(kind, error)
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        Self::new(Kind::of(&error.source), error)
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        fn kind_of(error: &VolumeError) -> Kind {
            match error {
                VolumeError::Shared(error) => kind_of(error),
                VolumeError::Store { source, .. } | VolumeError::Unreadable { source, .. } => Kind::of(&source.source),
                VolumeError::NotAuthentic { .. } => Kind::WrongDevice,
                VolumeError::ReadOnly { .. } => Kind::NoPermission,
                VolumeError::Failed { .. } | VolumeError::NoRandomness { .. } | VolumeError::Abandoned => {
                    Kind::WrongParameters
                }
            }
        }
        Self::new(kind_of(&error), error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let kind = match (&error, error.kind()) {
            (OpenError::Store(store), _) => Kind::of(&store.source),
            (_, OpenErrorKind::Parameters | OpenErrorKind::Store) => Kind::WrongParameters,
            (_, OpenErrorKind::Key) => Kind::NoPermission,
            (_, OpenErrorKind::Damaged) => Kind::WrongDevice,
        };
        Self::new(kind, error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(Kind::of(&error.source), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_operating_system_get_cryptsetups_codes() {
        for (errno, code) in [
            (libc::EACCES, 2),
            (libc::EPERM, 2),
            (libc::ENOMEM, 3),
            (libc::ENOENT, 4),
            (libc::ENODEV, 4),
            (libc::ENOTBLK, 4),
            (libc::EBUSY, 5),
            (libc::EEXIST, 5),
            (libc::EINVAL, 1),
            (libc::EIO, 1),
        ] {
            assert_eq!(Kind::of(&io::Error::from_raw_os_error(errno)) as u8, code, "errno {errno}");
        }
    }

    #[test]
    fn every_code_is_listed_once() {
        for (i, (kind, _)) in Kind::MEANINGS.iter().enumerate() {
            assert_eq!(*kind as usize, i + 1);
            assert_eq!(Kind::from_code(*kind as u8), Some(*kind));
        }
        assert_eq!(Kind::from_code(0), None);
    }
}
