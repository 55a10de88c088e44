//! The superblock: what of a volume changes while its header does not. It is readable without a key and believed only
//! with one.
//!
//! A page of fields, then pages with the tag of each zone's map page, so that no map page can be put back alone. One
//! message authentication code covers both.

use sealdisk_cipher::{NotAuthentic, SuperblockMac};

use crate::map_page::MapTag;
use crate::packed::MAP_TAG_LEN;

const SIZE: usize = crate::packed::PAGE_SIZE as usize;
const MAGIC: [u8; 8] = *b"SEALDISK";
const FORMAT: u32 = 1;
const CLEAN: u32 = 1;
/// Where the message authentication code begins; it covers everything before it, and the tags behind it.
const MAC_OFFSET: usize = SIZE - 32;

/// Where in the journal recovery begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalTail {
    /// Sequence number of the first frame that may not be in place. Protects against an older journal put back.
    pub sequence: u64,
    /// Where that frame begins, in bytes from the start of the journal.
    pub position: u64,
    /// The tag of the frame before it: frames form a chain, so none can be left out or come from elsewhere.
    pub previous_tag: [u8; 16],
    /// Where the frame before it begins. Nothing is written over that frame before a frame follows it, so if neither is
    /// there, the journal is not the one that was left here.
    pub previous_position: u64,
}

/// The facts that a superblock keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Counts writes of the superblock. The copy with the higher one is the newer.
    pub generation: u64,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Length of the journal in bytes, a multiple of 4096.
    pub journal_len: u64,
    /// Which generation of derived keys seals new sectors. 0 until keys are rotated.
    pub key_epoch: u32,
    /// Whether the volume was closed in order: then the journal holds nothing from `tail` on.
    pub clean: bool,
    /// Where recovery begins.
    pub tail: JournalTail,
}

// Byte offsets of the fields. What lies between `END` and the code is zero, reserved for a root over all objects.
mod at {
    pub(super) const FORMAT: usize = 8;
    pub(super) const FLAGS: usize = 12;
    pub(super) const GENERATION: usize = 16;
    pub(super) const SIZE: usize = 24;
    pub(super) const JOURNAL_LEN: usize = 32;
    pub(super) const KEY_EPOCH: usize = 40;
    pub(super) const TAIL_SEQUENCE: usize = 48;
    pub(super) const TAIL_POSITION: usize = 56;
    pub(super) const TAIL_PREVIOUS_TAG: usize = 64;
    pub(super) const TAIL_PREVIOUS_POSITION: usize = 80;
    pub(super) const END: usize = 88;
}

const _: () = assert!(at::TAIL_PREVIOUS_POSITION + 8 == at::END && at::END < MAC_OFFSET);

/// Why bytes are not a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSuperblock {
    /// Something else lies there.
    #[error("there is no superblock where the header says")]
    NoMagic,
    /// A later Sealdisk wrote it.
    #[error("the volume has format {0} and this program knows format 1; use a newer sealdisk")]
    NewerFormat(u32),
    /// A field has a value that no Sealdisk writes.
    #[error("the superblock is damaged")]
    Damaged,
}

/// A superblock as it was found, which anyone may have written.
#[derive(Clone)]
pub struct Unverified {
    bytes: Box<[u8; SIZE]>,
    facts: Superblock,
}

impl Unverified {
    /// Reads the fields. Nothing is believed yet.
    pub fn decode(page: &[u8; SIZE]) -> Result<Self, BadSuperblock> {
        if page[..8] != MAGIC {
            return Err(BadSuperblock::NoMagic);
        }
        match u32_at(page, at::FORMAT) {
            FORMAT => {}
            0 => return Err(BadSuperblock::Damaged),
            newer => return Err(BadSuperblock::NewerFormat(newer)),
        }
        let flags = u32_at(page, at::FLAGS);
        let facts = Superblock {
            generation: u64_at(page, at::GENERATION),
            size: u64_at(page, at::SIZE),
            journal_len: u64_at(page, at::JOURNAL_LEN),
            key_epoch: u32_at(page, at::KEY_EPOCH),
            clean: flags & CLEAN != 0,
            tail: JournalTail {
                sequence: u64_at(page, at::TAIL_SEQUENCE),
                position: u64_at(page, at::TAIL_POSITION),
                previous_tag: page[at::TAIL_PREVIOUS_TAG..][..16].try_into().expect("16 bytes"),
                previous_position: u64_at(page, at::TAIL_PREVIOUS_POSITION),
            },
        };
        let plausible = flags & !CLEAN == 0
            && facts.size <= crate::packed::MAX_VOLUME_SIZE
            && facts.journal_len <= MAX_JOURNAL_LEN
            && facts.journal_len.is_multiple_of(SIZE as u64)
            && facts.tail.position <= facts.journal_len
            && facts.tail.position.is_multiple_of(SIZE as u64)
            && facts.tail.previous_position <= facts.journal_len
            && facts.tail.previous_position.is_multiple_of(SIZE as u64);
        if !plausible {
            return Err(BadSuperblock::Damaged);
        }
        Ok(Self { bytes: Box::new(*page), facts })
    }

