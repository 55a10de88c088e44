//! What a volume can be.

use crate::plain::PlainVolume;
use crate::sealed::SealedVolume;

/// A volume of either kind, as those see it who must tell them apart.
pub(crate) enum Kind {
    /// An ordinary LUKS2 volume.
    Plain(PlainVolume),
    /// One with seals and a journal.
    Sealed(Box<SealedVolume>),
}
