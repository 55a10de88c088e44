//! What a volume reports: one kind for control flow, the story for people.

use sealdisk_store::StoreError;
use sealdisk_units::Lba;

/// What callers match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeErrorKind {
    /// A sector, or what vouches for it, is not what was last written there.
    NotAuthentic,
    /// The store failed.
    Store,
    /// The store is full.
    NoSpace,
    /// The volume was attached read-only.
    ReadOnly,
    /// The volume stopped accepting writes after a failed sync.
    Failed,
}

/// Why a volume could not serve a request.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The sector's bytes and its seal do not belong together.
    #[error("sector {sector} of volume {volume} is not authentic: its bytes on the store are not what was written")]
    NotAuthentic {
        /// The volume's name, as the user gave it.
        volume: String,
        /// The sector.
        sector: Lba,
    },
    /// The store failed.
    #[error("volume {volume}: {source}")]
    Store {
        /// The volume's name.
        volume: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The store could not read a sector, or its seal.
    #[error("sector {sector} of volume {volume} cannot be read: {source}")]
    Unreadable {
        /// The volume's name.
        volume: String,
        /// The sector.
        sector: Lba,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// There were no random bytes for nonces, so nothing was written.
    #[error("volume {volume}: the operating system gave no random bytes: {source}")]
    NoRandomness {
        /// The volume's name.
        volume: String,
        /// What the operating system said.
        #[source]
        source: getrandom::Error,
    },
    /// The volume is read-only.
    #[error("volume {volume} is attached read-only")]
    ReadOnly {
        /// The volume's name.
        volume: String,
    },
    /// An operation failed that several requests had waited for.
    #[error(transparent)]
    Shared(std::sync::Arc<VolumeError>),
    /// Whoever was to carry out a change did not come to it.
    #[error("a change was abandoned because of a bug; what was to be written is not")]
    Abandoned,
    /// A sync failed earlier, and the volume has taken no writes since.
    #[error(
        "volume {volume} takes no more writes since flushing its store failed ({reason}); detach it and check the disk below"
    )]
    Failed {
        /// The volume's name.
        volume: String,
        /// What the failed sync said.
        reason: String,
    },
}

impl VolumeError {
    /// What callers match on.
    pub fn kind(&self) -> VolumeErrorKind {
        match self {
            Self::NotAuthentic { .. } => VolumeErrorKind::NotAuthentic,
            Self::Store { source, .. } if source.is_no_space() => VolumeErrorKind::NoSpace,
            Self::Store { .. } | Self::Unreadable { .. } | Self::NoRandomness { .. } => VolumeErrorKind::Store,
            Self::Shared(error) => error.kind(),
            Self::Abandoned => VolumeErrorKind::Store,
            Self::ReadOnly { .. } => VolumeErrorKind::ReadOnly,
            Self::Failed { .. } => VolumeErrorKind::Failed,
        }
    }
}
