//! One of the two copies of a LUKS2 header as it lies on the device: a binary header and a JSON area behind it.
//!
//! "LUKS2 On-Disk Format Specification" 1.1.1, sections 2.1 and 2.2; integers are big-endian.

use std::ops::Range;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde_json::Value;

/// Bytes of the binary header, in front of the JSON area.
pub(crate) const BINARY_LEN: usize = 4096;
/// What a whole copy may measure: a power of two from 16 KiB to 4 MiB.
const COPY_LEN: std::ops::RangeInclusive<u64> = 16 << 10..=4 << 20;

const PRIMARY_MAGIC: &[u8] = b"LUKS\xba\xbe";
const SECONDARY_MAGIC: &[u8] = b"SKUL\xba\xbe";
const MAGIC: Range<usize> = 0..6;
const VERSION: Range<usize> = 6..8;
const LEN: Range<usize> = 8..16;
const SEQUENCE: Range<usize> = 16..24;
const CHECKSUM_NAME: Range<usize> = 72..104;
const SALT: Range<usize> = 104..168;
const OFFSET: Range<usize> = 256..264;
const CHECKSUM: Range<usize> = 448..512;

/// A copy whose checksum was right.
#[derive(Clone, PartialEq)]
pub struct HeaderCopy {
    binary: Box<[u8; BINARY_LEN]>,
    len: u64,
    json: Value,
}

/// Why bytes are not a copy of a LUKS2 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCopy {
    /// Too few bytes, or a length that LUKS2 does not allow.
    #[error("it is cut off")]
    Length,
    /// No magic, or a version other than 2.
    #[error("it is not a LUKS2 header")]
    Magic,
    /// A checksum that is not SHA-256, or a wrong one.
    #[error("its checksum is wrong")]
    Checksum,
    /// The JSON area does not hold JSON.
    #[error("its metadata is not JSON")]
    Json,
    /// The JSON does not fit into its area.
    #[error("its metadata does not fit into the header")]
    TooLarge,
}

impl HeaderCopy {
    /// How many bytes the copy measures whose first [`BINARY_LEN`](Self::BINARY_LEN) bytes these are.
    pub fn len_of(binary: &[u8]) -> Result<usize, BadCopy> {
        let binary = binary.get(..BINARY_LEN).ok_or(BadCopy::Length)?;
        let magic = &binary[MAGIC];
        if (magic != PRIMARY_MAGIC && magic != SECONDARY_MAGIC) || binary[VERSION] != 2u16.to_be_bytes() {
            return Err(BadCopy::Magic);
        }
        let len = big_endian(binary, LEN);
        if !COPY_LEN.contains(&len) || !len.is_power_of_two() {
            return Err(BadCopy::Length);
        }
        Ok(len as usize)
    }

    /// Bytes of the binary header.
    pub const BINARY_LEN: usize = BINARY_LEN;

    /// Reads a copy from its first byte; bytes behind it are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadCopy> {
        let len = Self::len_of(bytes)?;
        let bytes = bytes.get(..len).ok_or(BadCopy::Length)?;
        let (binary, area) = bytes.split_first_chunk::<BINARY_LEN>().ok_or(BadCopy::Length)?;
        if !binary[CHECKSUM_NAME].starts_with(b"sha256\0")
            || checksum(binary, area) != binary[CHECKSUM][..SHA256_OUTPUT_LEN]
        {
            return Err(BadCopy::Checksum);
        }
        let text = area.split(|&byte| byte == 0).next().unwrap_or_default();
        let json = serde_json::from_slice(text).map_err(|_| BadCopy::Json)?;
        Ok(Self { binary: Box::new(*binary), len: len as u64, json })
    }

    /// The metadata.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Which of two copies is the newer one: it has the greater number.
    pub fn sequence(&self) -> u64 {
        big_endian(&self.binary[..], SEQUENCE)
    }

    /// Both copies, primary first, of the next header after this one, with `json` in it. Where they lie: one behind the
    /// other from the first byte of the device.
    pub(crate) fn successors(&self, json: &Value, salts: [[u8; 64]; 2]) -> Result<[Vec<u8>; 2], BadCopy> {
        let primary = self.successor(json, PRIMARY_MAGIC, 0, salts[0])?;
        let secondary = self.successor(json, SECONDARY_MAGIC, self.len, salts[1])?;
        Ok([primary, secondary])
    }

    fn successor(&self, json: &Value, magic: &[u8], offset: u64, salt: [u8; 64]) -> Result<Vec<u8>, BadCopy> {
        let mut binary = self.binary.clone();
        binary[MAGIC].copy_from_slice(magic);
        binary[SEQUENCE].copy_from_slice(&self.sequence().saturating_add(1).to_be_bytes());
        binary[SALT].copy_from_slice(&salt);
        binary[OFFSET].copy_from_slice(&offset.to_be_bytes());
        let text = json.to_string();
        let mut area = vec![0; self.len as usize - BINARY_LEN];
        // The text is terminated by at least one zero byte.
        if text.len() >= area.len() {
            return Err(BadCopy::TooLarge);
        }
        area[..text.len()].copy_from_slice(text.as_bytes());
        let sum = checksum(&binary, &area);
        binary[CHECKSUM].fill(0);
        binary[CHECKSUM][..SHA256_OUTPUT_LEN].copy_from_slice(&sum);
        Ok([&binary[..], &area].concat())
    }
}

