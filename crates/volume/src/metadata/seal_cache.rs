//! Pages of seals in memory. A page here never runs ahead of the store's data: a seal enters only once the sector that
//! it belongs to is in place and durable. So a page may be written back at any time.

use std::collections::HashMap;

use sealdisk_cipher::Seal;
use sealdisk_layout::{PAGE_SIZE, SealPageNumber};

pub(crate) type SealPage = [u8; PAGE_SIZE as usize];

/// Where a page lies in the cache's memory.
#[derive(Clone, Copy)]
struct Place(u32);

/// Memory for pages, in large pieces that are kept: pages of their own, which live long, would lie scattered between
/// buffers that do not, and keep the memory around them.
#[derive(Default)]
struct Memory {
    pieces: Vec<Box<[SealPage]>>,
    free: Vec<Place>,
}

/// Pages in a piece: 1 MiB.
const PAGES_IN_PIECE: usize = 256;

impl Memory {
    fn put(&mut self, page: &SealPage) -> Place {
        if self.free.is_empty() {
            let first = (self.pieces.len() * PAGES_IN_PIECE) as u32;
            self.pieces.push(vec![[0; size_of::<SealPage>()]; PAGES_IN_PIECE].into());
            self.free.extend((first..first + PAGES_IN_PIECE as u32).rev().map(Place));
        }
        let place = self.free.pop().expect("a piece was added");
        *self.page_mut(place) = *page;
        place
    }

    fn page(&self, Place(number): Place) -> &SealPage {
        &self.pieces[number as usize / PAGES_IN_PIECE][number as usize % PAGES_IN_PIECE]
    }

    fn page_mut(&mut self, Place(number): Place) -> &mut SealPage {
        &mut self.pieces[number as usize / PAGES_IN_PIECE][number as usize % PAGES_IN_PIECE]
    }
}

struct Cached {
    place: Place,
    /// The oldest journal frame whose seals the store's copy of the page lacks.
    dirty_since: Option<u64>,
    /// When it was last of use: for choosing what to forget.
    used: u64,
}

/// A bounded number of clean seal pages, and all dirty ones.
pub(crate) struct SealCache {
    pages: HashMap<SealPageNumber, Cached>,
    memory: Memory,
    capacity: usize,
    dirty: usize,
    clock: u64,
    changes: u64,
    held: bool,
}

