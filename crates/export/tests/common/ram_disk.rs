//! A disk in memory, which exports are tested against.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use sealdisk_export::{Disk, ReadQueue};
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE};
use sealdisk_volume::{Allocation, ReadRequest, Space, VolumeError, WriteRequest};

/// Bytes behind one lock.
const STRIPE: u64 = 1 << 20;

/// A disk that lives as long as the process, with a fault to order.
pub struct RamDisk {
    size: u64,
    read_only: bool,
    far: bool,
    stripes: Vec<RwLock<Stripe>>,
    /// Sectors whose reading fails.
    broken: Mutex<BTreeSet<Lba>>,
    flushes: AtomicU64,
}

struct Stripe {
    bytes: Vec<u8>,
    /// Which sectors hold data.
    written: Vec<bool>,
}

impl RamDisk {
    /// A disk of zeros and holes.
    pub fn new(size: u64) -> Self {
        let stripe = |_| {
            RwLock::new(Stripe {
                bytes: vec![0; STRIPE as usize],
                written: vec![false; (STRIPE / SECTOR_SIZE as u64) as usize],
            })
        };
        Self {
            size,
            read_only: false,
            far: false,
            stripes: (0..size.div_ceil(STRIPE)).map(stripe).collect(),
            broken: Mutex::default(),
            flushes: AtomicU64::new(0),
        }
    }

    /// The same disk, but refusing writes.
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// The same disk, but as if it were on other machines.
    pub fn far(self) -> Self {
        Self { far: true, ..self }
    }

    /// Makes a sector fail authentication from now on.
    pub fn break_sector(&self, sector: Lba) {
        self.broken.lock().unwrap().insert(sector);
    }

    /// How many flushes there were.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// The disk's bytes from `offset` on.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let range = ByteRange::checked(offset, len as u64, self.size).unwrap();
        self.read(&mut [ReadRequest::new(range, &mut bytes)]);
        bytes
    }

    /// The range stripe by stripe: which stripe, where in it, where in the request.
    fn parts(range: ByteRange) -> impl Iterator<Item = (usize, std::ops::Range<usize>, std::ops::Range<usize>)> {
        (range.offset() / STRIPE..range.end().div_ceil(STRIPE)).map(move |index| {
            let start = range.offset().max(index * STRIPE);
            let end = range.end().min((index + 1) * STRIPE);
            let in_stripe = (start - index * STRIPE) as usize..(end - index * STRIPE) as usize;
            let in_request = (start - range.offset()) as usize..(end - range.offset()) as usize;
            (index as usize, in_stripe, in_request)
        })
    }

    fn read_one(&self, range: ByteRange, buf: &mut [u8]) -> Result<(), VolumeError> {
        assert_eq!(range.len(), buf.len() as u64);
        let sectors = range.touched_sectors();
        if let Some(&sector) = self.broken.lock().unwrap().range(sectors.first()..sectors.end()).next() {
            return Err(VolumeError::NotAuthentic { volume: "ram".into(), sector });
        }
        for (index, in_stripe, in_request) in Self::parts(range) {
            buf[in_request].copy_from_slice(&self.stripes[index].read().unwrap().bytes[in_stripe]);
        }
        Ok(())
    }

    fn write_one(&self, range: ByteRange, buf: &[u8]) -> Result<(), VolumeError> {
        assert_eq!(range.len(), buf.len() as u64);
        if self.read_only {
            return Err(VolumeError::ReadOnly { volume: "ram".into() });
        }
        for (index, in_stripe, in_request) in Self::parts(range) {
            let mut stripe = self.stripes[index].write().unwrap();
            let sectors = in_stripe.start / SECTOR_SIZE..in_stripe.end.div_ceil(SECTOR_SIZE);
            stripe.written[sectors].fill(true);
            stripe.bytes[in_stripe].copy_from_slice(&buf[in_request]);
        }
        Ok(())
    }
}

impl Disk for RamDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn is_far(&self) -> bool {
        self.far
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        for request in batch {
            request.result = self.read_one(request.range, request.buf);
        }
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        None
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        for request in batch {
            request.result = self.write_one(request.range, &request.data);
        }
    }

    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        if self.read_only {
            return Err(VolumeError::ReadOnly { volume: "ram".into() });
        }
        for (index, in_stripe, _) in Self::parts(range) {
            let mut stripe = self.stripes[index].write().unwrap();
            let whole = in_stripe.start.div_ceil(SECTOR_SIZE)..in_stripe.end / SECTOR_SIZE;
            let touched = in_stripe.start / SECTOR_SIZE..in_stripe.end.div_ceil(SECTOR_SIZE);
            stripe.bytes[in_stripe].fill(0);
            match space {
                Space::Free if !whole.is_empty() => stripe.written[whole].fill(false),
                Space::Free => {}
                Space::Keep => stripe.written[touched].fill(true),
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        let per_stripe = STRIPE / SECTOR_SIZE as u64;
        Ok(range
            .pieces()
            .map(|piece| {
                let stripe = self.stripes[(piece.lba.0 / per_stripe) as usize].read().unwrap();
                let written = stripe.written[(piece.lba.0 % per_stripe) as usize];
                Allocation { len: piece.in_sector.len() as u64, hole: !written }
            })
            .collect())
    }
}
