//! What the kernel knows of a file and of the device below it.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{fstatfs, major, minor};

/// What every disk writes whole.
const SMALLEST_ATOM: u32 = 512;
/// More than this is never needed: the size of a sector.
const LARGEST_ATOM: u32 = 4096;

/// The unit that a crash does not tear, in bytes: what the device declares as its physical block, as far as the file
/// system keeps such units together. 512 where nobody declares anything.
pub(crate) fn write_atomicity(metadata: &Metadata, fd: BorrowedFd<'_>) -> u32 {
    let is_device = metadata.file_type().is_block_device();
    let device = if is_device { metadata.rdev() } else { metadata.dev() };
    let Some(physical) = physical_block_size(device) else { return SMALLEST_ATOM };
    let file_system = if is_device { LARGEST_ATOM } else { fstatfs(fd).map_or(SMALLEST_ATOM, |s| s.f_bsize as u32) };
    let atom = physical.min(file_system).min(LARGEST_ATOM);
    if atom.is_power_of_two() && atom >= SMALLEST_ATOM { atom } else { SMALLEST_ATOM }
}

/// The physical block size of a block device by its number, if its first byte lies on such a block.
fn physical_block_size(device: u64) -> Option<u32> {
    let sysfs = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let number = |path: String| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    // A partition has no queue of its own; its disk's lies one folder up.
    let size = number(format!("{sysfs}/queue/physical_block_size"))
        .or_else(|| number(format!("{sysfs}/../queue/physical_block_size")))?;
    let misaligned = number(format!("{sysfs}/alignment_offset")).unwrap_or(0) != 0;
    (!misaligned).then_some(size)
}

/// Locks the file against every other opening of it, or against writers where `exclusive` is not set.
pub(crate) fn lock_whole_file(fd: BorrowedFd<'_>, exclusive: bool) -> io::Result<()> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let lock = libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: the descriptor is open and `lock` is a valid `flock` for the duration of the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "in use by another process; detach it there first"))
        }
        e => Err(e),
    }
}
