//! `aes-xts-plain64`, byte for byte as dm-crypt does it: the cipher of ordinary LUKS2 volumes.

use zeroize::Zeroizing;

use crate::VolumeKey;
use crate::xts::{Aes256Xts, EqualHalves, Tweak};
use crate::xts128::Aes128Xts;

/// dm-crypt counts in these whatever the encryption sector.
const UNIT: u64 = 512;

/// AES-XTS with the sector's place as IV. A 64-byte key is AES-256-XTS, a 32-byte key AES-128-XTS. Neither
/// authenticated nor randomised: equal text in one place gives equal ciphertext.
///
/// The IV of an encryption sector is the number of its first 512-byte unit, counted from the start of the data segment,
/// plus the IV tweak, as a 64-bit little-endian number followed by eight zero bytes. It counts 512-byte units for larger
/// encryption sectors too (dm-crypt without `iv_large_sectors`, which LUKS2 does not use).
pub struct XtsPlain64 {
    xts: Xts,
    sector_size: usize,
    iv_tweak: u64,
}

enum Xts {
    Aes128(Box<Aes128Xts>),
    Aes256(Aes256Xts),
}

/// Not a cipher that dm-crypt would set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadXts {
    /// The encryption sector.
    #[error("an encryption sector has 512, 1024, 2048 or 4096 bytes, not {0}")]
    SectorSize(u32),
    /// The key.
    #[error("the two halves of the XTS key are the same, which IEEE 1619 forbids")]
    EqualHalves,
}

impl From<EqualHalves> for BadXts {
    fn from(_: EqualHalves) -> Self {
        Self::EqualHalves
    }
}

impl XtsPlain64 {
    /// `sector_size` in bytes: 512, 1024, 2048 or 4096. `iv_tweak` is added to every IV, modulo 2^64 (dm-crypt's
    /// `iv_offset`).
    pub fn new(key: &VolumeKey, sector_size: u32, iv_tweak: u64) -> Result<Self, BadXts> {
        if ![512, 1024, 2048, 4096].contains(&sector_size) {
            return Err(BadXts::SectorSize(sector_size));
        }
        let xts = match key.expose() {
            key if key.len() == 32 => {
                Xts::Aes128(Box::new(Aes128Xts::new(key.first_chunk().expect("a key of 32 bytes has 32 bytes"))?))
            }
            key => Xts::Aes256(Aes256Xts::new(&Zeroizing::new(
                *key.first_chunk().expect("a volume key has 32 or 64 bytes"),
            ))?),
        };
        Ok(Self { xts, sector_size: sector_size as usize, iv_tweak })
    }

    /// Bytes of an encryption sector.
    pub fn sector_size(&self) -> usize {
        self.sector_size
    }

    /// Encrypts whole encryption sectors in place. `first_512` is where `data` begins, in 512-byte units from the start
    /// of the data segment.
    ///
    /// # Panics
    /// If `data` is not a multiple of the encryption sector.
    pub fn encrypt(&self, first_512: u64, data: &mut [u8]) {
        self.check(data);
        for (tweak, sector) in self.tweaks(first_512).zip(data.chunks_exact_mut(self.sector_size)) {
            match &self.xts {
                Xts::Aes128(xts) => xts.encrypt_in_place(tweak, sector),
                Xts::Aes256(xts) => xts.encrypt_in_place(tweak, sector),
            }
        }
    }

    /// [`Self::encrypt`] from `text` into `out`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ, or are not a multiple of the encryption sector.
    pub fn encrypt_into(&self, first_512: u64, text: &[u8], out: &mut [u8]) {
        assert_eq!(text.len(), out.len(), "ciphertext is as long as its text");
        self.check(text);
        match &self.xts {
            Xts::Aes128(_) => {
                out.copy_from_slice(text);
                self.encrypt(first_512, out);
            }
            Xts::Aes256(xts) => {
                let sectors = text.chunks_exact(self.sector_size).zip(out.chunks_exact_mut(self.sector_size));
                for (tweak, (text, out)) in self.tweaks(first_512).zip(sectors) {
                    xts.encrypt(tweak, text, out);
                }
            }
        }
    }

