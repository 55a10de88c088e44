//! What ties a sealed segment to the volume key, so that an edited header opens nothing.
//!
//! LUKS2 keeps a digest of the volume key: PBKDF2 of the key with a salt of 32 bytes. Without the key nobody can make a
//! digest for another salt. So the salt of a sealed header is not only random, it also says what the segment is:
//!
//! ```text
//! salt    = nonce (12 bytes, random) || mark (6 bytes) || binding (14 bytes)
//! mark    = SHA-256("sealdisk sealed header" || N)
//! binding = SHA-256("sealdisk segment" || N || " 1 CIPHER LAYOUT FOLD LINEAGE OFFSET")
//! ```
//!
//! Both hashes are cut to length; N is the nonce in base64, and the words are those of the segment, FOLD as `true` or
//! `false`. cryptsetup's key slot verbs never touch the digest. The mark keeps a sealed header from being disguised as
//! an ordinary one, whose salt bears it by accident with a probability of 2^-48.

use std::num::NonZeroU32;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
use sealdisk_cipher::VolumeKey;
use sealdisk_layout::SealedPayload;
use serde_json::{Value, json};

/// Base64 digits of the nonce's 12 bytes; the mark's 6 bytes fill whole digits too.
const NONCE_DIGITS: usize = 16;
const NONCE_LEN: usize = 12;
const MARK_LEN: usize = 6;
const BINDING_LEN: usize = 14;
/// Base64 digits of a salt.
const SALT_DIGITS: usize = 44;

/// Whether `salt`, in base64, is the one of a sealed header, of whatever segment.
pub(crate) fn is_marked(salt: &str) -> bool {
    match (salt.get(..NONCE_DIGITS), salt.get(NONCE_DIGITS..NONCE_DIGITS + MARK_LEN / 3 * 4)) {
        (Some(nonce), Some(found)) => salt.len() == SALT_DIGITS && found == base64(&mark(nonce)),
        _ => false,
    }
}

/// Whether `salt`, in base64, was made for `payload`.
pub(crate) fn is_bound(salt: &str, payload: &SealedPayload) -> bool {
    salt.get(..NONCE_DIGITS).is_some_and(|nonce| salt == format!("{nonce}{}", base64(&rest(nonce, payload))))
}

/// Makes `stored`, the digest that libcryptsetup has just made of `volume_key`, one that is bound to `payload`.
/// `None` if it is not as libcryptsetup makes it.
pub(crate) fn bind(
    stored: &mut Value,
    payload: &SealedPayload,
    volume_key: &VolumeKey,
    nonce: [u8; NONCE_LEN],
) -> Option<()> {
    let iterations = NonZeroU32::new(stored["iterations"].as_u64()?.try_into().ok()?)?;
    if stored["type"] != "pbkdf2" || stored["hash"] != "sha256" {
        return None;
    }
    let salt = [&nonce[..], &rest(&base64(&nonce), payload)].concat();
    let mut key_digest = [0; 32];
    derive(PBKDF2_HMAC_SHA256, iterations, &salt, volume_key.expose(), &mut key_digest);
    stored["salt"] = json!(base64(&salt));
    stored["digest"] = json!(base64(&key_digest));
    Some(())
}

/// What follows the nonce.
fn rest(nonce: &str, payload: &SealedPayload) -> Vec<u8> {
    let SealedPayload { cipher, layout, fold, lineage, offset } = payload;
    let text = format!("sealdisk segment{nonce} 1 {cipher} {layout} {fold} {lineage} {offset}");
    [&mark(nonce)[..], &digest(&SHA256, text.as_bytes()).as_ref()[..BINDING_LEN]].concat()
}

fn mark(nonce: &str) -> [u8; MARK_LEN] {
    let hash = digest(&SHA256, format!("sealdisk sealed header{nonce}").as_bytes());
    std::array::from_fn(|i| hash.as_ref()[i])
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let quads = bytes.chunks(3).flat_map(|chunk| {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | usize::from(chunk.get(i).copied().unwrap_or(0)));
        (0..4).map(move |i| if i > chunk.len() { '=' } else { char::from(DIGITS[bits >> (18 - 6 * i) & 63]) })
    });
    quads.collect()
}

#[cfg(test)]
mod tests {
    use sealdisk_cipher::CipherName;
    use sealdisk_layout::LayoutName;
    use sealdisk_units::Lineage;

    use super::*;

    const PAYLOAD: SealedPayload = SealedPayload {
        cipher: CipherName::Aegis256,
        layout: LayoutName::Packed,
        fold: false,
        lineage: Lineage([9; 16]),
        offset: 16 << 20,
    };

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_salt_is_bound_to_one_payload() {
        let key = VolumeKey::generate().unwrap();
        let mut stored = json!({ "type": "pbkdf2", "hash": "sha256", "iterations": 1000 });
        bind(&mut stored, &PAYLOAD, &key, [5; 12]).unwrap();
        let salt = stored["salt"].as_str().unwrap();
        assert_eq!(salt.len(), SALT_DIGITS);
        assert!(is_marked(salt) && is_bound(salt, &PAYLOAD));
        let others = [
            SealedPayload { cipher: CipherName::Aes256Gcm, ..PAYLOAD },
            SealedPayload { layout: LayoutName::LengthPreserving, ..PAYLOAD },
            SealedPayload { fold: true, ..PAYLOAD },
            SealedPayload { lineage: Lineage([8; 16]), ..PAYLOAD },
            SealedPayload { offset: 4 << 20, ..PAYLOAD },
        ];
        assert!(others.iter().all(|other| !is_bound(salt, other)));
        for other in ["", "AAAA", "é", &base64(&[0; 32]), &salt[1..], &format!("{salt}=")] {
            assert!(!is_marked(other) && !is_bound(other, &PAYLOAD), "{other}");
        }
    }
}