    /// What it claims, for showing to people who have no key.
    pub fn claims(&self) -> &Superblock {
        &self.facts
    }

    /// Believes it and the pages behind it, if whoever wrote them had the key. Returns a tag for each of `zones` zones
    /// too.
    pub fn verify(
        &self,
        mac: &SuperblockMac,
        pages_behind: &[u8],
        zones: u64,
    ) -> Result<(Superblock, Vec<MapTag>), NotAuthentic> {
        mac.verify(&[&self.bytes[..MAC_OFFSET], pages_behind], &self.bytes[MAC_OFFSET..])?;
        let tags = pages_behind.chunks_exact(MAP_TAG_LEN).take(zones as usize);
        let tags: Vec<MapTag> = tags.map(|tag| MapTag(tag.try_into().expect("a chunk of 16 bytes"))).collect();
        if tags.len() as u64 == zones { Ok((self.facts, tags)) } else { Err(NotAuthentic) }
    }
}

/// The longest journal, in bytes.
pub const MAX_JOURNAL_LEN: u64 = 16 << 30;

impl Superblock {
    /// The pages as they are written; `tags` has one for each zone.
    pub fn encode(&self, mac: &SuperblockMac, tags: &[MapTag]) -> Vec<u8> {
        let mut pages = vec![0; SIZE + (tags.len() * MAP_TAG_LEN).next_multiple_of(SIZE)];
        let (page, behind) = pages.split_at_mut(SIZE);
        for (place, tag) in behind.chunks_exact_mut(MAP_TAG_LEN).zip(tags) {
            place.copy_from_slice(&tag.0);
        }
        page[..8].copy_from_slice(&MAGIC);
        page[at::FORMAT..][..4].copy_from_slice(&FORMAT.to_le_bytes());
        page[at::FLAGS..][..4].copy_from_slice(&(if self.clean { CLEAN } else { 0 }).to_le_bytes());
        page[at::GENERATION..][..8].copy_from_slice(&self.generation.to_le_bytes());
        page[at::SIZE..][..8].copy_from_slice(&self.size.to_le_bytes());
        page[at::JOURNAL_LEN..][..8].copy_from_slice(&self.journal_len.to_le_bytes());
        page[at::KEY_EPOCH..][..4].copy_from_slice(&self.key_epoch.to_le_bytes());
        page[at::TAIL_SEQUENCE..][..8].copy_from_slice(&self.tail.sequence.to_le_bytes());
        page[at::TAIL_POSITION..][..8].copy_from_slice(&self.tail.position.to_le_bytes());
        page[at::TAIL_PREVIOUS_TAG..][..16].copy_from_slice(&self.tail.previous_tag);
        page[at::TAIL_PREVIOUS_POSITION..][..8].copy_from_slice(&self.tail.previous_position.to_le_bytes());
        let code = mac.tag(&[&page[..MAC_OFFSET], behind]);
        page[MAC_OFFSET..].copy_from_slice(&code);
        pages
    }
}

fn u32_at(page: &[u8; SIZE], offset: usize) -> u32 {
    u32::from_le_bytes(page[offset..offset + 4].try_into().expect("4 bytes"))
}

fn u64_at(page: &[u8; SIZE], offset: usize) -> u64 {
    u64::from_le_bytes(page[offset..offset + 8].try_into().expect("8 bytes"))
}
