//! A disk one of whose operations never ends.

use std::path::PathBuf;
use std::time::Duration;

use sealdisk_export::{Disk, ReadQueue};
use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, ReadRequest, Space, VolumeError, WriteRequest};

use crate::ram_disk::RamDisk;

/// An operation that can hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening the file: whoever serves it asks the disk whether it may be written.
    Open,
    Write,
}

impl Operation {
    /// The name under which a test tells another process of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Write => "write",
        }
    }

    pub fn called(name: &str) -> Option<Self> {
        [Self::Open, Self::Write].into_iter().find(|operation| operation.name() == name)
    }
}

/// A RAM disk that never ends this operation, and then makes the file `note`.
pub struct HangingDisk {
    pub ram: RamDisk,
    pub operation: Operation,
    pub note: PathBuf,
}

impl HangingDisk {
    fn hang(&self) -> ! {
        std::fs::write(&self.note, "").unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

impl Disk for HangingDisk {
    fn size(&self) -> u64 {
        self.ram.size()
    }

    fn is_read_only(&self) -> bool {
        // Who makes the mount asks, too.
        let serving = std::thread::current().name().is_some_and(|name| name.starts_with("fuse-"));
        if self.operation == Operation::Open && serving {
            self.hang();
        }
        self.ram.is_read_only()
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        self.ram.read(batch);
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        None
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        if self.operation == Operation::Write {
            self.hang();
        }
        self.ram.write(batch);
    }

    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        self.ram.zero(range, space)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.ram.flush()
    }

    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        self.ram.allocation(range)
    }
}
