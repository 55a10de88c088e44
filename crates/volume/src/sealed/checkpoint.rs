//! Checkpoints: sectors go to their places, then their seals, and the journal gets its room back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealdisk_cipher::{Form, Sealed, SealedForm};
use sealdisk_layout::{PackedLayout, SealPageNumber, Superblock};
use sealdisk_store::{AlignedBuf, ReadExtent, StoreError, WriteExtent};
use sealdisk_units::{Lba, StoreRange};

use super::page_pool::Page;
use super::write_back::{Content, Waiting};
use super::{Log, SealedVolume};
use crate::VolumeError;
use crate::metadata::seal_cache::{SealCache, SealPage};
use crate::metadata::superblocks::write_superblock;

/// Sectors written in place between two chances for a flush to come in between.
pub(super) const SLICE: usize = 256;
/// Sectors written in place between two syncs.
const PLACED_AT_ONCE: usize = 2048;
/// Seal pages written at once.
const SEAL_PAGES_AT_ONCE: usize = 1024;

/// A sector on its way to its place.
pub(super) struct ToPlace {
    pub(super) waiting: Waiting,
    page: Arc<Page>,
}

impl ToPlace {
    pub(super) fn extent(&self, layout: &PackedLayout) -> WriteExtent<'_> {
        WriteExtent { offset: layout.place(self.waiting.lba).data.offset, buf: &self.page }
    }
}

impl SealedVolume {
    /// Those of `waiting` that are still to be written in place, in the order of their places. Zeros have no data.
    pub(super) fn sectors_to_place(&self, mut waiting: Vec<Waiting>) -> Vec<ToPlace> {
        waiting.sort_unstable_by_key(|waiting| waiting.lba);
        let write_back = self.write_back();
        let found = waiting.into_iter().filter_map(|waiting| {
            let journaled = write_back.still_journaled(waiting).filter(|journaled| !journaled.placed)?;
            match &journaled.content {
                Content::Sector(page, _) => Some(ToPlace { waiting, page: page.clone() }),
                Content::Zero => None,
            }
        });
        found.collect()
    }

    /// Frees pages: commits what is dirty, puts it in place, and makes that durable.
    pub(super) fn make_room(&self, log: &mut Log) -> Result<(), VolumeError> {
        while self.pool.in_use() > self.pool.count() / 2 {
            let committed = self.commit(log)?;
            let placed = self.place_some(log, usize::MAX)?;
            if committed == 0 && placed == 0 {
                // Everything is in place; what is missing is a sync.
                self.sync()?;
                return self.retire_placed(log);
            }
        }
        Ok(())
    }

    /// Writes up to `limit` journaled sectors in place, without a sync. Returns how many.
    pub(super) fn place_some(&self, log: &mut Log, limit: usize) -> Result<usize, VolumeError> {
        let soon = std::mem::take(&mut log.place_soon);
        let mut list = soon.clone();
        let room = limit.saturating_sub(list.len()).min(log.place_later.len());
        list.extend(log.place_later.drain(..room));
        if list.is_empty() {
            return Ok(0);
        }
        let zeros = self.zeros_among(&list);
        let places = self.sectors_to_place(list.clone());
        let extents: Vec<_> = places.iter().map(|place| place.extent(&self.layout)).collect();
        let written = self.store.write(&extents).and_then(|()| self.free(&zeros));
        if let Err(error) = written {
            // What was promised stays promised: a flush may not succeed before it is in place.
            log.place_later.extend(&list[soon.len()..]);
            log.place_soon = soon;
            return Err(self.standing.store_error(error));
        }
        let count = list.len();
        let mut write_back = self.write_back();
        for waiting in places.iter().map(|place| place.waiting).chain(zeros) {
            write_back.set_placed(waiting);
            log.placed.push(waiting);
        }
        Ok(count)
    }

    /// The sectors among these that became zero, in order.
    fn zeros_among(&self, list: &[Waiting]) -> Vec<Waiting> {
        let write_back = self.write_back();
        let is_zero = |waiting: &&Waiting| {
            let journaled = write_back.still_journaled(**waiting);
            journaled.is_some_and(|journaled| !journaled.placed && matches!(journaled.content, Content::Zero))
        };
        let mut zeros: Vec<Waiting> = list.iter().filter(is_zero).copied().collect();
        zeros.sort_unstable_by_key(|waiting| waiting.lba);
        zeros
    }

    /// Gives back the space of sectors that became zero, runs of them at once.
    fn free(&self, zeros: &[Waiting]) -> Result<(), StoreError> {
        let mut run: Option<StoreRange> = None;
        for waiting in zeros {
            let place = self.layout.place(waiting.lba).data;
            match &mut run {
                Some(run) if run.end() == place.offset => run.len += place.len,
                _ => {
                    run.replace(place).map_or(Ok(()), |run| self.store.zero(run))?;
                }
            }
        }
        run.map_or(Ok(()), |run| self.store.zero(run))
    }

