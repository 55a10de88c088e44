//! A disk in memory that remembers what was asked of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealdisk_export::{Disk, ReadQueue};
use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, ReadRequest, Space, VolumeError, WriteRequest};

use crate::ram_disk::RamDisk;

/// A RAM disk under observation.
pub struct ObservedDisk {
    pub ram: RamDisk,
    fail_flushes: AtomicBool,
    panic_in_flush: AtomicBool,
    zeroed: Mutex<Vec<(ByteRange, Space)>>,
    largest_batch: AtomicU64,
}

impl ObservedDisk {
    pub fn new(ram: RamDisk) -> Self {
        Self {
            ram,
            fail_flushes: AtomicBool::new(false),
            panic_in_flush: AtomicBool::new(false),
            zeroed: Mutex::default(),
            largest_batch: AtomicU64::new(0),
        }
    }

    /// Makes flushes fail, or succeed again.
    pub fn fail_flushes(&self, fail: bool) {
        self.fail_flushes.store(fail, Ordering::SeqCst);
    }

    /// Makes the next flush panic.
    pub fn panic_in_flush(&self) {
        self.panic_in_flush.store(true, Ordering::SeqCst);
    }

    /// The ranges that were zeroed, in order.
    pub fn zeroed(&self) -> Vec<(ByteRange, Space)> {
        self.zeroed.lock().unwrap().clone()
    }

    /// Requests in the largest batch so far.
    pub fn largest_batch(&self) -> u64 {
        self.largest_batch.load(Ordering::SeqCst)
    }
}

impl Disk for ObservedDisk {
    fn size(&self) -> u64 {
        self.ram.size()
    }

    fn is_read_only(&self) -> bool {
        self.ram.is_read_only()
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        self.largest_batch.fetch_max(batch.len() as u64, Ordering::SeqCst);
        self.ram.read(batch);
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        None
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        self.largest_batch.fetch_max(batch.len() as u64, Ordering::SeqCst);
        self.ram.write(batch);
    }

    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        self.zeroed.lock().unwrap().push((range, space));
        self.ram.zero(range, space)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.ram.flush()?;
        assert!(!self.panic_in_flush.swap(false, Ordering::SeqCst), "the test said so");
        if self.fail_flushes.load(Ordering::SeqCst) {
            return Err(VolumeError::Failed { volume: "ram".into(), reason: "the test said so".into() });
        }
        Ok(())
    }

    /// A few stretches at a time, so that callers must ask again.
    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        let mut stretches = self.ram.allocation(range)?;
        stretches.truncate(1000);
        Ok(stretches)
    }
}
