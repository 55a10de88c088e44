//! XAES-256-GCM (C2SP `XAES-256-GCM.md`): AES-256-GCM with 192-bit nonces, made of NIST parts only.
//!
//! Half of the nonce and the key go through the counter-mode derivation of SP 800-108r1 with CMAC (SP 800-38B) to a key
//! of its own for each seal, and AES-256-GCM (SP 800-38D) runs under that with the other half: 2 or 3 blocks of AES and
//! a key schedule more than plain GCM, and no limit on the number of seals that anyone reaches.

use aws_lc_sys::{AES_KEY, AES_encrypt, AES_set_encrypt_key, EVP_aead_aes_256_gcm, OPENSSL_cleanse};
use zeroize::Zeroizing;

use crate::NotAuthentic;
use crate::aead::{Aead, Key256, Nonce, Tag};
use crate::evp_aead::{EvpAead, Room};

/// Bytes of the nonce that go into the derivation; the other 12 are GCM's nonce.
const DERIVED_FROM: usize = 12;

/// The cipher with the schedule of its key.
pub(crate) struct Xaes256Gcm {
    block: AesBlock,
    /// CMAC's subkey for whole blocks, `K1` of SP 800-38B.
    k1: Zeroizing<[u8; 16]>,
}

impl Xaes256Gcm {
    pub(crate) fn new(key: &Key256) -> Self {
        let block = AesBlock::new(key);
        let l = u128::from_be_bytes(*block.encrypt([0; 16]));
        // Doubling in GF(2^128), without a branch on the secret bit.
        let k1 = (l << 1) ^ ((l >> 127) * 0x87);
        Self { block, k1: Zeroizing::new(k1.to_be_bytes()) }
    }

    /// The key for nonces that begin like this one.
    pub(crate) fn derive(&self, nonce: &Nonce<24>) -> Key256 {
        let mut key = Key256::default();
        for (counter, half) in (1..).zip(key.chunks_exact_mut(16)) {
            // Counter, label "X", separator, context: exactly one block, so CMAC is one encryption.
            let mut message = [0, counter, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            message[4..].copy_from_slice(&nonce.0[..DERIVED_FROM]);
            message.iter_mut().zip(self.k1.iter()).for_each(|(byte, k1)| *byte ^= k1);
            half.copy_from_slice(&*self.block.encrypt(message));
        }
        key
    }

    fn with_gcm<R>(&self, nonce: &Nonce<24>, work: impl FnOnce(&EvpAead<'_>, &[u8]) -> R) -> R {
        let mut room = Room::new();
        // SAFETY: returns a table that lives as long as the program.
        let algorithm = unsafe { &*EVP_aead_aes_256_gcm() };
        work(&room.key(algorithm, &self.derive(nonce)), &nonce.0[DERIVED_FROM..])
    }
}

impl Aead<24> for Xaes256Gcm {
    fn seal(&self, nonce: &Nonce<24>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
        self.with_gcm(nonce, |gcm, nonce| gcm.seal(nonce, ad, text, out))
    }

    fn seal_in_place(&self, nonce: &Nonce<24>, ad: &[u8], text: &mut [u8]) -> Tag {
        self.with_gcm(nonce, |gcm, nonce| gcm.seal_in_place(nonce, ad, text))
    }

    fn open(&self, nonce: &Nonce<24>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic> {
        self.with_gcm(nonce, |gcm, nonce| gcm.open(nonce, ad, tag, text))
    }

    fn implementation(&self) -> &'static str {
        crate::processor::aws_lc_aes(
            "XAES-256-GCM by AWS-LC, with VAES and AVX-512",
            "XAES-256-GCM by AWS-LC, with the CPU's AES instructions",
            "XAES-256-GCM by AWS-LC, in software (this CPU has no AES instructions)",
        )
    }
}

/// AES-256, one block at a time.
struct AesBlock(AES_KEY);

impl AesBlock {
    fn new(key: &Key256) -> Self {
        let mut schedule = std::mem::MaybeUninit::uninit();
        // SAFETY: the key has 256 bits, and the schedule is written whole.
        let status = unsafe { AES_set_encrypt_key(key.as_ptr(), 256, schedule.as_mut_ptr()) };
        assert_eq!(status, 0, "AES takes a 256-bit key");
        // SAFETY: AES_set_encrypt_key has written it.
        Self(unsafe { schedule.assume_init() })
    }

    fn encrypt(&self, mut block: [u8; 16]) -> Zeroizing<[u8; 16]> {
        let bytes = block.as_mut_ptr();
        // SAFETY: 16 bytes in and out; in and out may be the same.
        unsafe { AES_encrypt(bytes, bytes, &self.0) };
        Zeroizing::new(block)
    }
}

impl Drop for AesBlock {
    fn drop(&mut self) {
        // SAFETY: the schedule is plain memory that nobody reads again.
        unsafe { OPENSSL_cleanse(std::ptr::from_mut(&mut self.0).cast(), size_of::<AES_KEY>()) };
    }
}
