//! Bytes on their way between memory and one contiguous range of a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use sealdisk_units::StoreRange;

/// The most bytes that one transfer carries, so that the parts of a long one proceed together.
const LONGEST: usize = 1 << 20;
/// The most pieces of memory that one transfer gathers; Linux takes 1024 (`IOV_MAX`).
const MOST_PIECES: usize = 256;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// A transfer between a contiguous range of a file and one or more pieces of memory.
pub(crate) struct Transfer {
    fd: RawFd,
    direction: Direction,
    range: StoreRange,
    /// What has not been transferred yet.
    memory: Vec<libc::iovec>,
    done: u64,
}

impl Transfer {
    fn new(file: &File, direction: Direction, offset: u64) -> Self {
        Self { fd: file.as_raw_fd(), direction, range: StoreRange::new(offset, 0), memory: Vec::new(), done: 0 }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// The whole range.
    pub(crate) fn range(&self) -> StoreRange {
        self.range
    }

    /// Where the next byte is in the file.
    pub(crate) fn position(&self) -> u64 {
        self.range.offset + self.done
    }

    /// What memory is still to be filled or emptied.
    pub(crate) fn memory(&self) -> &[libc::iovec] {
        &self.memory
    }

    /// Whether everything has been transferred.
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.range.len
    }

    /// `count` more bytes have been transferred.
    pub(crate) fn advance(&mut self, count: usize) {
        self.done += count as u64;
        let mut count = count;
        let mut finished = 0;
        for piece in &mut self.memory {
            let of_piece = count.min(piece.iov_len);
            piece.iov_base = piece.iov_base.wrapping_byte_add(of_piece);
            piece.iov_len -= of_piece;
            count -= of_piece;
            if piece.iov_len > 0 {
                break;
            }
            finished += 1;
        }
        self.memory.drain(..finished);
    }

    /// Carries the transfer out with plain system calls.
    ///
    /// # Safety
    ///
    /// The memory is valid, and nothing else touches it during the call.
    pub(crate) unsafe fn run(&mut self) -> io::Result<()> {
        while !self.is_done() {
            let (memory, count) = (self.memory.as_ptr(), self.memory.len() as libc::c_int);
            let position = self.position() as libc::off_t;
            // SAFETY: `memory` holds `count` valid pieces, as the caller vouches.
            let moved = unsafe {
                match self.direction {
                    Direction::Read => libc::preadv(self.fd, memory, count, position),
                    Direction::Write => libc::pwritev(self.fd, memory, count, position),
                }
            };
            match moved {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved if moved > 0 => self.advance(moved as usize),
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Puts extents together into as few transfers as their places in the file allow.
pub(crate) struct Gather {
    direction: Direction,
    transfers: Vec<Transfer>,
}

impl Gather {
    pub(crate) fn new(direction: Direction, extents: usize) -> Self {
        Self { direction, transfers: Vec::with_capacity(extents.min(MOST_PIECES)) }
    }

    /// Adds `len` bytes of memory from `start` on, for the place `offset` in `file`.
    pub(crate) fn add(&mut self, file: &File, mut offset: u64, mut start: *mut u8, mut len: usize) {
        while len > 0 {
            let joins = self.transfers.last().is_some_and(|last| {
                last.fd == file.as_raw_fd()
                    && last.range.end() == offset
                    && last.memory.len() < MOST_PIECES
                    && (last.range.len as usize) < LONGEST
            });
            if !joins {
                self.transfers.push(Transfer::new(file, self.direction, offset));
            }
            let last = self.transfers.last_mut().expect("there is one to join, or one was pushed");
            let count = len.min(LONGEST - last.range.len as usize);
            match last.memory.last_mut() {
                Some(piece) if piece.iov_base.wrapping_byte_add(piece.iov_len) == start.cast() => {
                    piece.iov_len += count
                }
                _ => last.memory.push(libc::iovec { iov_base: start.cast(), iov_len: count }),
            }
            last.range.len += count as u64;
            offset += count as u64;
            start = start.wrapping_add(count);
            len -= count;
        }
    }

    pub(crate) fn finish(self) -> Vec<Transfer> {
        self.transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_the_file_are_gathered_and_neighbours_in_memory_joined() {
        let file = File::open("/dev/null").unwrap();
        let mut memory = vec![0u8; 16384];
        let start = memory.as_mut_ptr();
        let mut gather = Gather::new(Direction::Write, 4);
        gather.add(&file, 0, start, 4096);
        gather.add(&file, 4096, start.wrapping_add(4096), 4096);
        gather.add(&file, 8192, start.wrapping_add(12288), 4096);
        gather.add(&file, 65536, start.wrapping_add(8192), 4096);
        let mut transfers = gather.finish();
        let shapes: Vec<_> =
            transfers.iter().map(|t| (t.range(), t.memory().iter().map(|m| m.iov_len).collect::<Vec<_>>())).collect();
        assert_eq!(shapes, [(StoreRange::new(0, 12288), vec![8192, 4096]), (StoreRange::new(65536, 4096), vec![4096])]);
        transfers[0].advance(8192 + 96);
        assert_eq!((transfers[0].position(), transfers[0].memory()[0].iov_len), (8288, 4000));
        transfers[0].advance(4000);
        assert!(transfers[0].is_done() && transfers[0].memory().is_empty());
    }

    #[test]
    fn a_long_extent_is_split() {
        let file = File::open("/dev/null").unwrap();
        let mut memory = vec![0u8; 3 << 20];
        let mut gather = Gather::new(Direction::Read, 1);
        gather.add(&file, 512, memory.as_mut_ptr(), memory.len());
        let lens: Vec<_> = gather.finish().iter().map(|transfer| transfer.range().len).collect();
        assert_eq!(lens, [1 << 20; 3]);
    }
}
