//! Zeroing and discarding: whole objects cease to exist, single sectors are sealed as zero.

use std::sync::atomic::Ordering;

use sealdisk_cipher::is_zero;
use sealdisk_layout::{ObjectNumber, PAGE_SIZE, SealPageNumber};
use sealdisk_store::{AlignedBuf, ReadExtent};
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE, SectorRange, StoreRange};

use super::append::{Draft, Promises};
use super::write_back::Content;
use super::{SealedVolume, UnreadableZone};
use crate::journal::record::Record;
use crate::{Allocation, Space, VolumeError, WriteRequest};

/// Zeros that are written where space is to be kept.
static ZEROS: [u8; 64 * SECTOR_SIZE] = [0; 64 * SECTOR_SIZE];

impl SealedVolume {
    /// Makes the range read as zeros.
    pub(crate) fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        self.standing.check_writable()?;
        if space == Space::Keep {
            return self.write_zero_bytes(range);
        }
        for piece in range.ragged_pieces() {
            self.write_partial(&piece, |sector| sector[piece.in_sector.clone()].fill(0))?;
        }
        let whole = range.whole_sectors();
        // A range that reaches the end of the disk reaches the end of the last object.
        let reach = if range.end() == self.size && !range.is_empty() {
            let last = range.touched_sectors().iter().next_back().expect("the range is not empty");
            self.layout.sectors_of(self.layout.object_of(last)).end()
        } else {
            whole.end()
        };
        let reach = SectorRange::new(whole.first(), reach.0.saturating_sub(whole.first().0));
        let objects = self.layout.whole_objects(reach);
        if objects.is_empty() {
            return self.zero_sectors(whole);
        }
        let first = self.layout.sectors_of(ObjectNumber(objects.start)).first();
        let last = self.layout.sectors_of(ObjectNumber(objects.end - 1)).end();
        self.zero_sectors(SectorRange::new(whole.first(), first.0 - whole.first().0))?;
        self.zero_sectors(SectorRange::new(last, whole.end().0.saturating_sub(last.0)))?;
        self.drop_objects(objects)
    }

    fn write_zero_bytes(&self, range: ByteRange) -> Result<(), VolumeError> {
        let mut offset = range.offset();
        while offset < range.end() {
            let len = (range.end() - offset).min(ZEROS.len() as u64);
            let part = ByteRange::checked(offset, len, self.size).expect("part of a checked range");
            let mut batch = [WriteRequest::new(part, &ZEROS[..len as usize])];
            self.write(&mut batch);
            let [request] = batch;
            request.result?;
            offset += len;
        }
        Ok(())
    }

    /// Sectors of at most two objects' ragged ends.
    fn zero_sectors(&self, sectors: SectorRange) -> Result<(), VolumeError> {
        if sectors.is_empty() {
            return Ok(());
        }
        self.write_zeros(sectors)
    }

    /// Whole objects cease to exist, zone by zone: durable when this returns.
    fn drop_objects(&self, objects: std::ops::Range<u64>) -> Result<(), VolumeError> {
        let mut start = objects.start;
        let mut dropped = Ok(());
        while start < objects.end {
            let zone_end = (start / sealdisk_layout::OBJECTS_PER_ZONE + 1) * sealdisk_layout::OBJECTS_PER_ZONE;
            let end = objects.end.min(zone_end);
            dropped = dropped.and(self.drop_objects_of_zone(start..end));
            start = end;
        }
        dropped
    }

    fn drop_objects_of_zone(&self, objects: std::ops::Range<u64>) -> Result<(), VolumeError> {
        let first = self.layout.sectors_of(ObjectNumber(objects.start)).first();
        let end = self.layout.sectors_of(ObjectNumber(objects.end - 1)).end();
        let sectors = SectorRange::new(first, end.0 - first.0);
        let mut log = self.log();
        let existing: Vec<ObjectNumber> = {
            let map = self.map();
            let numbers = objects.clone().map(ObjectNumber);
            let existing = numbers.filter_map(|object| match map.exists(&self.layout, object) {
                Ok(true) => Some(Ok(object)),
                Ok(false) => None,
                Err(UnreadableZone) => Some(Err(self.standing.not_authentic(self.layout.sectors_of(object).first()))),
            });
            existing.collect::<Result<_, _>>()?
        };
        if !existing.is_empty() {
            let maps = self.changed_maps(&existing, false)?;
            let sequence = {
                let mut draft = Draft::default();
                let count = objects.end - objects.start;
                draft.records.push(Record::Drop { first: ObjectNumber(objects.start), count });
                for (zone, _, page) in &maps {
                    draft.push(Record::Map { zone: *zone, tag: self.tag_of(page) }, &page[..]);
                }
                self.write_frame(&mut log, &draft, Promises::Later)?
            };
            self.adopt_maps(&mut log, maps, sequence);
        }
        self.forget_sectors(sectors);
        let pages = self.layout.seal_pages_per_object();
        self.seals().forget(objects.start * pages..objects.end * pages);
        // What lies there is no longer of use to anyone. The objects are gone even if freeing their space fails.
        let mut freed = Ok(());
        log.freed = true;
        for run in runs(&existing) {
            let (first, last) = (self.layout.object(run.0), self.layout.object(run.1));
            let range = StoreRange::new(first.offset, last.end() - first.offset);
            freed = freed.and(self.store.zero(range).map_err(|error| self.standing.store_error(error)));
        }
        freed
    }

    fn forget_sectors(&self, sectors: SectorRange) {
        let mut write_back = self.write_back();
        write_back.forget(sectors);
        // As many consecutive sectors as there are stripes touch every stripe.
        for lba in sectors.iter().take(self.versions.len()) {
            self.version(lba).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Which parts of the range are known to be zero and take no space.
    pub(crate) fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        /// Stretches in one answer at most.
        const STRETCHES: usize = 512;
        let mut stretches: Vec<Allocation> = Vec::new();
        let mut lba = range.touched_sectors().first();
        let end = range.touched_sectors().end();
        while lba < end {
            let object = self.layout.object_of(lba);
            let of_object = self.layout.sectors_of(object).end().min(end);
            let exists = self.map().exists(&self.layout, object);
            let (until, hole) = match exists {
                Err(UnreadableZone) => (of_object, false),
                Ok(false) => self.waiting_stretch(lba, of_object),
                Ok(true) => self.sealed_stretch(lba, of_object)?,
            };
            let bytes = |lba: Lba| (lba.0 * SECTOR_SIZE as u64).clamp(range.offset(), range.end());
            let len = bytes(until) - bytes(lba);
            let full = stretches.len() == STRETCHES;
            match stretches.last_mut() {
                Some(last) if last.hole == hole => last.len += len,
                _ if full => break,
                _ => stretches.push(Allocation { len, hole }),
            }
            lba = until;
        }
        Ok(stretches)
    }

    /// In an object that does not exist: whether `lba` waits to be written, and up to where its neighbours are alike.
    fn waiting_stretch(&self, lba: Lba, end: Lba) -> (Lba, bool) {
        let write_back = self.write_back();
        let is_hole = |lba| !matches!(write_back.newest(lba), Some(Content::Sector(..)));
        if write_back.len() == 0 {
            return (end, true);
        }
        let hole = is_hole(lba);
        let until = (lba.0 + 1..end.0).map(Lba).find(|next| is_hole(*next) != hole);
        (until.unwrap_or(end), hole)
    }

    /// In an existing object: whether `lba` is zero, and up to where its neighbours are alike.
    fn sealed_stretch(&self, lba: Lba, end: Lba) -> Result<(Lba, bool), VolumeError> {
        let page = self.layout.place(lba).seal_page;
        let end = end.min(self.layout.sectors_of_seal_page(page).end());
        let claims = self.claims(SectorRange::new(lba, end.0 - lba.0), page)?;
        let until = claims.iter().position(|claim| *claim != claims[0]).map_or(end, |run| Lba(lba.0 + run as u64));
        let hole = match claims[0] {
            Claim::Data => false,
            Claim::WillBeZero => true,
            // A client that is told of a hole does not read it, and would not hear that the seal is an old one.
            Claim::SealedAsZero => self.places_are_zero(SectorRange::new(lba, until.0 - lba.0))?,
        };
        Ok((until, hole))
    }

    /// What is said of sectors that share a page of seals.
    fn claims(&self, sectors: SectorRange, number: SealPageNumber) -> Result<Vec<Claim>, VolumeError> {
        let cached = self.seals().get(number).copied();
        let page = match cached {
            Some(page) => Box::new(page),
            None => {
                let changes = self.seals().changes();
                let page =
                    self.load_page(self.layout.seal_page(number)).map_err(|error| self.standing.store_error(error))?;
                self.seals().keep_loaded(number, &page, changes);
                page
            }
        };
        let write_back = self.write_back();
        let claims = sectors.iter().map(|lba| match write_back.newest(lba) {
            Some(Content::Zero) => Claim::WillBeZero,
            Some(Content::Sector(..)) => Claim::Data,
            None if self.is_zero_seal(lba, &self.seal_in(&page, &self.layout.place(lba))) => Claim::SealedAsZero,
            None => Claim::Data,
        });
        Ok(claims.collect())
    }

    /// Whether the places of these neighbours in one object hold zeros.
    fn places_are_zero(&self, sectors: SectorRange) -> Result<bool, VolumeError> {
        let range = StoreRange::new(self.layout.place(sectors.first()).data.offset, sectors.count() * PAGE_SIZE);
        let allocated = self.store.is_allocated(range).map_err(|error| self.standing.store_error(error))?;
        if !allocated {
            return Ok(true);
        }
        let mut buf = AlignedBuf::new(range.len as usize);
        self.store
            .read(&mut [ReadExtent { offset: range.offset, buf: &mut buf }])
            .map_err(|error| self.standing.store_error(error))?;
        Ok(is_zero(&buf))
    }
}

/// What is said of a sector of an existing object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    Data,
    /// It waits to become zero, whatever is in its place.
    WillBeZero,
    /// Its seal says so.
    SealedAsZero,
}

/// Runs of consecutive objects in one zone, as first and last.
fn runs(objects: &[ObjectNumber]) -> Vec<(ObjectNumber, ObjectNumber)> {
    let mut runs: Vec<(ObjectNumber, ObjectNumber)> = Vec::new();
    for object in objects {
        match runs.last_mut() {
            Some((_, last)) if last.0 + 1 == object.0 => *last = *object,
            _ => runs.push((*object, *object)),
        }
    }
    runs
}
