//! The contract that every store keeps.

use std::sync::Arc;

use sealdisk_units::StoreRange;

use crate::{ObjectStore, ReadQueue, StoreError};

/// Bytes to be read from a store into `buf`.
pub struct ReadExtent<'a> {
    /// First byte in the store.
    pub offset: u64,
    /// Where the bytes go; its length says how many are read.
    pub buf: &'a mut [u8],
}

impl ReadExtent<'_> {
    /// The bytes of the store that are read.
    pub fn range(&self) -> StoreRange {
        StoreRange::new(self.offset, self.buf.len() as u64)
    }
}

/// Bytes to be written to a store from `buf`.
#[derive(Clone, Copy)]
pub struct WriteExtent<'a> {
    /// First byte in the store.
    pub offset: u64,
    /// The bytes.
    pub buf: &'a [u8],
}

impl WriteExtent<'_> {
    /// The bytes of the store that are written.
    pub fn range(&self) -> StoreRange {
        StoreRange::new(self.offset, self.buf.len() as u64)
    }
}

/// Bytes that outlive the process.
///
/// Obligations of an implementation:
///
/// * Bytes that were never written read as zero up to [`size`](Self::size), and growing adds zeros.
/// * A read or write that does not lie inside the size is an error; it never extends the store, and is never short: all
///   bytes were transferred or an error is returned.
/// * When [`write`](Self::write) returns `Ok`, a later [`read`](Self::read) sees the bytes. Nothing is promised about
///   their surviving a crash, nor about the order in which they become durable, until a [`sync`](Self::sync) that began
///   after the write had returned is `Ok`. Until then, a crash may leave any subset of the writes, and of one write any
///   subset of its units of [`write_atomicity`](Self::write_atomicity) bytes.
/// * After a failed [`sync`](Self::sync) nothing that was written since the last good one may be assumed durable, and
///   no later sync may be trusted to have made it so. (Linux marks the pages clean: see the fsync errors that PostgreSQL
///   met in 2018.) Callers stop writing.
/// * Any offset, length and buffer address is served; multiples of 4096 are served fastest.
/// * All methods may be called from many threads at once. Overlapping concurrent writes leave either's bytes.
pub trait Store: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> Result<u64, StoreError>;

    /// Grows (with zeros) or shrinks the store to `size` bytes. A block device cannot, and says so.
    fn resize(&self, size: u64) -> Result<(), StoreError>;

    /// Reads every extent, in any order and as much as possible at once. On an error the buffers' contents are
    /// unspecified and the error names one of the extents that failed.
    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError>;

    /// Writes every extent, in any order and as much as possible at once. On an error any part may have been written.
    /// No two extents of one call overlap.
    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError>;

    /// Makes the range read as zeros and gives its space back where the store can. Durable after a sync, like a write.
    fn zero(&self, range: StoreRange) -> Result<(), StoreError>;

    /// Sees to it that later writes to the range find room, where the store can; nothing of its content changes.
    fn reserve(&self, _range: StoreRange) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes everything durable whose write had returned before this call.
    fn sync(&self) -> Result<(), StoreError>;

    /// The largest naturally aligned power-of-two unit that a crash never tears: 512 bytes or more.
    fn write_atomicity(&self) -> u32;

    /// A queue of reads for the calling thread, where the store can read without a thread that waits for each.
    fn read_queue(self: Arc<Self>) -> Option<Box<dyn ReadQueue>> {
        None
    }

    /// This store as one of objects, where it is one.
    fn objects(&self) -> Option<&dyn ObjectStore> {
        None
    }

    /// Bytes of an object, where the store consists of objects of which each vanishes as a whole when it is zeroed.
    fn object_size(&self) -> Option<u64> {
        None
    }

    /// Whether any byte of the range takes up space. Where the store cannot tell, `true`.
    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError>;
}