    /// Sectors that a sync has covered in their places: their seals enter the cache, and they wait no longer. Those whose
    /// seal page cannot be read stay in memory and in the journal, until another time.
    pub(super) fn retire_placed(&self, log: &mut Log) -> Result<(), VolumeError> {
        if log.placed.is_empty() {
            return Ok(());
        }
        let nonces = self.standing.draw_nonces(log.placed.len())?;
        let placed = std::mem::take(&mut log.placed);
        let retiring: Vec<(Waiting, Content, u64)> = {
            let write_back = self.write_back();
            let current = placed.iter().filter_map(|waiting| {
                let journaled = write_back.still_journaled(*waiting)?;
                Some((*waiting, journaled.content.clone(), journaled.frames.newest))
            });
            current.collect()
        };
        let mut retired = Vec::with_capacity(retiring.len());
        self.with_seal_pages(retiring.iter().map(|(waiting, ..)| waiting.lba), |seals| {
            for ((waiting, content, frame), nonce) in retiring.iter().zip(nonces) {
                let place = self.layout.place(waiting.lba);
                let Some(page) = seals.get(place.seal_page) else {
                    log.placed.push(*waiting);
                    continue;
                };
                let seal = match content {
                    Content::Zero => Some(self.sealer.seal_zero(waiting.lba, nonce)),
                    Content::Sector(_, Sealed { form: SealedForm::Plain, seal }) => Some(*seal),
                    // A mark is good for every folded content of the sector. But it must be a whole one: a crash may have
                    // torn the page while the mark was being written.
                    Content::Sector(..) if self.has_fold_mark(waiting.lba, page) => None,
                    Content::Sector(..) => Some(self.sealer.fold_mark(waiting.lba, nonce)),
                };
                if let Some(seal) = seal {
                    seals.set(place.seal_page, place.seal_offset, &seal, *frame);
                }
                retired.push(*waiting);
            }
        });
        let mut write_back = self.write_back();
        retired.into_iter().for_each(|waiting| write_back.retire(waiting));
        Ok(())
    }

    fn has_fold_mark(&self, lba: Lba, page: &SealPage) -> bool {
        let slot = self.seal_in(page, &self.layout.place(lba));
        self.sealer.claimed_form(&slot) == Some(Form::FoldMark) && self.sealer.open_fold_mark(lba, &slot).is_ok()
    }

    /// Brings the seal pages of these sectors into the cache, as far as they can be read, and keeps them there while `use_`
    /// changes them.
    pub(super) fn with_seal_pages(&self, sectors: impl Iterator<Item = Lba>, use_: impl FnOnce(&mut SealCache)) {
        let missing = {
            let mut seals = self.seals();
            seals.hold(true);
            let mut missing: Vec<SealPageNumber> =
                sectors.map(|lba| self.layout.place(lba).seal_page).filter(|page| !seals.contains(*page)).collect();
            missing.sort_unstable();
            missing.dedup();
            missing
        };
        for some in missing.chunks(SEAL_PAGES_AT_ONCE) {
            if self.load_seal_pages(some).is_err() {
                // One bad page must not stand in the way of the others.
                some.iter().for_each(|page| drop(self.load_seal_pages(std::slice::from_ref(page))));
            }
        }
        let mut seals = self.seals();
        use_(&mut seals);
        seals.hold(false);
        seals.shrink();
    }

    fn load_seal_pages(&self, missing: &[SealPageNumber]) -> Result<(), StoreError> {
        let page_size = size_of::<SealPage>();
        let mut pages = AlignedBuf::new(missing.len() * page_size);
        let numbers = missing.iter();
        let mut extents: Vec<_> = numbers
            .zip(pages.chunks_exact_mut(page_size))
            .map(|(number, buf)| ReadExtent { offset: self.layout.seal_page(*number).offset, buf })
            .collect();
        self.store.read(&mut extents)?;
        drop(extents);
        let mut seals = self.seals();
        // Only the commit lock's holder changes pages, and that is us; a reader may have kept the same page meanwhile.
        for (number, page) in missing.iter().zip(pages.chunks_exact(page_size)) {
            let now = seals.changes();
            seals.keep_loaded(*number, page.first_chunk().expect("a page"), now);
        }
        Ok(())
    }

    /// Puts everything in place and frees the whole journal.
    pub(super) fn checkpoint(&self, log: &mut Log) -> Result<(), VolumeError> {
        while self.place_some(log, usize::MAX)? > 0 {}
        self.sync()?;
        self.retire_placed(log)?;
        if !log.placed.is_empty() {
            self.journal_again(log)?;
        }
        self.write_seals(log)?;
        self.record_tail(log, false)
    }

