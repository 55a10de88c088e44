//! What clients ask of a volume, in batches, so that the store below can do many things at once.

use sealdisk_units::ByteRange;

use crate::VolumeError;

/// One read of a batch.
pub struct ReadRequest<'a> {
    /// Which bytes of the disk.
    pub range: ByteRange,
    /// Where they go; exactly `range.len()` bytes. Unspecified after an error.
    pub buf: &'a mut [u8],
    /// How it went; set by whoever serves the batch.
    pub result: Result<(), VolumeError>,
}

impl<'a> ReadRequest<'a> {
    /// A request to fill `buf` from `range`.
    pub fn new(range: ByteRange, buf: &'a mut [u8]) -> Self {
        debug_assert_eq!(range.len(), buf.len() as u64);
        Self { range, buf, result: Ok(()) }
    }
}

/// One write of a batch.
pub struct WriteRequest<'a> {
    /// Which bytes of the disk.
    pub range: ByteRange,
    /// The bytes; exactly `range.len()` of them.
    pub buf: &'a [u8],
    /// How it went; set by whoever serves the batch.
    pub result: Result<(), VolumeError>,
}

impl<'a> WriteRequest<'a> {
    /// A request to write `buf` to `range`.
    pub fn new(range: ByteRange, buf: &'a [u8]) -> Self {
        debug_assert_eq!(range.len(), buf.len() as u64);
        Self { range, buf, result: Ok(()) }
    }
}

/// Whether zeroed space is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Free the space where the store can.
    Free,
    /// Leave room for later writes.
    Keep,
}

/// A stretch of the disk as `base:allocation` (NBD) or `SEEK_HOLE` describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes of the stretch.
    pub len: u64,
    /// Whether it takes no space and is known to read as zeros.
    pub hole: bool,
}
