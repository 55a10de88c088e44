//! The one file: what it answers, whoever asks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use sealdisk_units::ByteRange;
use sealdisk_volume::{Space, VolumeError};

use super::wire::{self, Attributes, Reply, Request};
use crate::{Disk, errno};

/// `fallocate`'s modes, as `linux/falloc.h` numbers them.
const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;

/// How much of the disk is looked at together when a hole is sought, in bytes: the answer to each look is a list, which
/// should not grow with the disk.
const SEEK_WINDOW: u64 = 1 << 30;

/// A directory with one file, whose bytes are a disk's.
pub(super) struct DiskFile {
    pub disk: Arc<dyn Disk>,
    name: OsString,
    directory: Attributes,
    file: Attributes,
}

impl DiskFile {
    /// `disk` as a file called `name` that belongs to the process's user.
    pub fn new(disk: Arc<dyn Disk>, name: OsString) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let permissions = if disk.is_read_only() { 0o400 } else { 0o600 };
        let directory = Attributes { node: wire::ROOT, size: 0, mode: libc::S_IFDIR | 0o500, links: 2, uid, gid, time };
        let file = Attributes {
            node: wire::FILE,
            size: disk.size(),
            mode: libc::S_IFREG | permissions,
            links: 1,
            ..directory
        };
        Self { disk, name, directory, file }
    }

    /// The part of a read that lies inside the file: a read across the end is short, one beyond it empty.
    pub fn readable(&self, offset: u64, len: u32) -> ByteRange {
        let size = self.file.size;
        let start = offset.min(size);
        inside(start, u64::from(len).min(size - start), size)
    }

    /// The part of a write that lies inside the file: as on a disk, a write across the end is short and one beyond it
    /// finds no space.
    pub fn writable(&self, offset: u64, len: usize) -> Result<ByteRange, Errno> {
        let size = self.file.size;
        if self.disk.is_read_only() {
            return Err(Errno::ROFS);
        }
        if offset >= size && len > 0 {
            return Err(Errno::NOSPC);
        }
        let start = offset.min(size);
        Ok(inside(start, (len as u64).min(size - start), size))
    }

    /// Answers everything but reads and writes. Must not be asked to forget: that has no answer.
    pub fn answer(&self, node: u64, request: Request<'_>) -> Result<Reply, Errno> {
        match (request, node) {
            (Request::Lookup { name }, wire::ROOT) if name == self.name.as_bytes() => Ok(Reply::entry(&self.file)),
            (Request::Lookup { .. }, _) => Err(Errno::NOENT),
            (Request::GetAttributes, wire::ROOT) => Ok(Reply::attributes_only(&self.directory)),
            (Request::GetAttributes, wire::FILE) => Ok(Reply::attributes_only(&self.file)),
            (Request::SetAttributes { size: Some(size), other: false }, wire::FILE) if size == self.file.size => {
                Ok(Reply::attributes_only(&self.file))
            }
            (Request::SetAttributes { .. } | Request::ChangesNamespace, _) => Err(Errno::PERM),
            (Request::Open { flags }, wire::FILE) => self.open(flags),
            (Request::OpenDirectory, wire::ROOT) => Ok(Reply::opened_directory()),
            (Request::ReadDirectory { offset, len }, wire::ROOT) => {
                Ok(Reply::directory(self.name.as_bytes(), offset, len))
            }
            (Request::Close, _) => Ok(Reply::empty()),
            (Request::Flush, wire::FILE) => done(self.disk.flush()),
            (Request::Fallocate { offset, len, mode }, wire::FILE) => self.fallocate(offset, len, mode),
            (Request::Seek { offset, whence }, wire::FILE) => self.seek(offset, whence),
            (Request::FileSystemStatistics, _) => Ok(Reply::file_system(self.file.size)),
            // ENOSYS also tells the kernel not to ask again, which is wanted of extended attributes and interrupts.
            (Request::Unknown, _) => Err(Errno::NOSYS),
            (_, wire::ROOT | wire::FILE) => Err(Errno::INVAL),
            _ => Err(Errno::NOENT),
        }
    }

    fn open(&self, flags: u32) -> Result<Reply, Errno> {
        if self.disk.is_read_only() && flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32 {
            return Err(Errno::ROFS);
        }
        Ok(Reply::opened_file())
    }

    fn fallocate(&self, offset: u64, len: u64, mode: u32) -> Result<Reply, Errno> {
        if self.disk.is_read_only() {
            return Err(Errno::ROFS);
        }
        let size = self.file.size;
        let space = match mode & !KEEP_SIZE {
            PUNCH_HOLE => Space::Free,
            ZERO_RANGE => Space::Keep,
            // Reserving space cannot be promised, and the rest would change the size.
            _ => return Err(Errno::OPNOTSUPP),
        };
        // Beyond the end a hole is punched already; zeros could only be had there by growing.
        if mode & KEEP_SIZE == 0 && offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(Errno::PERM);
        }
        let start = offset.min(size);
        done(self.disk.zero(inside(start, len.min(size - start), size), space))
    }

    fn seek(&self, offset: u64, whence: u32) -> Result<Reply, Errno> {
        let size = self.file.size;
        let hole = match whence as libc::c_int {
            libc::SEEK_HOLE => true,
            libc::SEEK_DATA => false,
            _ => return Err(Errno::INVAL),
        };
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let mut position = offset;
        while position < size {
            let before = position;
            let window = inside(position, SEEK_WINDOW.min(size - position), size);
            for stretch in self.disk.allocation(window).map_err(refusal)? {
                if stretch.hole == hole {
                    return Ok(Reply::position(position));
                }
                position = position.saturating_add(stretch.len);
            }
            if position <= before {
                return Err(Errno::IO); // a disk that breaks its contract must not keep us here for ever
            }
        }
        // The end of a file counts as a hole.
        if hole { Ok(Reply::position(size)) } else { Err(Errno::NXIO) }
    }
}

/// A range that was cut to the disk's size.
fn inside(offset: u64, len: u64, size: u64) -> ByteRange {
    ByteRange::checked(offset, len, size).expect("the range was cut to the size")
}

fn done(result: Result<(), VolumeError>) -> Result<Reply, Errno> {
    result.map(|()| Reply::empty()).map_err(refusal)
}

/// What the client is told of an error.
pub(super) fn refusal(error: VolumeError) -> Errno {
    Errno::from_raw_os_error(errno::errno(&error))
}
