//! What an export offers: a disk, whatever lies beneath.

use std::os::fd::BorrowedFd;

use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, FinishedRead, ReadRequest, Space, Volume, VolumeError, WriteRequest};

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

    /// A queue of short reads for the calling thread, where the disk can read without a thread that waits for each.
    fn read_queue(&self) -> Option<Box<dyn ReadQueue>>;

    /// Whether requests mostly wait for other machines. Then each is better off with a thread of its own than in a batch,
    /// which ends with its last request.
    fn is_far(&self) -> bool {
        false
    }

    /// How often the data of a request are in memory while it is on its way to other machines and back.
    fn copies(&self) -> usize {
        1
    }

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

/// Short reads of a disk that are started one after the other and finish in any order, on the thread that made the queue.
/// As a batch of reads has one worker and one end, it is good for long ones; with many short ones the disk would stand
/// idle while the last of them are on their way.
pub trait ReadQueue {
    /// Starts a read that [is short](is_short). `token` comes back with the outcome.
    fn start(&mut self, token: u64, range: ByteRange);

    /// Reads that were started and have not been given back.
    fn in_flight(&self) -> usize;

    /// Waits until a read has finished, or until `also`, if given, has something to be read or is at its end. Returns
    /// whether the latter is the case.
    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool;

    /// A read that has finished and has not been asked for yet.
    fn finished(&mut self) -> Option<FinishedRead>;
}

/// Whether a read is of the kind that a [`ReadQueue`] is for.
pub fn is_short(range: ByteRange) -> bool {
    sealdisk_volume::ReadQueue::takes(range)
}

impl ReadQueue for sealdisk_volume::ReadQueue {
    fn start(&mut self, token: u64, range: ByteRange) {
        Self::start(self, token, range);
    }

    fn in_flight(&self) -> usize {
        Self::in_flight(self)
    }

    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        Self::wait(self, also)
    }

    fn finished(&mut self) -> Option<FinishedRead> {
        Self::finished(self)
    }
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

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        Some(Box::new(Self::read_queue(self)?))
    }

    fn is_far(&self) -> bool {
        Self::is_far(self)
    }

    fn copies(&self) -> usize {
        Self::copies(self)
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
