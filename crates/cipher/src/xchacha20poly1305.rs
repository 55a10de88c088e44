//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03), for CPUs without AES instructions.
//!
//! From AWS-LC, whose interleaved ChaCha20 and Poly1305 in assembler take the text through the cache once.

use aws_lc_sys::EVP_aead_xchacha20_poly1305;

use crate::NotAuthentic;
use crate::aead::{Aead, Key256, Nonce, Tag};
use crate::evp_aead::OwnedEvpAead;

/// The cipher with its key.
pub(crate) struct XChaCha20Poly1305(OwnedEvpAead);

impl XChaCha20Poly1305 {
    pub(crate) fn new(key: &Key256) -> Self {
        // SAFETY: returns a table that lives as long as the program.
        Self(OwnedEvpAead::new(unsafe { &*EVP_aead_xchacha20_poly1305() }, key))
    }
}

impl Aead<24> for XChaCha20Poly1305 {
    fn seal(&self, nonce: &Nonce<24>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
        self.0.seal(&nonce.0, ad, text, out)
    }

    fn seal_in_place(&self, nonce: &Nonce<24>, ad: &[u8], text: &mut [u8]) -> Tag {
        self.0.seal_in_place(&nonce.0, ad, text)
    }

    fn open(&self, nonce: &Nonce<24>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic> {
        self.0.open(&nonce.0, ad, tag, text)
    }

    fn implementation(&self) -> &'static str {
        "XChaCha20-Poly1305 by AWS-LC"
    }
}
