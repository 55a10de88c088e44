//! What an export offers: a disk, whatever lies beneath.

use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, ReadRequest, Space, Volume, VolumeError, WriteRequest};

/// A disk with a volatile write cache: what was written survives a crash once a [`flush`](Self::flush) that began
/// after the write had returned is `Ok`.
///
/// Requests of any alignment down to one byte are served. Requests that overlap in time may take effect in either
/// order, sector by sector. Every method may be called from many threads at once, and a flush covers writes that were
/// made on other threads (so NBD's multi-conn is safe).
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool;

    /// Serves a batch of reads, as much as possible at once; each request's `result` says how it went.
    fn read(&self, batch: &mut [ReadRequest<'_>]);

    /// Serves a batch of writes, as much as possible at once; each request's `result` says how it went.
    fn write(&self, batch: &mut [WriteRequest<'_>]);

    /// Makes the range read as zeros.
    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError>;

    /// Makes everything durable whose write had returned before this call.
    fn flush(&self) -> Result<(), VolumeError>;

    /// What the range looks like, from its start on, in stretches that together cover at least its first byte and at
    /// most the range.
    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError>;
}

impl Disk for Volume {
    fn size(&self) -> u64 {
        Self::size(self)
    }

    fn is_read_only(&self) -> bool {
        Self::is_read_only(self)
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        Self::read(self, batch);
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        Self::write(self, batch);
    }

    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        Self::zero(self, range, space)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Self::flush(self)
    }

    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        Self::allocation(self, range)
    }
}
