//! Reading: from memory where a sector waits to be written, else seal and data from the store.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use sealdisk_cipher::{Form, Seal};
use sealdisk_layout::{PAGE_SIZE, SealPageNumber, SectorPlacement};
use sealdisk_store::{AlignedBuf, ReadExtent};
use sealdisk_units::{Lba, SECTOR_SIZE, StoreRange};

use super::write_back::Content;
use super::{SealedVolume, UnreadableZone};
use crate::metadata::seal_cache::SealPage;
use crate::{ReadRequest, VolumeError};

/// A sector that is wanted, and where its plaintext goes.
pub(super) struct Target<'a> {
    pub(super) lba: Lba,
    /// Which request of the batch wants it.
    pub(super) request: usize,
    pub(super) buf: &'a mut [u8],
    pub(super) source: Source,
    /// The sector's version when the source was chosen.
    pub(super) version: u64,
}

/// Seal pages that are not in memory, and the place of each among those that are fetched.
pub(super) type MissingPages = BTreeMap<SealPageNumber, usize>;

/// Where a sector's content comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// It is there: `buf` is filled.
    Done,
    /// The store: the data goes to `buf` and the seal is in a page that is not in memory.
    Store(SectorPlacement),
    /// The store, and the seal is known.
    Data(SectorPlacement, Seal),
    /// Not known yet.
    Unknown,
    /// It can only be told in the quiet, or not at all.
    Unclear,
}

