//! AES-128-XTS (IEEE 1619), which LUKS2 volumes with 256-bit keys use.
//!
//! AWS-LC lacks it, so this is XTS over RustCrypto's AES, many blocks at a time. Data units are whole blocks, as disk
//! sectors are; ciphertext stealing is left out.

use aes::Aes128;
use aes::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::xts::{EqualHalves, Tweak};

/// Bytes of an AES block.
const BLOCK: usize = 16;

/// Blocks handed to AES at once: more than any CPU's AES unit has under way.
const BATCH: usize = 32;

/// AES-128-XTS with its key.
pub(crate) struct Aes128Xts {
    data: Aes128,
    tweak: Aes128,
}

impl Aes128Xts {
    pub(crate) fn new(key: &[u8; 32]) -> Result<Self, EqualHalves> {
        let (data, tweak) = key.split_at(16);
        if aws_lc_rs::constant_time::verify_slices_are_equal(data, tweak).is_ok() {
            return Err(EqualHalves);
        }
        let cipher = |key| Aes128::new_from_slice(key).expect("half of 32 bytes is a key of AES-128");
        Ok(Self { data: cipher(data), tweak: cipher(tweak) })
    }

    /// Encrypts one data unit in place. Its length must be a multiple of 16 bytes.
    pub(crate) fn encrypt_in_place(&self, tweak: Tweak, text: &mut [u8]) {
        self.run(tweak, text, |blocks| self.data.encrypt_blocks(blocks));
    }

    /// Decrypts one data unit in place. Its length must be a multiple of 16 bytes.
    pub(crate) fn decrypt(&self, tweak: Tweak, text: &mut [u8]) {
        self.run(tweak, text, |blocks| self.data.decrypt_blocks(blocks));
    }

    fn run(&self, tweak: Tweak, text: &mut [u8], aes: impl Fn(&mut [Block<Aes128>])) {
        assert!(text.len().is_multiple_of(BLOCK), "a data unit is whole blocks");
        let mut first = tweak.0.into();
        self.tweak.encrypt_block(&mut first);
        let mut tweak = u128::from_le_bytes(first.into());
        let mut masks = [0_u128; BATCH];
        for batch in text.chunks_mut(BATCH * BLOCK) {
            for mask in &mut masks {
                *mask = tweak;
                // Multiplication by x in GF(2^128), without a branch on the secret bit.
                tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
            }
            let mut blocks = [Block::<Aes128>::default(); BATCH];
            let blocks = &mut blocks[..batch.len() / BLOCK];
            let bytes = batch.as_chunks_mut::<BLOCK>().0;
            for ((block, bytes), mask) in blocks.iter_mut().zip(&*bytes).zip(masks) {
                *block = (u128::from_le_bytes(*bytes) ^ mask).to_le_bytes().into();
            }
            aes(blocks);
            for ((block, bytes), mask) in blocks.iter().zip(bytes).zip(masks) {
                *bytes = (u128::from_le_bytes((*block).into()) ^ mask).to_le_bytes();
            }
        }
    }
}
