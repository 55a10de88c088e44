//! What a volume can be.

use std::sync::Arc;

use sealdisk_store::Store;

use crate::ReadRequest;
use crate::objects::ObjectVolume;
use crate::plain::PlainVolume;
use crate::sealed::SealedVolume;
use crate::standing::Standing;

/// A volume of any kind, as those see it who must tell them apart.
pub(crate) enum Kind {
    /// An ordinary LUKS2 volume.
    Plain(PlainVolume),
    /// One with seals and a journal.
    Sealed(Box<SealedVolume>),
    /// One with seals whose store needs no journal.
    Objects(Box<ObjectVolume>),
}

/// What all kinds can do, done by the one that is there.
macro_rules! whichever {
    ($kind:expr, $volume:ident => $what:expr) => {
        match $kind {
            $crate::kind::Kind::Plain($volume) => $what,
            $crate::kind::Kind::Sealed($volume) => $what,
            $crate::kind::Kind::Objects($volume) => $what,
        }
    };
}
pub(crate) use whichever;

impl Kind {
    /// Whether it takes writes, and if not, why.
    pub(crate) fn standing(&self) -> &Standing {
        whichever!(self, volume => volume.standing())
    }

    /// What holds the volume's bytes.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        whichever!(self, volume => volume.store())
    }

    /// Serves a batch of reads; each request's `result` says how it went.
    pub(crate) fn read(&self, batch: &mut [ReadRequest<'_>]) {
        whichever!(self, volume => volume.read(batch));
    }
}