impl SealedVolume {
    pub(crate) fn read(&self, batch: &mut [ReadRequest<'_>]) {
        let partial = batch.iter().flat_map(|request| request.range.pieces()).filter(|p| !p.is_whole_sector()).count();
        let mut scratch = AlignedBuf::new(partial * SECTOR_SIZE);
        let mut scratch_pages = scratch.chunks_exact_mut(SECTOR_SIZE);
        let mut targets = Vec::new();
        let mut ragged = Vec::new();
        let mut results: Vec<Result<(), VolumeError>> = Vec::with_capacity(batch.len());
        for (index, request) in batch.iter_mut().enumerate() {
            results.push(Ok(()));
            let mut rest = &mut *request.buf;
            for piece in request.range.pieces() {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(piece.in_buffer.len());
                rest = after;
                let buf = if piece.is_whole_sector() {
                    part
                } else {
                    ragged.push((targets.len(), piece.in_sector.clone(), part));
                    scratch_pages.next().expect("a scratch page for every partial sector")
                };
                let version = self.version(piece.lba).load(Ordering::SeqCst);
                targets.push(Target { lba: piece.lba, request: index, buf, source: Source::Unknown, version });
            }
        }
        self.read_sectors(&mut targets, &mut |request, error| results[request] = Err(error));
        for (target, in_sector, part) in ragged {
            part.copy_from_slice(&targets[target].buf[in_sector]);
        }
        drop(targets);
        for (request, result) in batch.iter_mut().zip(results) {
            request.result = result;
        }
    }

    /// One whole sector.
    pub(super) fn read_sector(&self, lba: Lba, buf: &mut [u8]) -> Result<(), VolumeError> {
        let mut result = Ok(());
        let version = self.version(lba).load(Ordering::SeqCst);
        let target = Target { lba, request: 0, buf, source: Source::Unknown, version };
        self.read_sectors(&mut [target], &mut |_, error| result = Err(error));
        result
    }

    fn read_sectors(&self, targets: &mut [Target<'_>], failed: &mut dyn FnMut(usize, VolumeError)) {
        self.take_waiting(targets);
        let changes = self.choose_sources(targets);
        if self.fetch(targets, changes).is_ok() {
            self.open_fetched(targets);
        }
        self.read_rest(targets, failed);
    }

    /// Opens the targets whose data and seals are here.
    pub(super) fn open_fetched(&self, targets: &mut [Target<'_>]) {
        for target in targets {
            if let Source::Data(_, seal) = target.source
                && self.sealer.open(target.lba, &seal, target.buf).is_ok()
                && (self.sealer.cipher().is_authenticated() || self.is_unchanged(target))
            {
                target.source = Source::Done;
            }
        }
    }

    /// Reads again what is not done, where nothing disturbs.
    pub(super) fn read_rest(&self, targets: &mut [Target<'_>], failed: &mut dyn FnMut(usize, VolumeError)) {
        // What is left met a concurrent write, or an I/O error of some other sector, or is not authentic. In the quiet of
        // the commit lock there is no more doubt.
        for target in targets.iter_mut().filter(|target| !matches!(target.source, Source::Done)) {
            if let Err(error) = self.read_in_the_quiet(target.lba, target.buf) {
                target.buf.fill(0);
                failed(target.request, error);
            }
        }
    }

    /// Fills in what waits in memory.
    pub(super) fn take_waiting(&self, targets: &mut [Target<'_>]) {
        let waiting: Vec<(usize, Content)> = {
            let write_back = self.write_back();
            if write_back.len() == 0 {
                return;
            }
            let found = targets.iter().enumerate();
            found.filter_map(|(i, target)| Some((i, write_back.newest(target.lba)?.clone()))).collect()
        };
        for (index, content) in waiting {
            let target = &mut targets[index];
            target.source = match self.open_waiting(target.lba, &content, target.buf) {
                Ok(()) => Source::Done,
                Err(_) => Source::Unclear,
            };
        }
    }

    fn open_waiting(&self, lba: Lba, content: &Content, buf: &mut [u8]) -> Result<(), VolumeError> {
        match content {
            Content::Zero => {
                buf.fill(0);
                Ok(())
            }
            Content::Sector(page, sealed) => {
                buf.copy_from_slice(page);
                // Fails only if memory itself was changed.
                self.sealer.open_sealed(lba, sealed, buf).map_err(|_| self.standing.not_authentic(lba))
            }
        }
    }

    /// Decides for all targets that are not done where they come from. Returns the seal cache's change count.
    pub(super) fn choose_sources(&self, targets: &mut [Target<'_>]) -> u64 {
        let map = self.map();
        let mut seals = self.seals();
        for target in targets.iter_mut().filter(|target| matches!(target.source, Source::Unknown)) {
            let object = self.layout.object_of(target.lba);
            target.source = match map.exists(&self.layout, object) {
                Err(UnreadableZone) => Source::Unclear,
                Ok(false) => {
                    target.buf.fill(0);
                    Source::Done
                }
                Ok(true) => {
                    let place = self.layout.place(target.lba);
                    match seals.get(place.seal_page) {
                        None => Source::Store(place),
                        Some(page) => Source::Data(place, self.seal_in(page, &place)),
                    }
                }
            };
        }
        seals.changes()
    }

    /// Fetches data and the seal pages that are missing, all at once.
    fn fetch(&self, targets: &mut [Target<'_>], changes: u64) -> Result<(), ()> {
        let missing = missing_pages(targets);
        let mut pages = AlignedBuf::new(missing.len() * PAGE_SIZE as usize);
        let mut extents: Vec<ReadExtent<'_>> = Vec::with_capacity(targets.len() + missing.len());
        let mut in_order: Vec<(usize, SealPageNumber)> =
            missing.iter().map(|(number, index)| (*index, *number)).collect();
        in_order.sort_unstable();
        for ((_, number), buf) in in_order.iter().zip(pages.chunks_exact_mut(PAGE_SIZE as usize)) {
            extents.push(ReadExtent { offset: self.layout.seal_page(*number).offset, buf });
        }
        for target in targets.iter_mut() {
            if let Source::Store(place) | Source::Data(place, _) = &target.source {
                extents.push(ReadExtent { offset: place.data.offset, buf: &mut *target.buf });
            }
        }
        if extents.is_empty() {
            return Ok(());
        }
        self.store.read(&mut extents).map_err(drop)?;
        drop(extents);
        self.learn_seals(targets, missing, &pages, changes);
        Ok(())
    }

    /// Pages of seals have come: the targets' seals are known, and so they are to the cache.
    pub(super) fn learn_seals(&self, targets: &mut [Target<'_>], missing: MissingPages, pages: &[u8], changes: u64) {
        let page_at = |index: usize| -> &SealPage {
            pages[index * PAGE_SIZE as usize..].first_chunk().expect("a page for every missing number")
        };
        for target in targets.iter_mut() {
            if let Source::Store(place) = target.source {
                target.source = Source::Data(place, self.seal_in(page_at(missing[&place.seal_page]), &place));
            }
        }
        if !missing.is_empty() {
            let mut seals = self.seals();
            for (number, index) in missing {
                seals.keep_loaded(number, page_at(index), changes);
            }
            seals.shrink();
        }
    }

    /// Whether the seal says, and can say, that the sector is zero. If it is, its place is zero too.
    pub(super) fn is_zero_seal(&self, lba: Lba, seal: &Seal) -> bool {
        self.sealer.claimed_form(seal) == Some(Form::Zero) && self.sealer.open_zero(lba, seal).is_ok()
    }

    /// The sector's seal in its page.
    pub(super) fn seal_in(&self, page: &SealPage, place: &SectorPlacement) -> Seal {
        Seal::from_slice(&page[place.seal_offset..place.seal_offset + self.layout.seal_len()])
    }

    /// Whether nobody wrote the sector since its source was chosen.
    fn is_unchanged(&self, target: &Target<'_>) -> bool {
        self.version(target.lba).load(Ordering::SeqCst) == target.version
    }

    /// Reads one sector while nothing is being written to the store.
    fn read_in_the_quiet(&self, lba: Lba, buf: &mut [u8]) -> Result<(), VolumeError> {
        let _quiet = self.log();
        let waiting = self.write_back().newest(lba).cloned();
        if let Some(content) = waiting {
            return self.open_waiting(lba, &content, buf);
        }
        match self.map().exists(&self.layout, self.layout.object_of(lba)) {
            Err(UnreadableZone) => return Err(self.standing.not_authentic(lba)),
            Ok(false) => {
                buf.fill(0);
                return Ok(());
            }
            Ok(true) => {}
        }
        let place = self.layout.place(lba);
        let unreadable = |source| self.standing.unreadable(lba, source);
        let cached = self.seals().get(place.seal_page).map(|page| self.seal_in(page, &place));
        let seal = match cached {
            Some(seal) => seal,
            None => {
                let page = self.load_page(self.layout.seal_page(place.seal_page)).map_err(unreadable)?;
                self.seal_in(&page, &place)
            }
        };
        self.store.read(&mut [ReadExtent { offset: place.data.offset, buf }]).map_err(unreadable)?;
        self.sealer.open(lba, &seal, buf).map_err(|_| self.standing.not_authentic(lba))
    }

    /// One page of the store.
    pub(super) fn load_page(&self, range: StoreRange) -> Result<Box<SealPage>, sealdisk_store::StoreError> {
        let mut buf = AlignedBuf::new(PAGE_SIZE as usize);
        self.store.read(&mut [ReadExtent { offset: range.offset, buf: &mut buf }])?;
        Ok(Box::new(buf[..].try_into().expect("a page")))
    }
}

/// The seal pages that the targets need and that are not in memory.
pub(super) fn missing_pages(targets: &[Target<'_>]) -> MissingPages {
    let mut missing = MissingPages::new();
    for target in targets {
        if let Source::Store(place) = &target.source {
            let next = missing.len();
            missing.entry(place.seal_page).or_insert(next);
        }
    }
    missing
}
