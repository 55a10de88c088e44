//! Published test vectors against the ciphers. `testdata/README.md` says where each file is from.

use std::path::Path;

use serde_json::Value;
use zeroize::Zeroizing;

use crate::aead::{Aead, Key256, Nonce, Tag};
use crate::aegis256::{Aegis256, Aegis256X4};
use crate::evp_aead::Room;
use crate::xaes256gcm::Xaes256Gcm;
use crate::xchacha20poly1305::XChaCha20Poly1305;
use crate::xts::{Aes256Xts, EqualHalves, Tweak};
use crate::xts128::Aes128Xts;

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

/// The tests of a file, those of Wycheproof's groups one after another.
fn tests(file: &str) -> Vec<Value> {
    let data = read(file);
    match &data["testGroups"] {
        Value::Array(groups) => groups.iter().flat_map(|group| group["tests"].as_array().unwrap().clone()).collect(),
        _ => data["tests"].as_array().unwrap().clone(),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// A field in hexadecimal; a missing one is empty.
fn bytes(test: &Value, field: &str) -> Vec<u8> {
    unhex(test[field].as_str().unwrap_or_default())
}

/// One vector for an authenticated cipher.
struct Vector {
    key: Vec<u8>,
    iv: Vec<u8>,
    aad: Vec<u8>,
    msg: Vec<u8>,
    ct: Vec<u8>,
    tag: Vec<u8>,
    valid: bool,
    name: String,
}

impl Vector {
    fn new(test: &Value) -> Self {
        let field = |name| bytes(test, name);
        Self {
            key: field("key"),
            iv: field("iv"),
            aad: field("aad"),
            msg: field("msg"),
            ct: field("ct"),
            tag: field("tag"),
            valid: test["result"].as_str().is_none_or(|result| result == "valid"),
            name: format!("{} {} {}", test["name"], test["tcId"], test["comment"]),
        }
    }

    fn key(&self) -> Key256 {
        Zeroizing::new(self.key[..].try_into().unwrap())
    }

    /// Seals both ways and opens, or, for a text that is not authentic, opens in vain.
    fn check<A: Aead<N>, const N: usize>(&self, new: impl FnOnce(Key256) -> A) {
        let Self { aad, msg, ct, tag, name, .. } = self;
        let aead = new(self.key());
        let nonce = Nonce(self.iv[..].try_into().unwrap());
        let tag = Tag(tag[..].try_into().unwrap());
        let mut text = ct.clone();
        assert_eq!(aead.open(&nonce, aad, &tag, &mut text).is_ok(), self.valid, "{name}");
        if self.valid {
            assert_eq!(&text, msg, "{name}");
            assert_eq!(aead.seal_in_place(&nonce, aad, &mut text).0, tag.0, "{name}");
            assert_eq!(&text, ct, "{name}");
            text.fill(0xee);
            assert_eq!(aead.seal(&nonce, aad, msg, &mut text).0, tag.0, "{name}");
            assert_eq!(&text, ct, "{name}");
        }
    }
}

fn vectors_of_rfc_10032(file: &str) -> Vec<Vector> {
    let all = read(file);
    let whole = all.as_array().unwrap().iter().filter(|test| test["key"].is_string() && test["ct"].is_string());
    let vector = |test| {
        let (iv, aad, tag) = (bytes(test, "nonce"), bytes(test, "ad"), bytes(test, "tag128"));
        Vector { iv, aad, tag, valid: test["error"].is_null(), ..Vector::new(test) }
    };
    whole.map(vector).collect()
}

#[test]
fn aegis_256_gives_the_vectors_of_rfc_10032() {
    let vectors = vectors_of_rfc_10032("rfc10032-aegis-256.json");
    vectors.iter().for_each(|vector| vector.check(Aegis256::new));
    assert_eq!(vectors.len(), 9);
}

#[test]
fn aegis_256x4_gives_the_vectors_of_rfc_10032() {
    let vectors = vectors_of_rfc_10032("rfc10032-aegis-256x4.json");
    vectors.iter().for_each(|vector| vector.check(Aegis256X4::new));
    assert_eq!(vectors.len(), 2);
}

#[test]
fn aegis_256_agrees_with_wycheproof() {
    let tests = tests("wycheproof-aegis256_test.json");
    tests.iter().for_each(|test| Vector::new(test).check(Aegis256::new));
    assert_eq!(tests.len(), 472);
}

#[test]
fn xchacha20_poly1305_agrees_with_its_draft_and_wycheproof() {
    tests("draft-irtf-cfrg-xchacha.json")
        .iter()
        .for_each(|test| Vector::new(test).check(|key| XChaCha20Poly1305::new(&key)));
    let vectors: Vec<_> = tests("wycheproof-xchacha20_poly1305_test.json").iter().map(Vector::new).collect();
    // The others have nonces of another length, which the type does not take.
    let fitting: Vec<_> = vectors.iter().filter(|vector| vector.iv.len() == 24).collect();
    fitting.iter().for_each(|vector| vector.check(|key| XChaCha20Poly1305::new(&key)));
    assert_eq!(fitting.len(), 306);
}

/// Plain AES-256-GCM, which XAES-256-GCM is made of.
struct Gcm(Key256);

impl Aead<12> for Gcm {
    fn seal(&self, nonce: &Nonce<12>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
        // SAFETY: returns a table that lives as long as the program.
        Room::new().key(unsafe { &*aws_lc_sys::EVP_aead_aes_256_gcm() }, &self.0).seal(&nonce.0, ad, text, out)
    }

    fn seal_in_place(&self, nonce: &Nonce<12>, ad: &[u8], text: &mut [u8]) -> Tag {
        // SAFETY: returns a table that lives as long as the program.
        Room::new().key(unsafe { &*aws_lc_sys::EVP_aead_aes_256_gcm() }, &self.0).seal_in_place(&nonce.0, ad, text)
    }

    fn open(&self, nonce: &Nonce<12>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), crate::NotAuthentic> {
        // SAFETY: returns a table that lives as long as the program.
        Room::new().key(unsafe { &*aws_lc_sys::EVP_aead_aes_256_gcm() }, &self.0).open(&nonce.0, ad, tag, text)
    }

    fn implementation(&self) -> &'static str {
        "AES-256-GCM"
    }
}

#[test]
fn the_gcm_below_xaes_agrees_with_cavp_and_wycheproof() {
    let cavp = tests("cavp-aes-256-gcm.json");
    cavp.iter().for_each(|test| Vector::new(test).check(Gcm));
    assert_eq!(cavp.len(), 100);
    let vectors: Vec<_> = tests("wycheproof-aes_gcm_test.json").iter().map(Vector::new).collect();
    let fitting: Vec<_> = vectors.iter().filter(|vector| vector.key.len() == 32 && vector.iv.len() == 12).collect();
    fitting.iter().for_each(|vector| vector.check(Gcm));
    assert_eq!(fitting.len(), 66);
}

#[test]
fn xaes_256_gcm_gives_the_vectors_of_its_specification() {
    let tests = tests("c2sp-xaes-256-gcm.json");
    for test in &tests {
        let mut vector = Vector::new(test);
        vector.tag = vector.ct.split_off(vector.ct.len() - 16);
        let nonce = Nonce(vector.iv[..].try_into().unwrap());
        assert_eq!(&Xaes256Gcm::new(&vector.key()).derive(&nonce)[..], bytes(test, "derived_key"));
        vector.check(|key| Xaes256Gcm::new(&key));
    }
    assert_eq!(tests.len(), 2);
}

#[test]
fn xaes_256_gcm_gives_the_accumulated_hashes_of_its_specification() {
    for accumulated in read("c2sp-xaes-256-gcm.json")["accumulated"].as_array().unwrap() {
        let (mut inputs, mut ciphertexts) = (Shake128::new(), Shake128::new());
        for _ in 0..accumulated["seals"].as_u64().unwrap() {
            let key = Zeroizing::new(inputs.squeeze(32).try_into().unwrap());
            let nonce = Nonce(inputs.squeeze(24).try_into().unwrap());
            let len = inputs.squeeze(1)[0];
            let mut text = inputs.squeeze(len.into());
            let len = inputs.squeeze(1)[0];
            let ad = inputs.squeeze(len.into());
            let tag = Xaes256Gcm::new(&key).seal_in_place(&nonce, &ad, &mut text);
            ciphertexts.absorb(&text);
            ciphertexts.absorb(&tag.0);
        }
        assert_eq!(ciphertexts.squeeze(32), bytes(accumulated, "hash"));
    }
}

/// SHAKE-128 (FIPS 202), which the specification takes its inputs from.
struct Shake128(*mut aws_lc_sys::EVP_MD_CTX);

impl Shake128 {
    fn new() -> Self {
        // SAFETY: the context is checked before it is used.
        let context = unsafe { aws_lc_sys::EVP_MD_CTX_new() };
        assert!(!context.is_null());
        // SAFETY: a fresh context and a static table.
        assert_eq!(unsafe { aws_lc_sys::EVP_DigestInit(context, aws_lc_sys::EVP_shake128()) }, 1);
        Self(context)
    }

    fn absorb(&mut self, bytes: &[u8]) {
        // SAFETY: the pointer goes with the length of its slice.
        assert_eq!(unsafe { aws_lc_sys::EVP_DigestUpdate(self.0, bytes.as_ptr().cast(), bytes.len()) }, 1);
    }

    fn squeeze(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: as above. Nothing is squeezed where nothing is wanted.
        assert!(len == 0 || unsafe { aws_lc_sys::EVP_DigestSqueeze(self.0, bytes.as_mut_ptr(), len) } == 1);
        bytes
    }
}

impl Drop for Shake128 {
    fn drop(&mut self) {
        // SAFETY: made by EVP_MD_CTX_new.
        unsafe { aws_lc_sys::EVP_MD_CTX_free(self.0) };
    }
}

/// AES-192 is not offered, no text is shorter than a block, and AES-128 takes whole blocks only.
fn fits_xts(test: &Value) -> bool {
    let len = bytes(test, "msg").len();
    match bytes(test, "key").len() {
        32 => len >= 16 && len.is_multiple_of(16),
        64 => len >= 16,
        _ => false,
    }
}

/// What both key sizes of XTS do with a vector: encrypt and decrypt.
fn check_xts(test: &Value) {
    let (key, msg, ct) = (bytes(test, "key"), bytes(test, "msg"), bytes(test, "ct"));
    let mut iv = bytes(test, "iv");
    iv.resize(16, 0);
    let tweak = Tweak(iv.try_into().unwrap());
    let mut text = msg.clone();
    if key.len() == 32 {
        let Ok(xts) = Aes128Xts::new(key[..].try_into().unwrap()) else { panic!("{test}") };
        xts.encrypt_in_place(tweak, &mut text);
        assert_eq!(text, ct, "{test}");
        xts.decrypt(tweak, &mut text);
    } else {
        let Ok(xts) = Aes256Xts::new(&Zeroizing::new(key.try_into().unwrap())) else { panic!("{test}") };
        xts.encrypt(tweak, &msg, &mut text);
        assert_eq!(text, ct, "{test}");
        text.copy_from_slice(&msg);
        xts.encrypt_in_place(tweak, &mut text);
        assert_eq!(text, ct, "{test}");
        xts.decrypt(tweak, &mut text);
    }
    assert_eq!(text, msg, "{test}");
}

#[test]
fn xts_agrees_with_ieee_1619_and_cavp() {
    for (file, count) in [("ieee1619-aes-xts.json", 7), ("cavp-aes-128-xts.json", 60), ("cavp-aes-256-xts.json", 60)] {
        let tests: Vec<_> = tests(file).into_iter().filter(fits_xts).collect();
        tests.iter().for_each(check_xts);
        assert_eq!(tests.len(), count);
    }
}

#[test]
fn xts_agrees_with_wycheproof() {
    let all = tests("wycheproof-aes_xts_test.json");
    let tests: Vec<_> = all.into_iter().filter(fits_xts).filter(|test| test["result"] == "valid").collect();
    tests.iter().for_each(check_xts);
    assert_eq!(tests.len(), 62);
}

#[test]
fn xts_refuses_a_key_with_equal_halves() {
    assert_eq!(Aes128Xts::new(&[7; 32]).err(), Some(EqualHalves));
    assert_eq!(Aes256Xts::new(&Zeroizing::new([7; 64])).err(), Some(EqualHalves));
}

/// Vectors 10, 11 and 12 of IEEE 1619 are what dm-crypt writes to 512-byte sectors 255, 65535 and 2^24 - 1.
#[test]
fn plain64_gives_the_vectors_of_ieee_1619() {
    for (test, unit) in tests("ieee1619-aes-xts.json")[2..].iter().zip([0xff, 0xffff, 0xff_ffff]) {
        let key = crate::VolumeKey::new(Zeroizing::new(bytes(test, "key").into())).unwrap();
        let mut data = bytes(test, "msg");
        crate::XtsPlain64::new(&key, 512, 0).unwrap().encrypt(unit, &mut data);
        assert_eq!(data, bytes(test, "ct"));
    }
}