    /// Writes dirty seal pages and map pages in place, and makes them durable.
    fn write_seals(&self, log: &mut Log) -> Result<(), VolumeError> {
        let dirty = self.seals().dirty_pages();
        for some in dirty.chunks(SEAL_PAGES_AT_ONCE) {
            let mut aligned = AlignedBuf::new(some.len() * size_of::<SealPage>());
            self.seals().copy_out(some, &mut aligned);
            let mut extents = Vec::with_capacity(some.len());
            for (number, buf) in some.iter().zip(aligned.chunks_exact(size_of::<SealPage>())) {
                extents.push(WriteExtent { offset: self.layout.seal_page(*number).offset, buf });
            }
            self.store.write(&extents).map_err(|error| self.standing.store_error(error))?;
        }
        for (zone, map) in &log.maps {
            let page = AlignedBuf::from(&map.page[..]);
            let extent = WriteExtent { offset: self.layout.map_page(*zone).offset, buf: &page };
            self.store.write(&[extent]).map_err(|error| self.standing.store_error(error))?;
        }
        self.sync()?;
        self.seals().cleaned(&dirty);
        for (zone, map) in std::mem::take(&mut log.maps) {
            log.map_tags[zone.0 as usize] = self.tag_of(&map.page);
        }
        Ok(())
    }

    /// Tells the superblock from which frame on recovery must read.
    pub(super) fn record_tail(&self, log: &mut Log, clean: bool) -> Result<(), VolumeError> {
        self.wipe_stale_frame(log)?;
        let of_sectors = self.write_back().oldest_frame();
        let of_seals = self.seals().oldest_frame();
        let of_maps = log.maps.values().map(|map| map.frame).min();
        let tail = log.ring.tail_for([of_sectors, of_seals, of_maps].into_iter().flatten().min());
        let is_empty = tail == log.ring.head();
        let clean = clean && is_empty;
        let superblock = Superblock { generation: log.superblock.generation + 1, tail, clean, ..log.superblock };
        write_superblock(&*self.store, &self.layout, &self.superblock_mac, &superblock, &log.map_tags)
            .map_err(|error| self.standing.store_error(error))?;
        self.sync()?;
        log.superblock = superblock;
        log.ring.tail_recorded(tail);
        self.journal_half_full.store(log.ring.used() > log.ring.len() / 2, Ordering::Relaxed);
        if is_empty {
            log.promises = 0;
        }
        Ok(())
    }

    /// Writes everything in place and says in the superblock that nothing is left to recover.
    pub(crate) fn close(&self) -> Result<(), VolumeError> {
        if self.standing.is_read_only() {
            return Ok(());
        }
        self.flush()?;
        let mut log = self.log();
        self.checkpoint(&mut log)?;
        self.record_tail(&mut log, true)
    }

    /// Whether so much waits that background work should not.
    pub(crate) fn is_crowded(&self) -> bool {
        let count = self.pool.count();
        self.journal_half_full.load(Ordering::Relaxed)
            || self.pool.in_use() > count / 2
            || self.write_back().dirty_bound() > count / 8
    }

    /// Work that is done while nobody waits for it. `idle`: nothing was written for a while. Returns whether there was
    /// anything to do.
    pub(crate) fn tidy(&self, idle: bool) -> Result<bool, VolumeError> {
        if self.standing.is_read_only() || self.standing.failure().is_some() {
            return Ok(false);
        }
        let dirty = self.write_back().dirty_bound();
        if dirty > 0 && (idle || dirty > self.pool.count() / 8) {
            self.commit(&mut self.log())?;
            return Ok(true);
        }
        let mut log = self.log();
        let crowded = idle || self.pool.in_use() > self.pool.count() / 2;
        let full = log.ring.used() > log.ring.len() / 2 || log.promises > super::commit::MOST_PROMISES / 2;
        // A checkpoint keeps flushes waiting until it is done, so most of its work is done before, slice by slice.
        let in_slices = crowded && !log.place_later.is_empty() || full && log.place_later.len() > SLICE;
        if !log.place_soon.is_empty() || in_slices {
            self.place_some(&mut log, SLICE)?;
            if log.placed.len() >= PLACED_AT_ONCE || (log.place_later.is_empty() && log.place_soon.is_empty()) {
                self.sync()?;
                self.retire_placed(&mut log)?;
            }
            return Ok(true);
        }
        let many_seals = {
            let seals = self.seals();
            seals.dirty_count() > seals.capacity() / 2
        };
        if (idle && log.ring.used() > 0) || full || many_seals {
            self.checkpoint(&mut log)?;
            return Ok(true);
        }
        Ok(false)
    }
}
