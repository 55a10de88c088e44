//! A store in memory: for tests, and the image on which crash states are built.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sealdisk_units::StoreRange;

use crate::{DeferredReads, Operation, PAGE_SIZE, ReadExtent, ReadQueue, Store, StoreError, WriteExtent};

type Page = [u8; PAGE_SIZE];

/// The bytes of a store at one moment, sparse, with pages shared between copies: cloning costs no page.
#[derive(Clone, Default)]
pub struct Image {
    size: u64,
    pages: HashMap<u64, Arc<Page>>,
}

impl Image {
    /// `size` zero bytes.
    pub fn new(size: u64) -> Self {
        Self { size, pages: HashMap::new() }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Grows with zeros, or forgets what lies beyond `size`.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            let keep = size.div_ceil(PAGE_SIZE as u64);
            self.pages.retain(|&number, _| number < keep);
            let tail = (size % PAGE_SIZE as u64) as usize;
            if tail > 0
                && let Some(page) = self.pages.get_mut(&(size / PAGE_SIZE as u64))
            {
                Arc::make_mut(page)[tail..].fill(0);
            }
        }
        self.size = size;
    }

    /// Copies bytes out; they must lie inside the image.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (number, in_page, in_buf) in pages_of(offset, buf.len()) {
            match self.pages.get(&number) {
                Some(page) => buf[in_buf].copy_from_slice(&page[in_page]),
                None => buf[in_buf].fill(0),
            }
        }
    }

    /// Copies bytes in; they must lie inside the image.
    pub fn write(&mut self, offset: u64, buf: &[u8]) {
        for (number, in_page, in_buf) in pages_of(offset, buf.len()) {
            let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_SIZE]));
            Arc::make_mut(page)[in_page].copy_from_slice(&buf[in_buf]);
        }
    }

    /// Makes bytes zero; whole pages give their memory back.
    pub fn zero(&mut self, range: StoreRange) {
        let first_whole = range.offset.div_ceil(PAGE_SIZE as u64);
        let end_whole = range.end() / PAGE_SIZE as u64;
        if end_whole.saturating_sub(first_whole) > self.pages.len() as u64 {
            self.pages.retain(|number, _| !(first_whole..end_whole).contains(number));
        } else {
            (first_whole..end_whole).for_each(|number| drop(self.pages.remove(&number)));
        }
        let page = PAGE_SIZE as u64;
        for edge in
            [(range.offset, range.end().min(first_whole * page)), (range.offset.max(end_whole * page), range.end())]
        {
            if edge.0 < edge.1 && edge.0 / page == (edge.1 - 1) / page {
                self.write(edge.0, &[0; PAGE_SIZE][..(edge.1 - edge.0) as usize]);
            }
        }
    }

    /// Whether a page of the range holds memory.
    pub fn is_allocated(&self, range: StoreRange) -> bool {
        let (first, end) = (range.offset / PAGE_SIZE as u64, range.end().div_ceil(PAGE_SIZE as u64));
        if end - first > self.pages.len() as u64 {
            self.pages.keys().any(|number| (first..end).contains(number))
        } else {
            (first..end).any(|number| self.pages.contains_key(&number))
        }
    }
}

/// Page by page: the page's number, the bytes of it, and where they lie in a buffer.
fn pages_of(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % PAGE_SIZE as u64) as usize;
        let count = (PAGE_SIZE - start).min(len - done);
        let piece = (at / PAGE_SIZE as u64, start..start + count, done..done + count);
        done += count;
        Some(piece)
    })
}

/// A store in memory. Syncing does nothing: there is no crash to survive.
pub struct MemoryStore {
    image: RwLock<Image>,
    write_atomicity: u32,
}

impl MemoryStore {
    /// `size` zero bytes that claim never to tear a 4096-byte write.
    pub fn new(size: u64) -> Self {
        Self::from_image(Image::new(size), 4096)
    }

    /// A store that begins with the bytes of `image`.
    pub fn from_image(image: Image, write_atomicity: u32) -> Self {
        Self { image: RwLock::new(image), write_atomicity }
    }

    /// The bytes as they are now.
    pub fn image(&self) -> Image {
        self.locked().clone()
    }

    fn locked(&self) -> RwLockReadGuard<'_, Image> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_mut(&self) -> RwLockWriteGuard<'_, Image> {
        self.image.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a range that reaches beyond `size`.
pub(crate) fn check_inside(operation: Operation, range: StoreRange, size: u64) -> Result<(), StoreError> {
    if range.offset.checked_add(range.len).is_none_or(|end| end > size) {
        let reason = format!("the store ends at {size}; it was cut off, or is not the one that the header describes");
        return Err(StoreError::new(operation, io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
    }
    Ok(())
}

impl Store for MemoryStore {
    fn size(&self) -> Result<u64, StoreError> {
        Ok(self.locked().size())
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        self.locked_mut().resize(size);
        Ok(())
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        let image = self.locked();
        for extent in extents {
            check_inside(Operation::Read(extent.range()), extent.range(), image.size())?;
            image.read(extent.offset, extent.buf);
        }
        Ok(())
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        let mut image = self.locked_mut();
        for extent in extents {
            check_inside(Operation::Write(extent.range()), extent.range(), image.size())?;
            image.write(extent.offset, extent.buf);
        }
        Ok(())
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        let mut image = self.locked_mut();
        check_inside(Operation::Zero(range), range, image.size())?;
        image.zero(range);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_atomicity(&self) -> u32 {
        self.write_atomicity
    }

    fn read_queue(self: Arc<Self>) -> Option<Box<dyn ReadQueue>> {
        Some(Box::new(DeferredReads::new(self)))
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        Ok(self.locked().is_allocated(range))
    }
}
