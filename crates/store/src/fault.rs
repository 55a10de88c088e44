//! A store that remembers everything done to it, can fail on demand, and can say what a crash might have left.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealdisk_units::StoreRange;

use crate::memory::{Image, MemoryStore};
use crate::{DeferredReads, Operation, ReadExtent, ReadQueue, Store, StoreError, WriteExtent};

/// One thing that was done to the store, in the order in which it returned.
#[derive(Clone)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A range was made zero.
    Zero(StoreRange),
    /// The size was changed.
    Resize(u64),
    /// Everything before became durable.
    Sync,
}

/// Everything that was done since recording began.
#[derive(Clone, Default)]
pub struct History {
    /// The store when recording began, all of it durable.
    pub start: Image,
    /// What was done, in order.
    pub events: Vec<Event>,
}

/// Which operation fails next, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Every read that touches the range.
    Read(StoreRange),
    /// Every write, with this errno, after so many more have succeeded.
    WritesAfter(u64, i32),
    /// Every sync, after so many more have succeeded.
    SyncsAfter(u64),
}

/// The memory store with a memory of its own.
pub struct FaultStore {
    live: MemoryStore,
    history: Mutex<History>,
    faults: Mutex<Vec<Fault>>,
    writes: AtomicU64,
    syncs: AtomicU64,
}

impl FaultStore {
    /// Begins with `image`, all of it durable, and claims not to tear units of `write_atomicity` bytes.
    pub fn new(image: Image, write_atomicity: u32) -> Self {
        Self {
            history: Mutex::new(History { start: image.clone(), events: Vec::new() }),
            live: MemoryStore::from_image(image, write_atomicity),
            faults: Mutex::default(),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    /// What was done so far.
    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }

    /// How many events there are so far: a position in the history.
    pub fn event_count(&self) -> usize {
        lock(&self.history).events.len()
    }

    /// The bytes as a running system sees them.
    pub fn image(&self) -> Image {
        self.live.image()
    }

    /// From now on, fail like this too. Counts begin now.
    pub fn inject(&self, fault: Fault) {
        let fault = match fault {
            Fault::WritesAfter(n, errno) => Fault::WritesAfter(self.writes.load(Ordering::SeqCst) + n, errno),
            Fault::SyncsAfter(n) => Fault::SyncsAfter(self.syncs.load(Ordering::SeqCst) + n),
            read @ Fault::Read(_) => read,
        };
        lock(&self.faults).push(fault);
    }

    /// Everything works again.
    pub fn heal(&self) {
        lock(&self.faults).clear();
    }

    fn fails(&self, operation: Operation) -> Result<(), StoreError> {
        let (writes, syncs) = (self.writes.load(Ordering::SeqCst), self.syncs.load(Ordering::SeqCst));
        for fault in lock(&self.faults).iter() {
            let errno = match (*fault, operation) {
                (Fault::Read(bad), Operation::Read(range)) if bad.overlaps(&range) => libc::EIO,
                (Fault::WritesAfter(n, errno), Operation::Write(_) | Operation::Zero(_)) if writes >= n => errno,
                (Fault::SyncsAfter(n), Operation::Sync) if syncs >= n => libc::EIO,
                _ => continue,
            };
            return Err(StoreError::new(operation, io::Error::from_raw_os_error(errno)));
        }
        Ok(())
    }

    fn record(&self, event: Event) {
        lock(&self.history).events.push(event);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for FaultStore {
    fn size(&self) -> Result<u64, StoreError> {
        self.live.size()
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        self.live.resize(size)?;
        self.record(Event::Resize(size));
        Ok(())
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        extents.iter().try_for_each(|extent| self.fails(Operation::Read(extent.range())))?;
        self.live.read(extents)
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        for extent in extents {
            self.fails(Operation::Write(extent.range()))?;
            self.writes.fetch_add(1, Ordering::SeqCst);
            self.live.write(std::slice::from_ref(extent))?;
            self.record(Event::Write { offset: extent.offset, bytes: extent.buf.to_vec() });
        }
        Ok(())
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        self.fails(Operation::Zero(range))?;
        self.live.zero(range)?;
        self.record(Event::Zero(range));
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.fails(Operation::Sync)?;
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.record(Event::Sync);
        Ok(())
    }

    fn write_atomicity(&self) -> u32 {
        self.live.write_atomicity()
    }

    fn read_queue(self: Arc<Self>) -> Option<Box<dyn ReadQueue>> {
        Some(Box::new(DeferredReads::new(self)))
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        self.live.is_allocated(range)
    }
}
