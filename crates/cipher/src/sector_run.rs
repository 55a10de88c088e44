//! Sealing the sectors of one request, one after another.

use sealdisk_units::Lba;

use crate::{FreshNonce, Sealed, SealedForm, SectorSealer};

/// So many sectors that do not fold, one after another, are taken for a sign.
const SIGN: u32 = 4;

/// After that, one in so many is tried.
const TRIED: u32 = 8;

/// Seals sectors that are written together, and learns from those that came before whether to try and fold the next one.
///
/// What does not fold, because it is compressed or encrypted already, comes in long stretches, and to find that out takes
/// longer than to seal a sector (`docs/results/ciphers.md`). A sector that could have been folded and was not is no less
/// safe; its slot has to be written, and so have those of the sectors around it that did not fold.
pub struct SectorRun<'a> {
    sealer: &'a SectorSealer,
    /// Sectors sealed since the last one that folded, tried or not.
    plain: u32,
}

impl<'a> SectorRun<'a> {
    /// A run of no sectors yet.
    pub fn new(sealer: &'a SectorSealer) -> Self {
        Self { sealer, plain: 0 }
    }

    /// [`SectorSealer::seal`].
    ///
    /// # Panics
    /// If a buffer does not have 4096 bytes.
    pub fn seal(&mut self, lba: Lba, nonce: FreshNonce, plain: &[u8], out: &mut [u8]) -> Sealed {
        let sealed = self.sealer.seal_and_fold(self.expects_to_fold(), lba, nonce, plain, out);
        self.learn(sealed)
    }

    /// [`seal`](Self::seal) where the sector is.
    ///
    /// # Panics
    /// If `sector` does not have 4096 bytes.
    pub fn seal_in_place(&mut self, lba: Lba, nonce: FreshNonce, sector: &mut [u8]) -> Sealed {
        let sealed = self.sealer.seal_and_fold_in_place(self.expects_to_fold(), lba, nonce, sector);
        self.learn(sealed)
    }

    fn expects_to_fold(&self) -> bool {
        self.sealer.folds() && (self.plain < SIGN || self.plain.is_multiple_of(TRIED))
    }

    fn learn(&mut self, sealed: Sealed) -> Sealed {
        self.plain = match sealed.form {
            SealedForm::Folded => 0,
            SealedForm::Plain => self.plain.wrapping_add(1),
        };
        sealed
    }
}
