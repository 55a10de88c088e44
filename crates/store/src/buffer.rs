//! Memory that direct I/O accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// What buffers are aligned to: enough for direct I/O on every device.
pub const PAGE_SIZE: usize = 4096;

/// Buffers of this length and more are mapped, so that their pages cost nothing until they are used. (For a
/// pool of which little is ever used.)
const MAPPED_FROM: usize = 4 << 20;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Zero-initialised bytes whose address is a multiple of [`PAGE_SIZE`].
///
/// Short ones begin somewhere in a larger piece of ordinary memory: glibc before 2.38 does not use again what it cuts off
/// around an aligned piece, and many buffers of many lengths would take ever more.
pub struct AlignedBuf {
    /// What was allocated.
    base: NonNull<u8>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self { base: NonNull::dangling(), start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        let base = if len >= MAPPED_FROM {
            // SAFETY: a new mapping, wherever the kernel finds room, overlaps nothing.
            let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, READ_WRITE, MapFlags::PRIVATE) };
            mapped.map_or(std::ptr::null_mut(), <*mut _>::cast)
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        let skipped = base.align_offset(PAGE_SIZE);
        // SAFETY: fewer than `PAGE_SIZE` bytes are skipped, and the layout has so many more; a mapping is aligned itself.
        let start = unsafe { base.add(skipped) };
        Self { base, start, len }
    }

    /// Of a buffer that is not mapped.
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + PAGE_SIZE, 16).expect("a buffer is smaller than the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len >= MAPPED_FROM {
            // SAFETY: mapped in `new` with this length. It fails only for arguments that are not a mapping.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        } else if self.len > 0 {
            // SAFETY: allocated in `new` with the same layout.
            unsafe { dealloc(self.base.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes (or dangles for a length of 0).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_may_be_empty() {
        for len in [0, 1, 512, 4096, 1 << 20, MAPPED_FROM, MAPPED_FROM + 1] {
            let buf = AlignedBuf::new(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&b| b == 0));
            if len > 0 {
                assert!((buf.as_ptr() as usize).is_multiple_of(PAGE_SIZE));
            }
        }
    }
}
