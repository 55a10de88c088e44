//! Memory for sectors that wait to be written: a fixed number of pages, so that a volume's memory is bounded.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use sealdisk_store::AlignedBuf;
use sealdisk_units::SECTOR_SIZE;

/// A fixed number of 4096-byte pages.
pub(crate) struct PagePool {
    start: NonNull<u8>,
    count: usize,
    free: Mutex<Vec<u32>>,
    /// Owns the pages; reached only through `start`.
    _memory: UnsafeCell<AlignedBuf>,
}

// SAFETY: a page is reached only through the one `FreshPage` or the shared, read-only `Page`s that hold its number, and
// the list of free numbers is behind a mutex.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl PagePool {
    /// A pool of `count` pages. The memory is taken from the system as pages are first used.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let mut memory = AlignedBuf::new(count * SECTOR_SIZE);
        let start = NonNull::from(&mut memory[..]).cast();
        // Low numbers are lent first: memory that was never needed is never touched.
        let free = (0..count as u32).rev().collect();
        Arc::new(Self { start, count, free: Mutex::new(free), _memory: UnsafeCell::new(memory) })
    }

    /// How many pages there are, lent or not.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many pages are lent.
    pub(crate) fn in_use(&self) -> usize {
        self.count - self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// `count` pages, or none at all where fewer are free.
    pub(crate) fn lend(self: &Arc<Self>, count: usize) -> Option<Vec<FreshPage>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = free.len().checked_sub(count)?;
        Some(free.drain(keep..).rev().map(|number| FreshPage(Page { pool: self.clone(), number })).collect())
    }

    fn page(&self, number: u32) -> NonNull<u8> {
        // SAFETY: numbers are below `count`, and the memory has `count` pages.
        unsafe { self.start.add(number as usize * SECTOR_SIZE) }
    }
}

/// A lent page that its holder alone can reach and may write. Goes back to the pool when dropped.
pub(crate) struct FreshPage(Page);

impl FreshPage {
    /// The page's bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this page's number was taken from the free list, so nobody else holds it until it is frozen.
        unsafe { std::slice::from_raw_parts_mut(self.0.pool.page(self.0.number).as_ptr(), SECTOR_SIZE) }
    }

    /// Shares the page, from now on read-only.
    pub(crate) fn freeze(self) -> Arc<Page> {
        Arc::new(self.0)
    }
}

/// A lent page that nobody writes any more. Goes back to the pool with its last holder.
pub(crate) struct Page {
    pool: Arc<PagePool>,
    number: u32,
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: while a `Page` can be reached from outside this module, nobody writes it.
        unsafe { std::slice::from_raw_parts(self.pool.page(self.number).as_ptr(), SECTOR_SIZE) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_distinct_while_lent_and_come_back() {
        let pool = PagePool::new(3);
        let mut pages = pool.lend(3).unwrap();
        assert!(pool.lend(1).is_none());
        for (i, page) in pages.iter_mut().enumerate() {
            page.bytes_mut().fill(i as u8 + 1);
        }
        let frozen: Vec<_> = pages.into_iter().map(FreshPage::freeze).collect();
        for (i, page) in frozen.iter().enumerate() {
            assert!(page.iter().all(|&b| b == i as u8 + 1));
        }
        assert_eq!(pool.in_use(), 3);
        drop(frozen);
        assert_eq!(pool.in_use(), 0);
        assert!(pool.lend(4).is_none() && pool.lend(0).unwrap().is_empty());
    }
}
