//! Reads that are started one after the other and finish in any order, without a thread for each.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::{AlignedBuf, ReadExtent, Store, StoreError};

/// Reads of one store, for the thread that made the queue. When it is dropped, it waits for those in flight: they write to
/// memory that is its own until then.
pub trait ReadQueue {
    /// Notes that `buf.len()` bytes are to be read from `offset` on. Multiples of [`PAGE_SIZE`](crate::PAGE_SIZE) are
    /// served fastest. `token` comes back with the outcome.
    fn start(&mut self, token: u64, offset: u64, buf: AlignedBuf);

    /// Sets all reads that were noted going, at once.
    fn submit(&mut self);

    /// As [`submit`](Self::submit); then waits until some read has finished, or until `also`, if given, has something to be read or is at its end. Returns
    /// whether the latter is the case. Returns at once if a finished read has not been asked for yet; with neither a
    /// read in flight nor `also` there is nothing to wait for.
    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool;

    /// A read that has finished and has not been asked for yet.
    fn finished(&mut self) -> Option<FinishedRead>;
}

/// How a read went.
pub struct FinishedRead {
    /// The read's name.
    pub token: u64,
    /// Its memory. Unspecified after an error.
    pub buf: AlignedBuf,
    /// Whether all bytes were read.
    pub result: Result<(), StoreError>,
}

/// A queue for stores that cannot read in the background: each read is carried out when it is waited for, the last one
/// first. For tests, whose stores are in memory.
pub struct DeferredReads<S: ?Sized> {
    store: Arc<S>,
    waiting: Vec<(u64, u64, AlignedBuf)>,
    finished: VecDeque<FinishedRead>,
}

impl<S: Store + ?Sized> DeferredReads<S> {
    /// A queue without reads.
    pub fn new(store: Arc<S>) -> Self {
        Self { store, waiting: Vec::new(), finished: VecDeque::new() }
    }
}

impl<S: Store + ?Sized> ReadQueue for DeferredReads<S> {
    fn start(&mut self, token: u64, offset: u64, buf: AlignedBuf) {
        self.waiting.push((token, offset, buf));
    }

    fn submit(&mut self) {}

    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        if self.finished.is_empty()
            && let Some((token, offset, mut buf)) = self.waiting.pop()
        {
            let result = self.store.read(&mut [ReadExtent { offset, buf: &mut buf }]);
            self.finished.push_back(FinishedRead { token, buf, result });
        }
        // A caller who asks may find that there is nothing yet.
        also.is_some()
    }

    fn finished(&mut self) -> Option<FinishedRead> {
        self.finished.pop_front()
    }
}
