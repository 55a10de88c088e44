//! A file or block device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fdatasync, seek};
use sealdisk_units::StoreRange;

use crate::device::{lock_whole_file, write_atomicity};
use crate::memory::check_inside;
use crate::transfer::{Direction, Gather, Transfer};
use crate::uring::Rings;
use crate::uring_reads::UringReads;
use crate::{Operation, PAGE_SIZE, ReadExtent, ReadQueue, Store, StoreError, WriteExtent};

/// Zeros that are written at once where a file system cannot make holes.
const ZEROS_AT_ONCE: usize = 1 << 20;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading, together with other readers.
    ReadOnly,
    /// For reading and writing, alone.
    ReadWrite,
}

/// A regular file or a block device, read and written past the page cache where the file system allows it.
///
/// Holds a lock for as long as it lives: a second writer on the same machine is refused. (An open-file-description lock,
/// because libcryptsetup takes `flock` locks on the same file and must not wait for an attached volume.)
pub struct FileStore {
    path: PathBuf,
    /// Through the page cache: for what is not aligned.
    buffered: File,
    /// Past the page cache, where the file system can.
    direct: Option<File>,
    rings: Rings,
    is_device: bool,
    write_atomicity: u32,
}

impl FileStore {
    /// Opens an existing file or block device and locks it. `ResourceBusy` when somebody else has it.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, StoreError> {
        Self::open_inner(path, mode).map_err(|e| StoreError::new(Operation::Open, e))
    }

    fn open_inner(path: &Path, mode: OpenMode) -> io::Result<Self> {
        let writable = mode == OpenMode::ReadWrite;
        let metadata = std::fs::metadata(path)?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"));
        }
        // On a block device O_EXCL refuses what the kernel itself uses: a mounted file system, an active mapping.
        let exclusive = if kind.is_block_device() && writable { libc::O_EXCL } else { 0 };
        let open = |flags| OpenOptions::new().read(true).write(writable).custom_flags(flags).open(path);
        let buffered = open(exclusive)?;
        lock_whole_file(buffered.as_fd(), writable)?;
        let direct = open(libc::O_DIRECT).ok();
        Ok(Self {
            path: path.to_owned(),
            write_atomicity: write_atomicity(&metadata, buffered.as_fd()),
            is_device: kind.is_block_device(),
            rings: Rings::default(),
            buffered,
            direct,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that suits a transfer.
    pub(crate) fn descriptor(&self, offset: u64, start: *const u8, len: usize) -> &File {
        let aligned = (offset as usize | start as usize | len).is_multiple_of(PAGE_SIZE);
        match &self.direct {
            Some(direct) if aligned => direct,
            _ => &self.buffered,
        }
    }

    /// Carries transfers out, all at once. An error comes with the transfer that failed.
    ///
    /// # Safety
    ///
    /// The transfers' memory is valid, and nothing else touches it during the call.
    unsafe fn carry_out(&self, transfers: &mut [Transfer]) -> Result<(), (StoreRange, io::Error)> {
        let ring = match transfers.len() {
            0 | 1 => None,
            // Where there is no io_uring (a seccomp filter, an old kernel), the same happens one by one.
            _ => self.rings.lend().ok(),
        };
        match ring {
            // SAFETY: as the caller vouches.
            Some(ring) => unsafe { ring.transfer(transfers) }.map_err(|(i, error)| (transfers[i].range(), error)),
            None => transfers.iter_mut().try_for_each(|transfer| {
                // SAFETY: as the caller vouches.
                unsafe { transfer.run() }.map_err(|error| (transfer.range(), error))
            }),
        }
    }

    fn write_zeros(&self, range: StoreRange) -> Result<(), StoreError> {
        let zeros = crate::AlignedBuf::new(ZEROS_AT_ONCE.min(range.len as usize));
        let mut offset = range.offset;
        while offset < range.end() {
            let len = zeros.len().min((range.end() - offset) as usize);
            self.write(&[WriteExtent { offset, buf: &zeros[..len] }])?;
            offset += len as u64;
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn size(&self) -> Result<u64, StoreError> {
        let failed = |e: io::Error| StoreError::new(Operation::Resize, e);
        if self.is_device {
            seek(&self.buffered, SeekFrom::End(0)).map_err(|e| failed(e.into()))
        } else {
            self.buffered.metadata().map(|metadata| metadata.size()).map_err(failed)
        }
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        let failed = |e| StoreError::new(Operation::Resize, e);
        if self.is_device {
            let room = self.size()?;
            if size > room {
                let reason = format!("the device has {room} bytes and {size} are needed; enlarge the device first");
                return Err(failed(io::Error::new(io::ErrorKind::StorageFull, reason)));
            }
            return Ok(());
        }
        self.buffered.set_len(size).map_err(failed)
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        let mut gather = Gather::new(Direction::Read, extents.len());
        for extent in extents.iter_mut() {
            let file = self.descriptor(extent.offset, extent.buf.as_ptr(), extent.buf.len());
            gather.add(file, extent.offset, extent.buf.as_mut_ptr(), extent.buf.len());
        }
        // SAFETY: the memory is that of the extents' exclusive slices, which are borrowed for this call.
        unsafe { self.carry_out(&mut gather.finish()) }.map_err(|(range, source)| {
            let operation = Operation::Read(range);
            match (source.kind(), self.size()) {
                // Say what it means that the file ended early.
                (io::ErrorKind::UnexpectedEof, Ok(size)) => {
                    check_inside(operation, range, size).err().unwrap_or(StoreError { operation, source })
                }
                _ => StoreError { operation, source },
            }
        })
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        // A write beyond the end would lengthen a file, and a volume's size is not an accident.
        if let Some(last) = extents.iter().map(WriteExtent::range).max_by_key(StoreRange::end) {
            check_inside(Operation::Write(last), last, self.size()?)?;
        }
        let mut gather = Gather::new(Direction::Write, extents.len());
        for extent in extents {
            let file = self.descriptor(extent.offset, extent.buf.as_ptr(), extent.buf.len());
            gather.add(file, extent.offset, extent.buf.as_ptr().cast_mut(), extent.buf.len());
        }
        // SAFETY: the memory is that of the extents' slices, which are borrowed for this call and only read.
        unsafe { self.carry_out(&mut gather.finish()) }
            .map_err(|(range, source)| StoreError { operation: Operation::Write(range), source })
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        if range.len == 0 {
            return Ok(());
        }
        check_inside(Operation::Zero(range), range, self.size()?)?;
        // Both are also understood by block devices: the first gives space back, the second only zeroes.
        for how in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match fallocate(&self.buffered, how | FallocateFlags::KEEP_SIZE, range.offset, range.len) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
                Err(e) => return Err(StoreError::new(Operation::Zero(range), io::Error::from(e))),
            }
        }
        self.write_zeros(range)
    }

    fn reserve(&self, range: StoreRange) -> Result<(), StoreError> {
        let size = self.size()?;
        check_inside(Operation::Reserve(range), range, size)?;
        if self.is_device || range.len == 0 {
            return Ok(());
        }
        match fallocate(&self.buffered, FallocateFlags::KEEP_SIZE, range.offset, range.len) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(e) => Err(StoreError::new(Operation::Reserve(range), io::Error::from(e))),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        fdatasync(&self.buffered).map_err(|e| StoreError::new(Operation::Sync, io::Error::from(e)))
    }

    fn write_atomicity(&self) -> u32 {
        self.write_atomicity
    }

    fn read_queue(self: Arc<Self>) -> Option<Box<dyn ReadQueue>> {
        // Where there is no io_uring, callers read in batches.
        Some(Box::new(UringReads::new(self).ok()?))
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        if self.is_device {
            return Ok(true);
        }
        match seek(&self.buffered, SeekFrom::Data(range.offset)) {
            Ok(data) => Ok(data < range.end()),
            Err(rustix::io::Errno::NXIO) => Ok(false),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(true),
            Err(e) => Err(StoreError::new(Operation::Read(range), io::Error::from(e))),
        }
    }
}
