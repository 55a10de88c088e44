//! What the fuzz target drives: the parsers of a journal, on bytes that nobody vouches for.

use super::frame::FrameHeader;
use super::record::{Record, RecordFormat};

/// Parses bytes as a frame's clear part and as a list of records, and demands that whatever parses is written the same
/// way again.
pub fn parse_journal(bytes: &[u8]) {
    if let Some(header) = FrameHeader::decode(bytes) {
        assert!(header.list_end() >= header.list_len as usize && header.frame_len() >= header.list_end() as u64);
        assert_eq!(header.encode()[..], bytes[..header.encode().len()]);
    }
    for (seal_len, check_len) in [(48, 0), (40, 0), (16, 40)] {
        let format = RecordFormat { seal_len, check_len };
        let mut rest = bytes;
        while let Some(record) = Record::decode(&mut rest, format) {
            let mut again = Vec::new();
            record.encode(&mut again);
            let start = bytes.len() - rest.len() - again.len();
            assert_eq!(again, bytes[start..start + again.len()]);
        }
    }
}
