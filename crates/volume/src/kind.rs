//! What a volume can be.

use std::sync::Arc;

use sealdisk_store::Store;

use crate::ReadRequest;
use crate::plain::PlainVolume;
use crate::sealed::SealedVolume;

/// A volume of either kind, as those see it who must tell them apart.
pub(crate) enum Kind {
    /// An ordinary LUKS2 volume.
    Plain(PlainVolume),
    /// One with seals and a journal.
    Sealed(Box<SealedVolume>),
}

impl Kind {
    /// What holds the volume's bytes.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        match self {
            Self::Plain(plain) => plain.store(),
            Self::Sealed(sealed) => sealed.store(),
        }
    }

    /// Serves a batch of reads; each request's `result` says how it went.
    pub(crate) fn read(&self, batch: &mut [ReadRequest<'_>]) {
        match self {
            Self::Plain(plain) => plain.read(batch),
            Self::Sealed(sealed) => sealed.read(batch),
        }
    }
}
