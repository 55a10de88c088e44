//! Sealing the volume's own records.

use crate::aead::SealingAead;
use crate::{Form, FreshNonce, NotAuthentic, Seal};

/// Seals and opens records of the volume itself: journal entries, maps. Its key is its own, derived beside the sectors'.
pub struct MetadataCipher(Box<dyn SealingAead>);

impl MetadataCipher {
    pub(crate) fn new(aead: Box<dyn SealingAead>) -> Self {
        Self(aead)
    }

    /// Bytes of a seal.
    pub fn seal_len(&self) -> usize {
        self.0.seal_len()
    }

    /// Encrypts `text` in place and binds it to `ad`, which says what record it is and where it belongs.
    pub fn seal(&self, ad: &[u8], nonce: FreshNonce, text: &mut [u8]) -> Seal {
        self.0.seal_in_place(Form::Metadata, nonce, ad, text)
    }

    /// Verifies and decrypts `text` in place. After a failure it holds zeros.
    pub fn open(&self, ad: &[u8], seal: &Seal, text: &mut [u8]) -> Result<(), NotAuthentic> {
        self.0.open(Form::Metadata, seal, ad, text).inspect_err(|NotAuthentic| text.fill(0))
    }
}
