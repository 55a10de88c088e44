//! A store to look at without taking the volume's lock: `info` must neither wait for an attached volume nor keep it from
//! being attached.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use sealdisk_store::{Operation, ReadExtent, Store, StoreError, WriteExtent};
use sealdisk_units::StoreRange;

/// A file or block device that is only read. What it shows of an attached volume may be out of date.
pub struct UnlockedStore {
    file: File,
}

impl UnlockedStore {
    /// Opens the file or device.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        File::open(path).map(|file| Self { file }).map_err(|e| StoreError::new(Operation::Open, e))
    }
}

fn refused(operation: Operation) -> Result<(), StoreError> {
    Err(StoreError::new(operation, io::ErrorKind::ReadOnlyFilesystem))
}

impl Store for UnlockedStore {
    fn size(&self) -> Result<u64, StoreError> {
        // The only way to learn a block device's size that is also a file's.
        (&self.file).seek(SeekFrom::End(0)).map_err(|e| StoreError::new(Operation::Resize, e))
    }

    fn resize(&self, _size: u64) -> Result<(), StoreError> {
        refused(Operation::Resize)
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        extents.iter_mut().try_for_each(|extent| {
            let operation = Operation::Read(extent.range());
            self.file.read_exact_at(extent.buf, extent.offset).map_err(|e| StoreError::new(operation, e))
        })
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        extents.iter().try_for_each(|extent| refused(Operation::Write(extent.range())))
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        refused(Operation::Zero(range))
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_atomicity(&self) -> u32 {
        512
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        let failed = |e: io::Error| StoreError::new(Operation::Read(range), e);
        if self.file.metadata().map_err(failed)?.file_type().is_block_device() {
            return Ok(true);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(range.offset)) {
            Ok(data) => Ok(data < range.end()),
            Err(rustix::io::Errno::NXIO) => Ok(false),
            Err(_) => Ok(true),
        }
    }
}
