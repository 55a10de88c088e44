//! Vouching for the superblock.

use aws_lc_rs::hmac;

use crate::NotAuthentic;
use crate::aead::Key256;

/// HMAC-SHA-256 (RFC 2104, FIPS 198-1) under a key of its own. The superblock is not secret, so it is only
/// authenticated.
pub struct SuperblockMac(hmac::Key);

impl SuperblockMac {
    pub(crate) fn new(key: &Key256) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &**key))
    }

    /// The 32-byte tag of these parts, one after the other.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
    }

    /// Whether `tag` is the tag of these parts, in a time that does not depend on where they differ.
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> Result<(), NotAuthentic> {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.tag(parts), tag).map_err(|_| NotAuthentic)
    }
}
