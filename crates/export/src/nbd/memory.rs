//! Memory for requests in progress, shared by all clients of an export.
//!
//! Every client has one worker and may start one read, whatever the others do; beyond that all of them draw from one
//! purse, so that many clients take no more memory than a few.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sealdisk_store::AlignedBuf;

use super::batch::BATCH_BYTES;

/// Bytes that a worker has of its own where the disk [is far](crate::Disk::is_far).
const FAR_OWN_BYTES: usize = 64 << 10;
/// Bytes for such workers beside those that every client has: for 32 of them.
const FAR_WORKERS_BYTES: usize = 32 * FAR_OWN_BYTES;
/// Most bytes that are lent at once: an object of Ceph's, mostly. To write one in four pieces costs the cluster about a
/// third more of its time than to write it as a whole.
const MOST_LENT: usize = 4 << 20;
/// How long a request waits for memory before it goes in short pieces: whoever has it may be waiting for a client.
const PATIENCE: Duration = Duration::from_millis(250);

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
    /// Bytes that may be lent.
    for_loans: usize,
    loans: Mutex<Loans>,
    given_back: Condvar,
}

#[derive(Default)]
struct Loans {
    lent: usize,
    /// For the next one of the same size.
    free: Vec<AlignedBuf>,
}

impl Memory {
    /// `bytes` beside what every client has. Of a disk at hand, half is for workers, half for short reads. Requests of a disk
    /// that [is far](crate::Disk::is_far) have a worker each, with little memory; those that need more are lent it.
    pub(super) fn new(bytes: usize, far: bool) -> Arc<Self> {
        let (of_worker, for_workers, for_reads, for_loans) = match far {
            false => (BATCH_BYTES, bytes / 2, bytes / 2, 0),
            true => (FAR_OWN_BYTES, FAR_WORKERS_BYTES, 0, bytes.saturating_sub(FAR_WORKERS_BYTES)),
        };
        Arc::new(Self {
            of_worker,
            for_workers,
            workers: AtomicUsize::new(0),
            for_reads,
            reads: AtomicUsize::new(0),
            for_loans,
            loans: Mutex::default(),
            given_back: Condvar::new(),
        })
    }

    /// Bytes that every worker has of its own.
    pub(super) fn of_worker(&self) -> usize {
        self.of_worker
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

    /// Lends memory for `len` bytes, or for as many as are lent at most. If there is not enough, waits for some, but not for
    /// ever.
    pub(super) fn lend(self: &Arc<Self>, len: usize) -> Option<Loan> {
        let size = len.min(MOST_LENT).next_power_of_two();
        if size > self.for_loans {
            return None;
        }
        let short = |loans: &mut Loans| loans.lent + size > self.for_loans;
        let waited = self.given_back.wait_timeout_while(self.loans(), PATIENCE, short);
        let (mut loans, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if short(&mut loans) {
            return None;
        }
        loans.lent += size;
        let same = loans.free.iter().position(|free| free.len() == size);
        let free = same.map(|index| loans.free.swap_remove(index));
        let mut superfluous = Vec::new();
        while loans.lent + loans.free.iter().map(|free| free.len()).sum::<usize>() > self.for_loans {
            superfluous.extend(loans.free.pop());
        }
        drop(loans);
        drop(superfluous);
        Some(Loan { bytes: Some(free.unwrap_or_else(|| AlignedBuf::new(size))), of: Arc::clone(self) })
    }

    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that was lent; given back when dropped.
pub(super) struct Loan {
    /// Until it is given back.
    bytes: Option<AlignedBuf>,
    of: Arc<Memory>,
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let mut loans = self.of.loans();
        loans.lent -= bytes.len();
        loans.free.push(bytes);
        drop(loans);
        self.of.given_back.notify_all();
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
        let memory = Memory::new(6 * BATCH_BYTES, false);
        let rooms: Vec<_> = std::iter::from_fn(|| memory.worker()).collect();
        assert_eq!(rooms.len(), 3);
        assert!(memory.worker().is_none());
        drop(rooms);
        assert!(memory.worker().is_some());
    }

    #[test]
    fn what_is_lent_is_waited_for_but_not_for_ever() {
        assert!(Memory::new(10 * BATCH_BYTES, false).lend(1).is_none());
        let memory = Memory::new(2 * MOST_LENT + FAR_WORKERS_BYTES, true);
        let whole = memory.lend(2 * MOST_LENT).unwrap();
        assert_eq!(whole.len(), MOST_LENT);
        let half = memory.lend(MOST_LENT / 2 - 1).unwrap();
        assert_eq!(half.len(), MOST_LENT / 2);
        assert!(memory.lend(MOST_LENT).is_none());
        let waiting = std::thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                std::iter::repeat_with(|| memory.lend(MOST_LENT)).flatten().next().map(|loan| loan.as_ptr() as usize)
            }
        });
        let place = whole.as_ptr() as usize;
        drop(whole);
        assert_eq!(waiting.join().unwrap(), Some(place));
    }

    #[test]
    fn what_was_given_back_makes_room_for_other_sizes() {
        let memory = Memory::new(MOST_LENT + FAR_WORKERS_BYTES, true);
        for size in [MOST_LENT, MOST_LENT / 4, MOST_LENT / 2, MOST_LENT] {
            let loans: Vec<_> = (0..MOST_LENT / size).map(|_| memory.lend(size).unwrap()).collect();
            assert_eq!(memory.loans().lent, MOST_LENT);
            assert!(memory.loans().free.is_empty());
            drop(loans);
            assert_eq!(memory.loans().lent, 0);
        }
    }

    #[test]
    fn whoever_holds_nothing_may_read() {
        let memory = Memory::new(2 * 8192, false);
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