    /// The inverse of [`Self::encrypt`].
    ///
    /// # Panics
    /// If `data` is not a multiple of the encryption sector.
    pub fn decrypt(&self, first_512: u64, data: &mut [u8]) {
        self.check(data);
        for (tweak, sector) in self.tweaks(first_512).zip(data.chunks_exact_mut(self.sector_size)) {
            match &self.xts {
                Xts::Aes128(xts) => xts.decrypt(tweak, sector),
                Xts::Aes256(xts) => xts.decrypt(tweak, sector),
            }
        }
    }

    /// The algorithm, the library and what of the CPU it uses.
    pub fn implementation(&self) -> &'static str {
        match &self.xts {
            Xts::Aes256(xts) => xts.implementation(),
            Xts::Aes128(_) if crate::processor::has_aes() => {
                "AES-128-XTS by RustCrypto, with the CPU's AES instructions"
            }
            Xts::Aes128(_) => "AES-128-XTS by RustCrypto, in software (this CPU has no AES instructions)",
        }
    }

    fn check(&self, data: &[u8]) {
        assert!(data.len().is_multiple_of(self.sector_size), "the caller encrypts whole encryption sectors");
    }

    fn tweaks(&self, first_512: u64) -> impl Iterator<Item = Tweak> + use<> {
        let step = self.sector_size as u64 / UNIT;
        let first = first_512.wrapping_add(self.iv_tweak);
        (0..).map(move |i: u64| Tweak(u128::from(first.wrapping_add(i.wrapping_mul(step))).to_le_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: impl Iterator<Item = u8>) -> VolumeKey {
        VolumeKey::new(Zeroizing::new(bytes.collect())).unwrap()
    }

    fn tweak(unit: u64) -> Tweak {
        Tweak(u128::from(unit).to_le_bytes())
    }

    #[test]
    fn the_iv_counts_512_byte_units_whatever_the_encryption_sector() {
        let (first, iv_tweak) = (8000, 24);
        for sector_size in [512, 1024, 2048, 4096_usize] {
            let text: Vec<u8> = (0..3 * sector_size).map(|i| (i % 251) as u8).collect();
            let [long, short] = [64, 32].map(|len| {
                let cipher = XtsPlain64::new(&key(0..len), sector_size as u32, iv_tweak).unwrap();
                let mut data = text.clone();
                cipher.encrypt(first, &mut data);
                let mut out = vec![0; text.len()];
                cipher.encrypt_into(first, &text, &mut out);
                assert_eq!(out, data);
                cipher.decrypt(first, &mut out);
                assert_eq!(out, text);
                data
            });
            let xts256 = Aes256Xts::new(&Zeroizing::new(std::array::from_fn(|i| i as u8))).ok().unwrap();
            let xts128 = Aes128Xts::new(&std::array::from_fn(|i| i as u8)).ok().unwrap();
            for (i, plain) in text.chunks(sector_size).enumerate() {
                let at = i * sector_size..(i + 1) * sector_size;
                let unit = tweak(first + iv_tweak + (i * sector_size / 512) as u64);
                let mut sector = plain.to_vec();
                xts256.encrypt_in_place(unit, &mut sector);
                assert_eq!(sector, long[at.clone()]);
                sector.copy_from_slice(plain);
                xts128.encrypt_in_place(unit, &mut sector);
                assert_eq!(sector, short[at]);
            }
        }
    }

    #[test]
    fn the_iv_wraps_as_64_bits() {
        let cipher = XtsPlain64::new(&key(0..64), 512, 3).unwrap();
        let wrapped = XtsPlain64::new(&key(0..64), 512, 0).unwrap();
        let [mut one, mut other] = [[7; 1024]; 2];
        cipher.encrypt(u64::MAX - 3, &mut one);
        wrapped.encrypt(u64::MAX, &mut other);
        assert_eq!(one, other);
        let mut zeroth = [7; 512];
        wrapped.encrypt(0, &mut zeroth);
        assert_eq!(one[512..], zeroth);
    }

    #[test]
    fn what_dm_crypt_refuses_is_refused() {
        for size in [0, 256, 513, 8192] {
            assert_eq!(XtsPlain64::new(&key(0..64), size, 0).err(), Some(BadXts::SectorSize(size)));
        }
        assert_eq!(XtsPlain64::new(&key((0..64).map(|_| 1)), 512, 0).err(), Some(BadXts::EqualHalves));
        assert_eq!(XtsPlain64::new(&key((0..32).map(|_| 1)), 512, 0).err(), Some(BadXts::EqualHalves));
    }
}
