//! Buffers for ciphertext on its way to the store. Each is used again: to get a fresh one from the system costs about as much
//! as to fill it.

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealdisk_store::AlignedBuf;
use sealdisk_units::SECTOR_SIZE;

use crate::Memory;

/// Bytes that are kept for the next request at most.
const KEEP: usize = 16 << 20;

/// Free buffers.
#[derive(Default)]
pub(crate) struct Buffers {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// By the power of two that is their size in sectors.
    by_size: Vec<Vec<AlignedBuf>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of `len` bytes, page-aligned, with whatever ciphertext was in it.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let size = size_of(len);
        let free = {
            let mut free = self.free();
            let found = free.by_size.get_mut(size).and_then(Vec::pop);
            free.bytes -= found.as_ref().map_or(0, |found| found.len());
            found
        };
        let bytes = free.unwrap_or_else(|| AlignedBuf::new(SECTOR_SIZE << size));
        Buffer { bytes: Some(bytes), len, of: Arc::clone(self) }
    }

    fn give_back(&self, bytes: AlignedBuf) {
        let mut free = self.free();
        if free.bytes + bytes.len() <= KEEP {
            let size = size_of(bytes.len());
            if free.by_size.len() <= size {
                free.by_size.resize_with(size + 1, Vec::new);
            }
            free.bytes += bytes.len();
            free.by_size[size].push(bytes);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The smallest power of two of sectors that has room for so many bytes.
fn size_of(len: usize) -> usize {
    len.div_ceil(SECTOR_SIZE).next_power_of_two().ilog2() as usize
}

/// Memory of its holder's until it is dropped.
pub(crate) struct Buffer {
    /// Until it is given back.
    bytes: Option<AlignedBuf>,
    len: usize,
    of: Arc<Buffers>,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[..self.len])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().map_or(&mut [], |bytes| &mut bytes[..self.len])
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.of.give_back(bytes);
        }
    }
}

/// Ciphertext on its way to the store.
pub(crate) enum Ciphertext {
    /// In a buffer of ours.
    Ours(Buffer),
    /// Where its plaintext was, in memory that came with it: part of that.
    Given(Arc<dyn Memory>, Range<usize>),
}

impl Deref for Ciphertext {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Ours(buffer) => buffer,
            Self::Given(memory, range) => &memory[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_by_requests_of_about_its_size() {
        let buffers = Arc::new(Buffers::default());
        let mut first = buffers.take(5 * SECTOR_SIZE);
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let longer = buffers.take(9 * SECTOR_SIZE);
        assert!(longer.iter().all(|byte| *byte == 0));
        let again = buffers.take(8 * SECTOR_SIZE);
        assert_eq!((again.len(), again.as_ptr()), (8 * SECTOR_SIZE, place));
        let other = buffers.take(8 * SECTOR_SIZE);
        assert_ne!(other.as_ptr(), place);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let buffers = Arc::new(Buffers::default());
        let all: Vec<_> = (0..100).map(|_| buffers.take(1 << 20)).collect();
        drop(all);
        assert_eq!(buffers.free().bytes, KEEP);
        let all: Vec<_> = (0..100).map(|_| buffers.take(1 << 20)).collect();
        assert_eq!(buffers.free().bytes, 0);
        drop(all);
        assert_eq!(buffers.take(0).len(), 0);
    }
}
