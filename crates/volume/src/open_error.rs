//! Why a volume cannot be opened, made or changed in size.

use sealdisk_layout::BadSuperblock;
use sealdisk_store::StoreError;

/// What callers match on: the ground for an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// What was asked for makes no sense.
    Parameters,
    /// The key does not fit what lies there.
    Key,
    /// The store is not, or no longer, a volume.
    Damaged,
    /// The store failed.
    Store,
}

/// Why a volume cannot be opened, made or changed in size.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Neither copy of the superblock can be read as one.
    #[error("this is no sealed volume any more: {0}")]
    NoSuperblock(#[source] BadSuperblock),
    /// There is a superblock, and the key does not open it.
    #[error(
        "the volume key does not fit the volume: the header's cipher, layout, offset or lineage was changed, or the \
         header is another volume's; restore the right header with 'sealdisk header restore'"
    )]
    WrongKey,
    /// Flushed writes are missing.
    #[error(
        "the journal is damaged: {0}. Writes that had been flushed are lost. Attach with --read-only to save what is \
         there, or restore a backup"
    )]
    DamagedJournal(String),
    /// The store failed while the volume was brought up to date.
    #[error("cannot bring the volume up to date after a crash: {0}")]
    Recovery(#[source] crate::VolumeError),
    /// No volume is that large.
    #[error("{size} bytes are more than a volume can have (4 PiB)")]
    TooLarge {
        /// What was asked for, in bytes.
        size: u64,
    },
    /// Shrinking loses data.
    #[error("shrinking from {from} to {to} bytes discards everything behind the new end; say --force if that is meant")]
    ShrinkNeedsForce {
        /// Size now, in bytes.
        from: u64,
        /// Size asked for, in bytes.
        to: u64,
    },
    /// The payload's numbers make no sense.
    #[error("{0}")]
    BadPayload(String),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    NoRandomness(String),
}

pub(crate) fn no_randomness(error: impl std::fmt::Display) -> OpenError {
    OpenError::NoRandomness(error.to_string())
}

impl OpenError {
    /// What callers match on.
    pub fn kind(&self) -> OpenErrorKind {
        match self {
            Self::Store(_) | Self::Recovery(_) | Self::NoRandomness(_) => OpenErrorKind::Store,
            Self::WrongKey => OpenErrorKind::Key,
            Self::NoSuperblock(_) | Self::DamagedJournal(_) => OpenErrorKind::Damaged,
            Self::TooLarge { .. } | Self::ShrinkNeedsForce { .. } | Self::BadPayload(_) => OpenErrorKind::Parameters,
        }
    }
}
