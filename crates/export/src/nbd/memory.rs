//! Memory for requests in progress, shared by all clients of an export.
//!
//! Every client has one worker and may start one read, whatever the others do; beyond that all of them draw from one
//! purse, so that many clients take no more memory than a few.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::loans::Loans;
use super::protocol::MAX_CHUNK;
use crate::Disk;

/// Most bytes of data in one batch for a disk at hand, and most of a reply. Longer requests are served in pieces.
pub(super) const BATCH_BYTES: usize = MAX_CHUNK as usize;
/// Bytes that a worker has of its own where the disk [is far](crate::Disk::is_far).
const FAR_OWN_BYTES: usize = 64 << 10;
/// Bytes for such workers beside those that every client has: for 32 of them.
const FAR_WORKERS_BYTES: usize = 32 * FAR_OWN_BYTES;

/// What all clients draw from.
pub(super) struct Memory {
    /// Bytes that every worker has of its own.
    of_worker: usize,
    /// Bytes that further workers may take.
    for_workers: usize,
    workers: AtomicUsize,
    /// Bytes that short reads may take.
    for_reads: usize,
    reads: AtomicUsize,
    loans: Arc<Loans>,
}

impl Memory {
    /// `bytes` beside what every client has. Of a disk at hand, half is for workers, half for short reads. Requests of a disk
    /// that [is far](Disk::is_far) have a worker each, with little memory; those that need more are lent it.
    pub(super) fn new(bytes: usize, disk: &dyn Disk) -> Arc<Self> {
        let (of_worker, for_workers, for_reads, for_loans) = match disk.is_far() {
            false => (BATCH_BYTES, bytes / 2, bytes / 2, 0),
            true => (FAR_OWN_BYTES, FAR_WORKERS_BYTES, 0, bytes / disk.copies()),
        };
        Self::divided(of_worker, for_workers, for_reads, for_loans)
    }

    fn divided(of_worker: usize, for_workers: usize, for_reads: usize, for_loans: usize) -> Arc<Self> {
        Arc::new(Self {
            of_worker,
            for_workers,
            workers: AtomicUsize::new(0),
            for_reads,
            reads: AtomicUsize::new(0),
            loans: Loans::new(for_loans),
        })
    }

    /// Bytes that every worker has of its own.
    pub(super) fn of_worker(&self) -> usize {
        self.of_worker
    }

    /// What is lent to long requests.
    pub(super) fn loans(&self) -> &Arc<Loans> {
        &self.loans
    }

    /// Room for one more worker, as long as the value lives.
    pub(super) fn worker(self: &Arc<Self>) -> Option<WorkerRoom> {
        let room = WorkerRoom(Arc::clone(self));
        // If there is none, what was counted here is given back by `room`.
        let before = self.workers.fetch_add(self.of_worker, Ordering::Relaxed);
        (before + self.of_worker <= self.for_workers).then_some(room)
    }

    /// The account of one worker's short reads.
    pub(super) fn short_reads(self: &Arc<Self>) -> ReadRoom {
        ReadRoom { memory: Arc::clone(self), held: 0 }
    }
}

/// Room for a worker; given back when dropped.
pub(super) struct WorkerRoom(Arc<Memory>);

impl Drop for WorkerRoom {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(self.0.of_worker, Ordering::Relaxed);
    }
}

/// What one worker's short reads hold; given back when dropped.
pub(super) struct ReadRoom {
    memory: Arc<Memory>,
    held: usize,
}

impl ReadRoom {
    pub(super) fn take(&mut self, bytes: usize) {
        self.held += bytes;
        self.memory.reads.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.held -= bytes;
        self.memory.reads.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether no more should be started. Whoever holds nothing may always start some.
    pub(super) fn is_exhausted(&self) -> bool {
        self.held > 0 && self.memory.reads.load(Ordering::Relaxed) >= self.memory.for_reads
    }
}

impl Drop for ReadRoom {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_as_many_as_there_is_room_for() {
        let memory = Memory::divided(BATCH_BYTES, 3 * BATCH_BYTES, 0, 0);
        let rooms: Vec<_> = std::iter::from_fn(|| memory.worker()).collect();
        assert_eq!(rooms.len(), 3);
        assert!(memory.worker().is_none());
        drop(rooms);
        assert!(memory.worker().is_some());
    }

    #[test]
    fn whoever_holds_nothing_may_read() {
        let memory = Memory::divided(0, 0, 8192, 0);
        let (mut greedy, mut modest) = (memory.short_reads(), memory.short_reads());
        greedy.take(4096);
        assert!(!greedy.is_exhausted());
        greedy.take(4096);
        assert!(greedy.is_exhausted() && !modest.is_exhausted());
        modest.take(4096);
        assert!(modest.is_exhausted());
        drop(greedy);
        assert!(!modest.is_exhausted());
        modest.give_back(4096);
        assert_eq!(memory.reads.load(Ordering::Relaxed), 0);
    }
}