impl SealCache {
    /// A cache that keeps about `capacity` pages.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            pages: HashMap::new(),
            memory: Memory::default(),
            capacity: capacity.max(64),
            dirty: 0,
            clock: 0,
            changes: 0,
            held: false,
        }
    }

    /// The page, if it is here.
    pub(crate) fn get(&mut self, number: SealPageNumber) -> Option<&SealPage> {
        self.clock += 1;
        let cached = self.pages.get_mut(&number)?;
        cached.used = self.clock;
        Some(self.memory.page(cached.place))
    }

    /// Whether the page is here.
    pub(crate) fn contains(&self, number: SealPageNumber) -> bool {
        self.pages.contains_key(&number)
    }

    /// How many changes there have been: a page that was read from the store before the last one may be out of date.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Keeps a page that was read from the store since `changes` was that number. Where something changed meanwhile,
    /// the page may be older than what the cache has forgotten, and is not kept.
    pub(crate) fn keep_loaded(&mut self, number: SealPageNumber, page: &SealPage, changes: u64) {
        if changes == self.changes && !self.pages.contains_key(&number) {
            self.clock += 1;
            let place = self.memory.put(page);
            self.pages.insert(number, Cached { place, dirty_since: None, used: self.clock });
        }
    }

    /// Keeps the page as it is in the store now, whatever was here.
    pub(crate) fn keep(&mut self, number: SealPageNumber, page: &SealPage) {
        self.clock += 1;
        match self.pages.get_mut(&number) {
            Some(cached) => {
                *self.memory.page_mut(cached.place) = *page;
                cached.used = self.clock;
            }
            None => {
                let place = self.memory.put(page);
                self.pages.insert(number, Cached { place, dirty_since: None, used: self.clock });
                self.shrink();
            }
        }
    }

    /// Whether another page can come without one being forgotten.
    pub(crate) fn has_room(&self) -> bool {
        self.pages.len() < self.capacity
    }

    /// Puts a seal into a page that is here. `frame` is the journal frame that also holds the seal.
    pub(crate) fn set(&mut self, number: SealPageNumber, offset: usize, seal: &Seal, frame: u64) {
        let cached = self.pages.get_mut(&number).expect("the caller has seen the page");
        let bytes = seal.as_bytes();
        self.memory.page_mut(cached.place)[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.changes += 1;
        match &mut cached.dirty_since {
            Some(since) => *since = frame.min(*since),
            clean => {
                *clean = Some(frame);
                self.dirty += 1;
            }
        }
    }

    /// A page that the store does not have: that of a new object.
    pub(crate) fn insert_new(&mut self, number: SealPageNumber, page: &SealPage, frame: u64) {
        self.clock += 1;
        self.changes += 1;
        let new = Cached { place: self.memory.put(page), dirty_since: Some(frame), used: self.clock };
        let old = self.pages.insert(number, new);
        if old.as_ref().is_none_or(|old| old.dirty_since.is_none()) {
            self.dirty += 1;
        }
        self.memory.free.extend(old.map(|old| old.place));
    }

    /// Forgets pages of objects that exist no longer.
    pub(crate) fn forget(&mut self, pages: std::ops::Range<u64>) {
        self.changes += 1;
        let mut dirty = 0;
        self.pages.retain(|number, cached| {
            let keep = !pages.contains(&number.0);
            self.memory.free.extend((!keep).then_some(cached.place));
            dirty += usize::from(keep && cached.dirty_since.is_some());
            keep
        });
        self.dirty = dirty;
    }

    /// The oldest journal frame whose seals are not yet in place.
    pub(crate) fn oldest_frame(&self) -> Option<u64> {
        self.pages.values().filter_map(|cached| cached.dirty_since).min()
    }

    /// How many pages are dirty.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty
    }

    /// How many pages the cache should hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The numbers of all dirty pages, in order.
    pub(crate) fn dirty_pages(&self) -> Vec<SealPageNumber> {
        let dirty = self.pages.iter().filter(|(_, cached)| cached.dirty_since.is_some());
        let mut pages: Vec<_> = dirty.map(|(number, _)| *number).collect();
        pages.sort_unstable();
        pages
    }

    /// Copies pages that are here, one after the other.
    pub(crate) fn copy_out(&self, pages: &[SealPageNumber], out: &mut [u8]) {
        for (number, buf) in pages.iter().zip(out.chunks_exact_mut(size_of::<SealPage>())) {
            buf.copy_from_slice(self.memory.page(self.pages[number].place));
        }
    }

    /// The store has these pages as they are here. The caller has kept changes away since `dirty_pages`.
    pub(crate) fn cleaned(&mut self, pages: &[SealPageNumber]) {
        for number in pages {
            if let Some(cached) = self.pages.get_mut(number)
                && cached.dirty_since.take().is_some()
            {
                self.dirty -= 1;
            }
        }
        self.shrink();
    }

    /// Whether pages must stay: somebody has brought them here to change them.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Forgets clean pages that were not used lately, where there are too many.
    pub(crate) fn shrink(&mut self) {
        if self.held || self.pages.len() <= self.capacity {
            return;
        }
        // Forget down to seven eighths, so that this linear pass is rare.
        let excess = self.pages.len() - self.capacity / 8 * 7;
        let mut clean: Vec<(u64, SealPageNumber)> = self
            .pages
            .iter()
            .filter(|(_, cached)| cached.dirty_since.is_none())
            .map(|(number, cached)| (cached.used, *number))
            .collect();
        if clean.is_empty() {
            return;
        }
        let excess = excess.min(clean.len());
        clean.select_nth_unstable(excess - 1);
        for (_, number) in &clean[..excess] {
            let forgotten = self.pages.remove(number);
            self.memory.free.extend(forgotten.map(|cached| cached.place));
        }
        self.changes += 1;
    }
}
