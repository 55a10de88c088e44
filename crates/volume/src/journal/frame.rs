//! One frame of the journal: a sealed list of records and the pages that they speak of, written with one sequential
//! write and made durable with one sync.
//!
//! ```text
//! 0    magic "SDJOURNL"
//! 8    sequence number (u64)
//! 16   length of the sealed list in bytes (u32)
//! 20   number of payload pages (u32)
//! 24   tag of the frame before (16 bytes)
//! 40   seal of the list (48 bytes, shorter seals padded with zeros)
//! 88   zeros (8 bytes)
//! 96   the sealed list, then zeros up to a multiple of 4096; then the payload pages
//! ```
//!
//! The list's associated data is `"sealdisk journal 1\0"`, the lineage, bytes 0 to 40 and the frame's position: a frame
//! of another volume, from another place, out of order or with another length does not open.

use sealdisk_cipher::{FreshNonce, MAX_SEAL_LEN, MetadataCipher, Seal};
use sealdisk_units::Lineage;

use super::record::{Record, RecordFormat};

/// The journal is written in whole pages.
pub(crate) const PAGE: usize = 4096;
const MAGIC: [u8; 8] = *b"SDJOURNL";
const CLEAR_LEN: usize = 40;
const SEAL_OFFSET: usize = CLEAR_LEN;
/// Where the sealed list begins.
const LIST_OFFSET: usize = 96;

const _: () = assert!(SEAL_OFFSET + MAX_SEAL_LEN <= LIST_OFFSET);

/// The most bytes that a list may have; bounds what recovery allocates for a hostile frame.
pub(crate) const MAX_LIST_LEN: usize = 4 << 20;

/// What anyone can read of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) sequence: u64,
    pub(crate) list_len: u32,
    pub(crate) payload_pages: u32,
    pub(crate) previous_tag: [u8; 16],
}

/// Seals and opens frames.
pub(crate) struct FrameCodec {
    pub(crate) cipher: MetadataCipher,
    pub(crate) lineage: Lineage,
    pub(crate) format: RecordFormat,
}

/// An opened frame's list.
pub(crate) struct OpenedFrame {
    pub(crate) records: Vec<Record>,
    pub(crate) tag: [u8; 16],
}

impl FrameHeader {
    /// Reads the clear part of what may be a frame's first page.
    pub(crate) fn decode(page: &[u8]) -> Option<Self> {
        let clear = page.first_chunk::<CLEAR_LEN>()?;
        if clear[..8] != MAGIC {
            return None;
        }
        let header = Self {
            sequence: u64::from_le_bytes(clear[8..16].try_into().expect("8 bytes")),
            list_len: u32::from_le_bytes(clear[16..20].try_into().expect("4 bytes")),
            payload_pages: u32::from_le_bytes(clear[20..24].try_into().expect("4 bytes")),
            previous_tag: clear[24..40].try_into().expect("16 bytes"),
        };
        (header.list_len as usize <= MAX_LIST_LEN).then_some(header)
    }

    pub(super) fn encode(&self) -> [u8; CLEAR_LEN] {
        let mut clear = [0; CLEAR_LEN];
        clear[..8].copy_from_slice(&MAGIC);
        clear[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        clear[16..20].copy_from_slice(&self.list_len.to_le_bytes());
        clear[20..24].copy_from_slice(&self.payload_pages.to_le_bytes());
        clear[24..40].copy_from_slice(&self.previous_tag);
        clear
    }

    /// Bytes of the frame's first part: header and list.
    pub(crate) fn list_end(&self) -> usize {
        (LIST_OFFSET + self.list_len as usize).next_multiple_of(PAGE)
    }

    /// Bytes of the whole frame.
    pub(crate) fn frame_len(&self) -> u64 {
        (self.list_end() + self.payload_pages as usize * PAGE) as u64
    }
}

impl FrameCodec {
    /// Seals `list` (encoded records) into the first part of a frame, which is written to `out` (zeroed, at least
    /// `list_end` bytes), and returns the frame's tag.
    pub(crate) fn seal(
        &self,
        header: &FrameHeader,
        position: u64,
        list: &[u8],
        nonce: FreshNonce,
        out: &mut [u8],
    ) -> [u8; 16] {
        debug_assert_eq!(list.len(), header.list_len as usize);
        let clear = header.encode();
        out[..CLEAR_LEN].copy_from_slice(&clear);
        let text = &mut out[LIST_OFFSET..LIST_OFFSET + list.len()];
        text.copy_from_slice(list);
        let seal = self.cipher.seal(&self.associated_data(&clear, position), nonce, text);
        out[SEAL_OFFSET..][..seal.as_bytes().len()].copy_from_slice(seal.as_bytes());
        tag_of(&seal)
    }

    /// Opens the first part of a frame. `None` where it is not one that this volume wrote at this position.
    pub(crate) fn open(&self, header: &FrameHeader, position: u64, first_part: &[u8]) -> Option<OpenedFrame> {
        let list = first_part.get(LIST_OFFSET..LIST_OFFSET + header.list_len as usize)?;
        let mut list = list.to_vec();
        let seal = Seal::from_slice(&first_part[SEAL_OFFSET..][..self.cipher.seal_len()]);
        self.cipher.open(&self.associated_data(&header.encode(), position), &seal, &mut list).ok()?;
        let mut rest = list.as_slice();
        let mut records = Vec::new();
        while !rest.is_empty() {
            records.push(Record::decode(&mut rest, self.format)?);
        }
        let payload_pages = records.iter().filter(|record| record.has_payload()).count();
        (payload_pages == header.payload_pages as usize).then(|| OpenedFrame { records, tag: tag_of(&seal) })
    }

    fn associated_data(&self, clear: &[u8; CLEAR_LEN], position: u64) -> Vec<u8> {
        [b"sealdisk journal 1\0".as_slice(), &self.lineage.0, clear, &position.to_le_bytes()].concat()
    }
}

fn tag_of(seal: &Seal) -> [u8; 16] {
    *seal.as_bytes().last_chunk().expect("a metadata seal ends with a tag of 16 bytes")
}
