//! `aes-256-xts-random`: AES-256-XTS with a random IV for every write. It hides which sectors, and which parts of them,
//! an overwrite changed. It authenticates nothing.
//!
//! Without a tag there is no proof of a form, so two values of the slot stand for the forms that keep no IV. The IV is
//! combined with the sector number, so that a sector misplaced by accident reads as noise; whoever moves one on purpose
//! can change the IV to fit, and it is not noticed.

use sealdisk_units::Lba;

use crate::sector_sealer::SectorCipher;
use crate::xts::{Aes256Xts, Tweak};
use crate::{Form, FreshNonce, NotAuthentic, Seal};

/// Bytes of the IV, which is the whole seal.
const IV_LEN: usize = 16;

/// The slot of a sector that reads as zeros; also of one never written.
const ZERO: [u8; IV_LEN] = [0; IV_LEN];

/// The slot of a folded sector.
const FOLD_MARK: [u8; IV_LEN] = [0xff; IV_LEN];

/// The cipher with its key.
pub(crate) struct XtsRandom(pub(crate) Aes256Xts);

impl XtsRandom {
    /// A random IV that means neither "zeros" nor "folded".
    fn iv(nonce: FreshNonce) -> [u8; IV_LEN] {
        let mut iv = nonce.into_iv();
        if iv == ZERO || iv == FOLD_MARK {
            // One IV in 2^127; flipping one bit of it leaves all others as likely as they were, to that degree.
            iv[0] ^= 1;
        }
        iv
    }

    fn tweak(lba: Lba, iv: [u8; IV_LEN]) -> Tweak {
        Tweak((u128::from_le_bytes(iv) ^ u128::from(lba.0)).to_le_bytes())
    }
}

/// What a slot says of its sector.
pub(crate) fn claimed_form(slot: &Seal) -> Option<Form> {
    match <[u8; IV_LEN]>::try_from(slot.as_bytes()).ok()? {
        ZERO => Some(Form::Zero),
        FOLD_MARK => Some(Form::FoldMark),
        _ => Some(Form::Plain),
    }
}

impl SectorCipher for XtsRandom {
    fn seal_len(&self) -> usize {
        IV_LEN
    }

    fn mark(&self, _: Lba, form: Form, _: FreshNonce) -> Seal {
        Seal::from_slice(if form == Form::Zero { &ZERO } else { &FOLD_MARK })
    }

    fn seal(&self, lba: Lba, _: Form, nonce: FreshNonce, text: &[u8], out: &mut [u8]) -> Seal {
        let iv = Self::iv(nonce);
        self.0.encrypt(Self::tweak(lba, iv), text, out);
        Seal::from_slice(&iv)
    }

    fn seal_in_place(&self, lba: Lba, _: Form, nonce: FreshNonce, text: &mut [u8]) -> Seal {
        let iv = Self::iv(nonce);
        self.0.encrypt_in_place(Self::tweak(lba, iv), text);
        Seal::from_slice(&iv)
    }

    fn open_mark(&self, _: Lba, form: Form, slot: &Seal) -> Result<(), NotAuthentic> {
        if claimed_form(slot) == Some(form) { Ok(()) } else { Err(NotAuthentic) }
    }

    fn open(&self, lba: Lba, _: Form, seal: &Seal, text: &mut [u8]) -> Result<(), NotAuthentic> {
        let iv = seal.as_bytes().try_into().map_err(|_| NotAuthentic)?;
        // The sealer never makes these, and a folded sector with one at its end is a malformed one.
        if iv == ZERO || iv == FOLD_MARK {
            return Err(NotAuthentic);
        }
        self.0.decrypt(Self::tweak(lba, iv), text);
        Ok(())
    }

    fn implementation(&self) -> &'static str {
        self.0.implementation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_iv_means_zeros_or_folded() {
        for byte in [0, 0xff] {
            let iv = XtsRandom::iv(FreshNonce::unlikely(byte));
            assert!(iv != ZERO && iv != FOLD_MARK);
        }
        assert_eq!(XtsRandom::iv(FreshNonce::unlikely(7)), [7; IV_LEN]);
    }
}