/// SHA-256 of the whole copy with zeros in place of the checksum.
fn checksum(binary: &[u8; BINARY_LEN], area: &[u8]) -> Vec<u8> {
    let mut whole = [&binary[..], area].concat();
    whole[CHECKSUM].fill(0);
    digest(&SHA256, &whole).as_ref().to_vec()
}

fn big_endian(binary: &[u8], field: Range<usize>) -> u64 {
    binary[field].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A copy of 16 KiB with the sequence number 7.
    fn copy() -> HeaderCopy {
        let mut binary = Box::new([0; BINARY_LEN]);
        binary[VERSION].copy_from_slice(&2u16.to_be_bytes());
        binary[LEN].copy_from_slice(&16384u64.to_be_bytes());
        binary[SEQUENCE].copy_from_slice(&7u64.to_be_bytes());
        binary[CHECKSUM_NAME][..6].copy_from_slice(b"sha256");
        HeaderCopy { binary, len: 16384, json: json!({}) }
    }

    #[test]
    fn successors_are_two_copies_of_one_header() {
        let json = json!({ "segments": { "0": {} } });
        let [primary, secondary] = copy().successors(&json, [[1; 64], [2; 64]]).unwrap();
        for bytes in [&primary, &secondary] {
            let parsed = HeaderCopy::parse(bytes).unwrap();
            assert_eq!((parsed.json(), parsed.sequence()), (&json, 8));
        }
        assert_eq!((&primary[MAGIC], big_endian(&primary, OFFSET)), (PRIMARY_MAGIC, 0));
        assert_eq!((&secondary[MAGIC], big_endian(&secondary, OFFSET)), (SECONDARY_MAGIC, 16384));
        assert_ne!(primary[SALT], secondary[SALT]);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let [mut bytes, _] = copy().successors(&json!({ "a": 1 }), [[1; 64]; 2]).unwrap();
        for offset in (0..600).chain(BINARY_LEN..BINARY_LEN + 16) {
            bytes[offset] ^= 0x10;
            // What the checksum does not fill stays unused.
            let unused = (CHECKSUM.start + SHA256_OUTPUT_LEN..CHECKSUM.end).contains(&offset);
            assert_eq!(HeaderCopy::parse(&bytes).is_ok(), unused, "byte {offset}");
            bytes[offset] ^= 0x10;
        }
    }

    #[test]
    fn cut_off_and_overlong_copies_are_refused() {
        let [bytes, _] = copy().successors(&json!({}), [[1; 64]; 2]).unwrap();
        for len in [0, 1, 4095, 4096, 16383] {
            assert_eq!(HeaderCopy::parse(&bytes[..len]).err(), Some(BadCopy::Length));
        }
        let large = json!("x".repeat(16384 - BINARY_LEN - 2));
        assert_eq!(copy().successors(&large, [[1; 64]; 2]).err(), Some(BadCopy::TooLarge));
    }
}
