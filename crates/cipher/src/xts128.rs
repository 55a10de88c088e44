//! AES-128-XTS (IEEE 1619), which LUKS2 volumes with 256-bit keys use. From RustCrypto, because AWS-LC lacks it.

use aes::Aes128;
use aes::cipher::KeyInit;
use xts_mode::Xts128;

use crate::xts::{EqualHalves, Tweak};

/// AES-128-XTS with its key.
pub(crate) struct Aes128Xts(Xts128<Aes128>);

impl Aes128Xts {
    pub(crate) fn new(key: &[u8; 32]) -> Result<Self, EqualHalves> {
        let (data, tweak) = key.split_at(16);
        if aws_lc_rs::constant_time::verify_slices_are_equal(data, tweak).is_ok() {
            return Err(EqualHalves);
        }
        let half = |key: &[u8]| Aes128::new_from_slice(key).expect("half of 32 bytes is a key of AES-128");
        Ok(Self(Xts128::new(half(data), half(tweak))))
    }

    /// Encrypts one data unit of at least 16 bytes in place.
    pub(crate) fn encrypt_in_place(&self, tweak: Tweak, text: &mut [u8]) {
        self.0.encrypt_sector(text, tweak.0.into());
    }

    /// Decrypts one data unit in place.
    pub(crate) fn decrypt(&self, tweak: Tweak, text: &mut [u8]) {
        self.0.decrypt_sector(text, tweak.0.into());
    }
}
