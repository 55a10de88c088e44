//! Which objects of a zone exist. An object that does not exist reads as zeros, so the answer must be authentic.

use sealdisk_cipher::{FreshNonce, MAX_SEAL_LEN, MetadataCipher, NotAuthentic, Seal};
use sealdisk_units::Lineage;

use crate::packed::{MAP_TAG_LEN, OBJECTS_PER_ZONE, ObjectNumber, PAGE_SIZE, ZoneNumber};

const SIZE: usize = PAGE_SIZE as usize;
const BITMAP_LEN: usize = OBJECTS_PER_ZONE as usize / 8;
/// The seal stands first, padded to the longest; then the sealed text: the bits, then zeros reserved for roots.
const TEXT_OFFSET: usize = MAX_SEAL_LEN;

/// The authentication tag of one map page: which of all pages that were ever sealed for the zone is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapTag(pub [u8; MAP_TAG_LEN]);

impl MapTag {
    /// The tag of a page: the end of its seal, of `seal_len` bytes.
    pub fn of(page: &[u8; SIZE], seal_len: usize) -> Self {
        Self(page[seal_len - MAP_TAG_LEN..seal_len].try_into().expect("16 bytes"))
    }
}

const _: () = assert!(TEXT_OFFSET + BITMAP_LEN <= SIZE);

/// One bit for each object of a zone: whether it exists.
#[derive(Clone, PartialEq, Eq)]
pub struct ZoneMap {
    bits: Box<[u8; BITMAP_LEN]>,
}

impl Default for ZoneMap {
    fn default() -> Self {
        Self { bits: Box::new([0; BITMAP_LEN]) }
    }
}

impl ZoneMap {
    /// Whether an object of this zone exists.
    pub fn exists(&self, object: ObjectNumber) -> bool {
        let (byte, mask) = Self::place(object);
        self.bits[byte] & mask != 0
    }

    /// Records that an object of this zone exists, or no longer does.
    pub fn set(&mut self, object: ObjectNumber, exists: bool) {
        let (byte, mask) = Self::place(object);
        if exists {
            self.bits[byte] |= mask;
        } else {
            self.bits[byte] &= !mask;
        }
    }

    /// How many objects exist.
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// The page as it is written.
    pub fn seal(&self, cipher: &MetadataCipher, lineage: Lineage, zone: ZoneNumber, nonce: FreshNonce) -> [u8; SIZE] {
        let mut page = [0; SIZE];
        page[TEXT_OFFSET..][..BITMAP_LEN].copy_from_slice(&self.bits[..]);
        let seal = cipher.seal(&associated_data(lineage, zone), nonce, &mut page[TEXT_OFFSET..]);
        page[..seal.as_bytes().len()].copy_from_slice(seal.as_bytes());
        page
    }

    /// Opens a page as it was read, if it is the one with this tag. (The tag says which page it must be; that it is
    /// authentic, opening says.)
    pub fn open(
        cipher: &MetadataCipher,
        lineage: Lineage,
        zone: ZoneNumber,
        tag: MapTag,
        page: &[u8; SIZE],
    ) -> Result<Self, NotAuthentic> {
        if MapTag::of(page, cipher.seal_len()) != tag {
            return Err(NotAuthentic);
        }
        let seal = Seal::from_slice(&page[..cipher.seal_len()]);
        let mut text: [u8; SIZE - TEXT_OFFSET] = page[TEXT_OFFSET..].try_into().expect("the rest of a page");
        cipher.open(&associated_data(lineage, zone), &seal, &mut text)?;
        Ok(Self { bits: Box::new(text[..BITMAP_LEN].try_into().expect("the bits")) })
    }

    fn place(object: ObjectNumber) -> (usize, u8) {
        let index = (object.0 % OBJECTS_PER_ZONE) as usize;
        (index / 8, 1 << (index % 8))
    }
}

/// Binds a page to its volume and zone: `"sealdisk map 1\0"`, lineage, zone (little-endian).
fn associated_data(lineage: Lineage, zone: ZoneNumber) -> Vec<u8> {
    [b"sealdisk map 1\0".as_slice(), &lineage.0, &zone.0.to_le_bytes()].concat()
}
