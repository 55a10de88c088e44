//! Replies, gathered so that a whole batch goes out in one system call.
//!
//! Source: "Simple reply message", "Structured reply chunk message" and "Structured reply types" of the NBD protocol.

use std::io::{self, IoSlice};
use std::ops::Range;

use sealdisk_store::AlignedBuf;
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{Allocation, VolumeError, VolumeErrorKind};

use super::protocol::{
    ALLOCATION_CONTEXT_ID, CHUNK_DONE, MAX_STRING, NbdError, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    allocation_state, chunk,
};
use super::socket::Socket;
use super::transmission::Refusal;

/// Most stretches told in one answer about allocation; a client asks on from where the answer ends.
pub(super) const MAX_EXTENTS: usize = 1024;

/// Why a request failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) error: NbdError,
    pub(super) message: String,
    /// The first byte of the disk that is known to be affected.
    pub(super) offset: Option<u64>,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { error: refusal.error, message: refusal.why.to_owned(), offset: None }
    }
}

impl Failure {
    /// What the disk says about a request without a place of its own.
    pub(super) fn of_disk(error: &VolumeError) -> Self {
        let kind = match error.kind() {
            VolumeErrorKind::NotAuthentic | VolumeErrorKind::Store | VolumeErrorKind::Failed => NbdError::Io,
            VolumeErrorKind::NoSpace => NbdError::NoSpace,
            VolumeErrorKind::ReadOnly => NbdError::NotPermitted,
        };
        Self { error: kind, message: error.to_string(), offset: None }
    }

    /// What the disk says about `range`. A sector that fails may begin before the range does, but the protocol wants
    /// the place of a failure inside its request.
    pub(super) fn of_range(error: &VolumeError, range: ByteRange) -> Self {
        let offset = match error {
            VolumeError::NotAuthentic { sector, .. } => {
                let start = sector.0.saturating_mul(SECTOR_SIZE as u64);
                Some(start.min(range.end().saturating_sub(1)).max(range.offset()))
            }
            _ => None,
        };
        Self { offset, ..Self::of_disk(error) }
    }
}

/// Replies that wait to be sent, in order. Data are not copied: they are named by their place in the batch's buffer.
#[derive(Default)]
pub(super) struct Replies {
    structured: bool,
    /// Everything but data.
    heads: Vec<u8>,
    parts: Vec<Part>,
}

enum Part {
    Heads(Range<usize>),
    Data(Range<usize>),
    /// Data with memory of their own.
    Buffer(AlignedBuf),
}

impl Replies {
    pub(super) fn new(structured: bool) -> Self {
        Self { structured, ..Self::default() }
    }

    /// A request without data was served.
    pub(super) fn done(&mut self, cookie: u64) {
        self.head(|heads| simple(heads, 0, cookie));
    }

    /// A read was served; its bytes are `data` of the buffer that [`send`](Self::send) is given. An empty read has none.
    pub(super) fn read(&mut self, cookie: u64, offset: u64, data: Range<usize>) {
        if !self.structured {
            self.head(|heads| simple(heads, 0, cookie));
        } else if data.is_empty() {
            self.head(|heads| structured(heads, CHUNK_DONE, chunk::NONE, cookie, 0));
        } else {
            return self.chunk(cookie, offset, data, true);
        }
        self.data(data);
    }

    /// As [`read`](Self::read), with memory of its own; not empty.
    pub(super) fn short_read(&mut self, cookie: u64, offset: u64, data: AlignedBuf) {
        let len = data.len();
        match self.structured {
            true => self.data_head(cookie, offset, len, true),
            false => self.head(|heads| simple(heads, 0, cookie)),
        }
        self.parts.push(Part::Buffer(data));
    }

    /// The head of a simple reply whose data follow in pieces: from here on the read must succeed, or the connection
    /// end.
    pub(super) fn promise(&mut self, cookie: u64) {
        self.head(|heads| simple(heads, 0, cookie));
    }

    /// A piece of what [`promise`](Self::promise) promised.
    pub(super) fn data(&mut self, data: Range<usize>) {
        if !data.is_empty() {
            self.parts.push(Part::Data(data));
        }
    }

    /// A piece of a read as a chunk of its own; not empty. Only where structured replies were negotiated.
    pub(super) fn chunk(&mut self, cookie: u64, offset: u64, data: Range<usize>, is_last: bool) {
        self.data_head(cookie, offset, data.len(), is_last);
        self.data(data);
    }

    fn data_head(&mut self, cookie: u64, offset: u64, len: usize, is_last: bool) {
        let flags = if is_last { CHUNK_DONE } else { 0 };
        self.head(|heads| {
            structured(heads, flags, chunk::OFFSET_DATA, cookie, 8 + len);
            heads.extend(offset.to_be_bytes());
        });
    }

