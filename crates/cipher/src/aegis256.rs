//! AEGIS-256 and AEGIS-256X4 (RFC 10032) with 128-bit tags.
//!
//! AEGIS-256X4 is four AEGIS-256 side by side, for processors that do four AES rounds with one instruction: each takes a
//! quarter of the text, and one tag is made of them all.
//!
//! From libaegis, whose C code the `aegis` crate brings along; it picks the instructions when the program runs. Random
//! nonces are safe for ever: 248 random bits never repeat.

use crate::NotAuthentic;
use crate::aead::{Aead, Key256, Nonce, TAG_LEN, Tag};
use crate::processor;

/// One of libaegis's ciphers with its key.
macro_rules! cipher_of_libaegis {
    ($(#[$doc:meta])* $name:ident, $libaegis:ident :: $cipher:ident, $implementation:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(Key256);

        impl $name {
            pub(crate) fn new(key: Key256) -> Self {
                Self(key)
            }

            fn with(&self, nonce: &Nonce<32>) -> aegis::$libaegis::$cipher<TAG_LEN> {
                aegis::$libaegis::$cipher::new(&self.0, &nonce.0)
            }
        }

        impl Aead<32> for $name {
            fn seal(&self, nonce: &Nonce<32>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
                let mut encryptor = self.with(nonce).encryptor(ad);
                encryptor.update(text, out);
                Tag(encryptor.finalize())
            }

            fn seal_in_place(&self, nonce: &Nonce<32>, ad: &[u8], text: &mut [u8]) -> Tag {
                Tag(self.with(nonce).encrypt_in_place(text, ad))
            }

            fn open(&self, nonce: &Nonce<32>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic> {
                self.with(nonce).decrypt_in_place(text, &tag.0, ad).map_err(|_| NotAuthentic)
            }

            fn implementation(&self) -> &'static str {
                $implementation
            }
        }
    };
}

cipher_of_libaegis!(
    /// AEGIS-256 with its key.
    Aegis256,
    aegis256::Aegis256,
    if processor::has_aes() {
        "AEGIS-256 by libaegis, with the CPU's AES instructions"
    } else {
        "AEGIS-256 by libaegis, in software (this CPU has no AES instructions)"
    }
);

cipher_of_libaegis!(
    /// AEGIS-256X4 with its key.
    Aegis256X4,
    aegis256x4::Aegis256X4,
    if processor::has_wide_aes() {
        "AEGIS-256X4 by libaegis, with the CPU's AES instructions for several blocks"
    } else if processor::has_aes() {
        "AEGIS-256X4 by libaegis, with the CPU's AES instructions for one block"
    } else {
        "AEGIS-256X4 by libaegis, in software (this CPU has no AES instructions)"
    }
);
