//! From the volume key to the keys that are used.

use aws_lc_rs::hkdf;
use sealdisk_units::Lineage;
use zeroize::Zeroizing;

use crate::aead::{Key256, Sealing, SealingAead};
use crate::aegis256::{Aegis256, Aegis256X4};
use crate::sector_sealer::{Authenticated, SectorCipher};
use crate::xaes256gcm::Xaes256Gcm;
use crate::xchacha20poly1305::XChaCha20Poly1305;
use crate::xts::Aes256Xts;
use crate::xts_random::XtsRandom;
use crate::{CipherName, MetadataCipher, SectorSealer, SuperblockMac, VolumeKey};

/// What derived keys are bound to. A header or superblock that claims anything else yields keys that open nothing.
///
/// The derivation is HKDF with SHA-512 (RFC 5869): the lineage's 16 bytes are the salt, the volume key is the input key,
/// and the info is text, `sealdisk/1/PURPOSE/CIPHER/CONTEXT/epoch=EPOCH`:
///
/// | purpose | key | of |
/// |---|---|---|
/// | `sector` | 32 bytes; 64 for `aes-256-xts-random` | the sectors' cipher |
/// | `metadata` | 32 bytes | the same AEAD; XAES-256-GCM beside `aes-256-xts-random` |
/// | `superblock` | 32 bytes | HMAC-SHA-256 |
///
/// CIPHER is [`CipherName::as_str`], EPOCH decimal. Neither holds a slash, so no two contexts give one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyContext<'a> {
    /// How sectors are sealed.
    pub cipher: CipherName,
    /// Which volumes this one is a copy of.
    pub lineage: Lineage,
    /// Where and how things lie in the volume, as text: `layout=packed fold=false offset=16777216`.
    pub context: &'a str,
    /// Counts changes of the sectors' key.
    pub epoch: u32,
}

/// The sealer of the volume's sectors. `fold`: whether sectors that can give up the room shall carry their own seal.
///
/// # Panics
/// If the cipher is `aes-256-xts`, which has no seals ([`XtsPlain64`](crate::XtsPlain64) is for it).
pub fn sector_sealer(key: &VolumeKey, context: &KeyContext<'_>, fold: bool) -> SectorSealer {
    let cipher: Box<dyn SectorCipher> = match context.cipher {
        CipherName::Aes256XtsRandom => {
            let key = derive(key, context, "sector");
            Box::new(XtsRandom(Aes256Xts::new(&key).expect("derived halves are the same once in 2^256 keys")))
        }
        _ => {
            let aead = aead(context.cipher, derive(key, context, "sector"));
            Box::new(Authenticated { aead, lineage: context.lineage, epoch: context.epoch })
        }
    };
    SectorSealer::new(context.cipher, cipher, fold)
}

/// The cipher of the volume's own records: the sectors' where that is authenticated, else XAES-256-GCM.
///
/// # Panics
/// If the cipher is `aes-256-xts`, whose volumes keep no records.
pub fn metadata_cipher(key: &VolumeKey, context: &KeyContext<'_>) -> MetadataCipher {
    let cipher = match context.cipher {
        CipherName::Aes256XtsRandom => CipherName::Aes256Gcm,
        cipher => cipher,
    };
    MetadataCipher::new(aead(cipher, derive(key, context, "metadata")))
}

/// What vouches for the volume's superblock.
pub fn superblock_mac(key: &VolumeKey, context: &KeyContext<'_>) -> SuperblockMac {
    SuperblockMac::new(&derive(key, context, "superblock"))
}

fn aead(cipher: CipherName, key: Key256) -> Box<dyn SealingAead> {
    match cipher {
        CipherName::Aegis256 => Box::new(Sealing(Aegis256::new(key))),
        CipherName::Aegis256X4 => Box::new(Sealing(Aegis256X4::new(key))),
        CipherName::Aes256Gcm => Box::new(Sealing(Xaes256Gcm::new(&key))),
        CipherName::XChaCha20Poly1305 => Box::new(Sealing(XChaCha20Poly1305::new(&key))),
        CipherName::Aes256XtsRandom | CipherName::Aes256Xts => {
            unreachable!("{cipher} does not authenticate; the caller has checked the combination")
        }
    }
}

/// The bytes of `purpose`'s key.
fn derive<const LEN: usize>(key: &VolumeKey, context: &KeyContext<'_>, purpose: &str) -> Zeroizing<[u8; LEN]> {
    struct Bytes(usize);
    impl hkdf::KeyType for Bytes {
        fn len(&self) -> usize {
            self.0
        }
    }

    let KeyContext { cipher, lineage, context, epoch } = context;
    let info = format!("sealdisk/1/{purpose}/{cipher}/{context}/epoch={epoch}");
    let mut derived = Zeroizing::new([0; LEN]);
    hkdf::Salt::new(hkdf::HKDF_SHA512, &lineage.0)
        .extract(key.expose())
        .expand(&[info.as_bytes()], Bytes(LEN))
        .and_then(|okm| okm.fill(&mut *derived))
        .expect("HKDF-SHA-512 yields up to 255 times 64 bytes");
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed with another implementation of HKDF: the derivation is part of the format.
    #[test]
    fn the_derivation_is_the_documented_one() {
        let key = VolumeKey::new(Zeroizing::new((0..64).collect())).unwrap();
        let lineage = Lineage(std::array::from_fn(|i| 0xa0 + i as u8));
        let context =
            |cipher| KeyContext { cipher, lineage, context: "layout=packed fold=false offset=16777216", epoch: 3 };
        assert_eq!(
            hex(&*derive::<32>(&key, &context(CipherName::Aegis256), "sector")),
            "663bc26f0584d4b6a2224fdfc424d369d6b8c7dfeb4d6e2ee9e7a77bd7726881"
        );
        assert_eq!(
            hex(&*derive::<64>(&key, &context(CipherName::Aes256XtsRandom), "sector")),
            concat!(
                "97b5618a2f043dd94155b157c5868a8cd471ac8d7b13703dcd39714923faae0b",
                "2b4ada64936779c8857cb36723797801ef1395fbe71c0ccdd16dd86839954277"
            )
        );
        assert_eq!(
            hex(&*derive::<32>(&key, &context(CipherName::Aes256Gcm), "metadata")),
            "e192a9174dc3ba022962294f27004df08b5550115ae402956ac71fe330b9c6da"
        );
        assert_eq!(
            hex(&*derive::<32>(&key, &context(CipherName::XChaCha20Poly1305), "superblock")),
            "b1e56711ba5869a73c142d11c79481e59353a933abdb4ac6b5445ea6cdd0db31"
        );
    }
}