    /// An answer to a question about allocation; at least one stretch.
    pub(super) fn extents(&mut self, cookie: u64, extents: &[Extent]) {
        self.head(|heads| {
            structured(heads, CHUNK_DONE, chunk::BLOCK_STATUS, cookie, 4 + 8 * extents.len());
            heads.extend(ALLOCATION_CONTEXT_ID.to_be_bytes());
            for extent in extents {
                heads.extend(extent.len.to_be_bytes());
                heads.extend(extent.state.to_be_bytes());
            }
        });
    }

    /// A request failed.
    pub(super) fn failed(&mut self, cookie: u64, failure: &Failure) {
        let error = failure.error as u32;
        if !self.structured {
            return self.head(|heads| simple(heads, error, cookie));
        }
        let message = &failure.message[..failure.message.floor_char_boundary(MAX_STRING)];
        let (kind, offset_len) = match failure.offset {
            Some(_) => (chunk::ERROR_OFFSET, 8),
            None => (chunk::ERROR, 0),
        };
        self.head(|heads| {
            structured(heads, CHUNK_DONE, kind, cookie, 6 + message.len() + offset_len);
            heads.extend(error.to_be_bytes());
            heads.extend((message.len() as u16).to_be_bytes());
            heads.extend(message.as_bytes());
            if let Some(offset) = failure.offset {
                heads.extend(offset.to_be_bytes());
            }
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Sends everything, in one call where the socket takes it, and starts anew.
    pub(super) fn send(&mut self, socket: &Socket, buffer: &[u8]) -> io::Result<()> {
        let mut slices = Vec::with_capacity(self.parts.len());
        slices.extend(self.parts.iter().map(|part| match part {
            Part::Heads(at) => IoSlice::new(&self.heads[at.clone()]),
            Part::Data(at) => IoSlice::new(&buffer[at.clone()]),
            Part::Buffer(data) => IoSlice::new(data),
        }));
        let sent = socket.send_all(&mut slices);
        self.heads.clear();
        self.parts.clear();
        sent
    }

    fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        write(&mut self.heads);
        match self.parts.last_mut() {
            Some(Part::Heads(last)) if last.end == start => last.end = self.heads.len(),
            _ => self.parts.push(Part::Heads(start..self.heads.len())),
        }
    }
}

fn simple(heads: &mut Vec<u8>, error: u32, cookie: u64) {
    heads.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    heads.extend(error.to_be_bytes());
    heads.extend(cookie.to_be_bytes());
}

fn structured(heads: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, payload: usize) {
    heads.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    heads.extend(flags.to_be_bytes());
    heads.extend(kind.to_be_bytes());
    heads.extend(cookie.to_be_bytes());
    heads.extend((payload as u32).to_be_bytes());
}

/// A stretch in one state, as `base:allocation` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) len: u32,
    pub(super) state: u32,
}

/// The answer about the first `asked` bytes, from what the disk says: neighbours of one state are one stretch, and
/// there are at most `limit` of them and at least one.
pub(super) fn extents(allocations: &[Allocation], asked: u64, limit: usize) -> Vec<Extent> {
    let mut told: Vec<Extent> = Vec::new();
    let mut left = u32::try_from(asked).unwrap_or(u32::MAX);
    for allocation in allocations {
        let len = u32::try_from(allocation.len).unwrap_or(u32::MAX).min(left);
        let state = if allocation.hole { allocation_state::HOLE | allocation_state::ZERO } else { 0 };
        let is_full = told.len() == limit;
        match told.last_mut() {
            _ if len == 0 => continue,
            Some(last) if last.state == state => last.len += len,
            _ if is_full => break,
            _ => told.push(Extent { len, state }),
        }
        left -= len;
    }
    if told.is_empty() {
        // A state of 0, "may hold data", is always true.
        told.push(Extent { len: left, state: 0 });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_state_are_told_as_one_and_never_beyond_what_was_asked() {
        let allocation = |len, hole| Allocation { len, hole };
        let disk = [allocation(4096, false), allocation(4096, false), allocation(0, true), allocation(9000, true)];
        let data = Extent { len: 8192, state: 0 };
        assert_eq!(extents(&disk, 10_000, 9), [data, Extent { len: 1808, state: 3 }]);
        assert_eq!(extents(&disk, 10_000, 1), [data]);
        assert_eq!(extents(&disk, 100, 9), [Extent { len: 100, state: 0 }]);
        assert_eq!(extents(&[], 100, 9), [Extent { len: 100, state: 0 }]);
        assert_eq!(extents(&[allocation(1 << 40, true)], 1 << 40, 9), [Extent { len: u32::MAX, state: 3 }]);
    }

    #[test]
    fn a_failure_is_placed_inside_its_request() {
        let range = ByteRange::checked(5000, 100, 1 << 20).unwrap();
        for (sector, offset) in [(1, 5000), (2, 5099)] {
            let error = VolumeError::NotAuthentic { volume: "v".into(), sector: sealdisk_units::Lba(sector) };
            assert_eq!(Failure::of_range(&error, range).offset, Some(offset));
            assert_eq!(Failure::of_disk(&error).offset, None);
        }
    }
}
