//! AEGIS-256 (RFC 10032) with a 128-bit tag.
//!
//! From libaegis, whose C code the `aegis` crate brings along; it picks the instructions when the program runs. Random
//! nonces are safe for ever: 248 random bits never repeat.

use aegis::aegis256::Aegis256 as Libaegis;

use crate::NotAuthentic;
use crate::aead::{Aead, Key256, Nonce, TAG_LEN, Tag};

/// The cipher with its key.
pub(crate) struct Aegis256(Key256);

impl Aegis256 {
    pub(crate) fn new(key: Key256) -> Self {
        Self(key)
    }
}

impl Aead<32> for Aegis256 {
    fn seal(&self, nonce: &Nonce<32>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
        let mut encryptor = Libaegis::<TAG_LEN>::new(&self.0, &nonce.0).encryptor(ad);
        encryptor.update(text, out);
        Tag(encryptor.finalize())
    }

    fn seal_in_place(&self, nonce: &Nonce<32>, ad: &[u8], text: &mut [u8]) -> Tag {
        Tag(Libaegis::new(&self.0, &nonce.0).encrypt_in_place(text, ad))
    }

    fn open(&self, nonce: &Nonce<32>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic> {
        Libaegis::new(&self.0, &nonce.0).decrypt_in_place(text, &tag.0, ad).map_err(|_| NotAuthentic)
    }

    fn implementation(&self) -> &'static str {
        if crate::processor::has_aes() {
            "AEGIS-256 by libaegis, with the CPU's AES instructions"
        } else {
            "AEGIS-256 by libaegis, in software (this CPU has no AES instructions)"
        }
    }
}
