//! Commits: what waits in memory becomes durable with one sequential write to the journal and one sync.
//!
//! A journal frame records a sector in one of two ways. With its data: a few sectors, or sectors that a crash could tear
//! while they are overwritten. Or by its seal alone: then the data is written in place with the next commit, whose sync
//! covers it; should the crash come between, recovery finds either the old sector in place, which its old seal opens, or
//! the new one.

use std::sync::atomic::Ordering;

use sealdisk_cipher::Seal;
use sealdisk_layout::{JournalTail, ObjectNumber, PAGE_SIZE, SealPageNumber, ZoneMap, ZoneNumber};
use sealdisk_store::{AlignedBuf, Operation, StoreError, WriteExtent};
use sealdisk_units::{Lba, SectorRange};

use super::seal_cache::SealPage;
use super::write_back::{Content, Waiting, objects_of};
use super::{Log, MapPage, SealedVolume, UnreadableZone};
use crate::VolumeError;
use crate::journal::frame::{FrameHeader, LIST_OFFSET, PAGE};
use crate::journal::record::Record;

/// Sectors in one frame at most: 8 MiB of data.
const SECTORS_PER_FRAME: usize = 2048;

/// From so many sectors on, writing them twice costs more than writing them to their places at once.
const IN_PLACE_FROM: usize = 64;

/// Objects that one frame creates at most: each brings 48 KiB of seals into memory.
const CREATIONS_PER_FRAME: usize = 64;

/// Sectors journaled by seal only after which a checkpoint is made, so that recovery need not look at more.
pub(super) const MOST_PROMISES: usize = 128 << 10;

/// Whether what frames before promised to put in place is written together with a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Promises {
    /// Yes: the frame's sync makes it durable.
    Keep,
    /// No: the frame gives space back, and must not need any.
    Later,
}

/// A frame being put together.
#[derive(Default)]
pub(super) struct Draft<'a> {
    pub(super) records: Vec<Record>,
    /// Payload pages in the order of the records that have one.
    pub(super) payload: Vec<&'a [u8]>,
}

/// What creating objects brings with it.
#[derive(Default)]
struct Creation {
    objects: Vec<ObjectNumber>,
    zones: Vec<(ZoneNumber, ZoneMap, Box<SealPage>)>,
    seal_pages: Vec<(SealPageNumber, Box<SealPage>)>,
}

impl SealedVolume {
    /// Makes everything durable whose write had returned before this call.
    pub(crate) fn flush(&self) -> Result<(), VolumeError> {
        if self.read_only {
            return Ok(());
        }
        let wanted = self.write_back().last_stamp();
        // Concurrent flushes share a commit: whoever comes second finds that the first has done the work.
        while self.durable_stamp.load(Ordering::SeqCst) < wanted {
            let mut log = self.log();
            if self.durable_stamp.load(Ordering::SeqCst) >= wanted {
                break;
            }
            if log.journaled_stamp < wanted {
                self.commit(&mut log)?;
            } else {
                self.settle(&mut log)?;
            }
        }
        self.check_writable()
    }

    /// Makes durable what is journaled by seal only: its data goes in place.
    fn settle(&self, log: &mut Log) -> Result<(), VolumeError> {
        self.wipe_stale_frame(log)?;
        self.place_some(log, 0)?;
        self.sync()?;
        self.durable_stamp.fetch_max(log.journaled_stamp, Ordering::SeqCst);
        self.retire_placed(log)
    }

    /// Commits up to a frame's worth of waiting sectors. Returns how many.
    pub(super) fn commit(&self, log: &mut Log) -> Result<usize, VolumeError> {
        self.check_writable()?;
        let limit = SECTORS_PER_FRAME.min(log.ring.len() as usize / PAGE / 8).max(1);
        let mut taken = self.write_back().take_dirty(limit);
        let fitting = self.fitting(&taken);
        let handled = {
            let mut write_back = self.write_back();
            write_back.give_back(&taken[fitting..]);
            write_back.oldest_dirty_stamp().map_or(write_back.last_stamp(), |oldest| oldest - 1)
        };
        taken.truncate(fitting);
        match self.commit_taken(log, &taken) {
            Ok(synced) => {
                // What was journaled by seal before this commit is in place and durable since the commit's sync, if there
                // was one: nothing is synced for zeros that are there already.
                if synced {
                    let durable = if log.place_soon.is_empty() { handled } else { log.journaled_stamp };
                    self.durable_stamp.fetch_max(durable, Ordering::SeqCst);
                }
                log.journaled_stamp = log.journaled_stamp.max(handled);
                let many_seals = {
                    let seals = self.seals();
                    seals.dirty_count() > seals.capacity() / 4 * 3
                };
                let nearly_full = log.ring.used() > log.ring.len() / 4 * 3;
                if many_seals || nearly_full || log.promises > MOST_PROMISES {
                    self.checkpoint(log)?;
                }
                Ok(taken.len())
            }
            Err(error) => {
                self.write_back().give_back(&taken);
                Err(error)
            }
        }
    }

    /// How many of these, from the first on, fit into one frame.
    fn fitting(&self, taken: &[(Waiting, Content)]) -> usize {
        let map = self.map();
        let mut created = std::collections::HashSet::new();
        let too_many = taken.iter().position(|(waiting, content)| {
            let object = self.layout.object_of(waiting.lba);
            matches!(content, Content::Sector(..))
                && matches!(map.exists(&self.layout, object), Ok(false))
                && created.insert(object)
                && created.len() > CREATIONS_PER_FRAME
        });
        too_many.unwrap_or(taken.len())
    }

    /// Commits these sectors. Returns whether anything was written and synced.
    fn commit_taken(&self, log: &mut Log, taken: &[(Waiting, Content)]) -> Result<bool, VolumeError> {
        // Zeros for an object that does not exist are there already.
        let (taken, idle): (Vec<_>, Vec<_>) = taken.iter().partition(|(waiting, content)| {
            matches!(content, Content::Sector(..)) || self.object_exists(self.layout.object_of(waiting.lba))
        });
        if taken.is_empty() {
            let mut write_back = self.write_back();
            idle.iter().for_each(|(waiting, _)| write_back.retire(*waiting));
            return Ok(false);
        }
        let sequence = log.ring.head().sequence;
        let creation = self.create_objects(&taken)?;
        let mut draft = Draft::default();
        draft.records.extend(creation.objects.iter().map(|object| Record::Create { object: *object }));
        for (zone, _, page) in &creation.zones {
            draft.push(Record::Map { zone: *zone }, &page[..]);
        }
        // For each taken sector, whether the frame holds its data.
        let mut with_data = Vec::with_capacity(taken.len());
        let many = taken.len() >= IN_PLACE_FROM;
        for (waiting, content) in &taken {
            match content {
                Content::Zero => {
                    draft.push_zero(waiting.lba);
                    with_data.push(true);
                }
                Content::Sector(_, sealed) if many && self.survives_tearing(waiting.lba, &creation) => {
                    draft.records.push(Record::InPlace { lba: waiting.lba, sealed: *sealed });
                    with_data.push(false);
                }
                Content::Sector(page, sealed) => {
                    let check = self.check_of(page)?;
                    draft.push(Record::Data { lba: waiting.lba, sealed: *sealed, check }, page);
                    with_data.push(true);
                }
            }
        }
        self.write_frame(log, &draft, Promises::Keep)?;
        drop(draft);

        {
            let mut seals = self.seals();
            for (number, page) in creation.seal_pages {
                seals.insert_new(number, page, sequence);
            }
        }
        self.adopt_maps(log, creation.zones, sequence);
        let mut write_back = self.write_back();
        idle.iter().for_each(|(waiting, _)| write_back.retire(*waiting));
        for ((waiting, content), with_data) in taken.into_iter().zip(with_data) {
            write_back.set_journaled(*waiting, content.clone(), sequence, with_data);
            log.promises += usize::from(!with_data);
            let list = if with_data { &mut log.place_later } else { &mut log.place_soon };
            list.push(*waiting);
        }
        Ok(true)
    }

    /// Writes a frame, together with what frames before promised to put in place, and syncs.
    pub(super) fn write_frame(&self, log: &mut Log, draft: &Draft<'_>, promises: Promises) -> Result<(), VolumeError> {
        if log.ring.place(draft.frame_len()).is_none() {
            self.checkpoint(log)?;
        }
        if self.append_frame(log, draft, promises)? { Ok(()) } else { Err(self.journal_is_full(log)) }
    }

    /// As [`write_frame`](Self::write_frame), where there is room for the frame; returns whether there was.
    fn append_frame(&self, log: &mut Log, draft: &Draft<'_>, promises: Promises) -> Result<bool, VolumeError> {
        let Some(slot) = log.ring.place(draft.frame_len()) else { return Ok(false) };
        self.wipe_stale_frame(log)?;
        let list = draft.list();
        let frame_len = draft.frame_len();
        let JournalTail { sequence, previous_tag, .. } = log.ring.head();
        let header = FrameHeader {
            sequence,
            previous_tag,
            list_len: list.len() as u32,
            payload_pages: draft.payload.len() as u32,
        };
        debug_assert_eq!(header.frame_len(), frame_len);
        let mut first_part = AlignedBuf::new(header.list_end());
        let nonce = self.draw_nonces(1)?.next().expect("one nonce was asked for");
        let tag = self.codec.seal(&header, slot.position, &list, nonce, &mut first_part);

        let start = self.layout.journal().offset + slot.position;
        let mut extents = Vec::with_capacity(1 + draft.payload.len());
        extents.push(WriteExtent { offset: start, buf: &first_part });
        let pages = draft.payload.iter().enumerate();
        let payload_start = start + header.list_end() as u64;
        extents.extend(pages.map(|(i, buf)| WriteExtent { offset: payload_start + (i * PAGE) as u64, buf }));

        let promised = match promises {
            Promises::Keep => self.sectors_to_place(std::mem::take(&mut log.place_soon)),
            Promises::Later => Vec::new(),
        };
        extents.extend(promised.iter().map(|place| place.extent(&self.layout)));
        if let Err(error) = self.store.write(&extents) {
            log.stale_frame = Some(slot.position);
            log.place_soon.extend(promised.iter().map(|place| place.waiting));
            return Err(self.store_error(error));
        }
        log.placed.extend(promised.iter().map(|place| place.waiting));
        self.sync()?;
        log.ring.append(slot, frame_len, tag);
        // What lay in place before this sync is durable now. Should nonces be wanting for its marks, it stays in memory and
        // in the journal until the next time; this frame is durable all the same.
        let _ = self.retire_placed(log);
        Ok(true)
    }

    /// Journals anew what is in place and cannot leave the journal, because its seal pages cannot be read. Otherwise the
    /// frames that hold it would fill the journal for good.
    pub(super) fn journal_again(&self, log: &mut Log) -> Result<(), VolumeError> {
        let stuck: Vec<(Waiting, Content)> = {
            let write_back = self.write_back();
            let content = |waiting: &Waiting| Some((*waiting, write_back.still_journaled(*waiting)?.content.clone()));
            log.placed.iter().filter_map(content).collect()
        };
        for some in stuck.chunks(SECTORS_PER_FRAME.min(log.ring.len() as usize / PAGE / 8).max(1)) {
            let sequence = log.ring.head().sequence;
            let mut draft = Draft::default();
            for (waiting, content) in some {
                match content {
                    Content::Zero => draft.push_zero(waiting.lba),
                    Content::Sector(page, sealed) => {
                        let check = self.check_of(page)?;
                        draft.push(Record::Data { lba: waiting.lba, sealed: *sealed, check }, page);
                    }
                }
            }
            let placed = std::mem::take(&mut log.placed);
            let appended = self.append_frame(log, &draft, Promises::Later);
            log.placed.extend(placed);
            if !appended? {
                return Ok(());
            }
            let mut write_back = self.write_back();
            for (waiting, content) in some {
                write_back.set_journaled(*waiting, content.clone(), sequence, true);
                write_back.set_placed(*waiting);
            }
        }
        Ok(())
    }

    /// Wipes what a failed write may have left of a frame: it must not be found in place of the frame that takes its
    /// number.
    pub(super) fn wipe_stale_frame(&self, log: &mut Log) -> Result<(), VolumeError> {
        let Some(position) = log.stale_frame else { return Ok(()) };
        let nothing = AlignedBuf::new(PAGE);
        let extent = WriteExtent { offset: self.layout.journal().offset + position, buf: &nothing };
        self.store.write(&[extent]).map_err(|error| self.store_error(error))?;
        self.sync()?;
        log.stale_frame = None;
        Ok(())
    }

    /// Why there is no room in the journal although a checkpoint was made: it needs frames of sectors whose seal pages
    /// cannot be read.
    fn journal_is_full(&self, log: &Log) -> VolumeError {
        let unread = log.placed.first().map(|waiting| self.layout.place(waiting.lba).seal_page);
        let read = unread.map(|page| self.load_page(self.layout.seal_page(page)));
        let source = match read {
            Some(Err(error)) => error,
            _ => StoreError::new(Operation::Write(self.layout.journal()), std::io::ErrorKind::StorageFull),
        };
        self.store_error(source)
    }

    /// Whether a crash while the sector is written in place leaves the old sector or the new one.
    fn survives_tearing(&self, lba: Lba, creation: &Creation) -> bool {
        if !self.sealer.cipher().is_authenticated() {
            // Recovery could not tell which of the two lies there.
            return false;
        }
        if self.store.write_atomicity() >= PAGE_SIZE as u32 {
            return true;
        }
        // What is sealed as zero has no data to tear.
        if creation.objects.binary_search(&self.layout.object_of(lba)).is_ok() {
            return true;
        }
        let place = self.layout.place(lba);
        let slot = self.seals().get(place.seal_page).map(|page| self.seal_in(page, &place));
        let journaled = self.write_back().journaled(lba).is_some();
        !journaled && slot.is_some_and(|slot| self.is_zero_seal(lba, &slot))
    }

    /// What vouches for a payload page where the sector's own seal does not.
    fn check_of(&self, page: &[u8]) -> Result<Option<Seal>, VolumeError> {
        if self.codec.format.check_len == 0 {
            return Ok(None);
        }
        let nonce = self.draw_nonces(1)?.next().expect("one nonce was asked for");
        Ok(Some(self.codec.cipher.seal(page, nonce, &mut [])))
    }

    pub(super) fn object_exists(&self, object: ObjectNumber) -> bool {
        matches!(self.map().exists(&self.layout, object), Ok(true))
    }

    /// Prepares the objects that sectors lie in and that do not exist yet: their seal pages, every sector zero, and the
    /// map pages that will say that they exist.
    fn create_objects(&self, taken: &[&(Waiting, Content)]) -> Result<Creation, VolumeError> {
        let mut creation = Creation::default();
        for object in objects_of(taken.iter().map(|(waiting, _)| waiting.lba), |lba| self.layout.object_of(lba)) {
            let exists = self.map().exists(&self.layout, object);
            match exists {
                Ok(true) => {}
                Ok(false) => creation.objects.push(object),
                Err(UnreadableZone) => return Err(self.not_authentic(self.layout.sectors_of(object).first())),
            }
        }
        for object in &creation.objects {
            creation.seal_pages.extend(self.zero_seal_pages(*object)?);
        }
        creation.zones = self.changed_maps(&creation.objects, true)?;
        Ok(creation)
    }

    /// The seal pages of an object in which every sector is zero.
    pub(super) fn zero_seal_pages(
        &self,
        object: ObjectNumber,
    ) -> Result<Vec<(SealPageNumber, Box<SealPage>)>, VolumeError> {
        let mut nonces = self.draw_nonces(self.layout.sectors_per_object() as usize)?;
        let pages = self.layout.seal_pages_of(object).map(|number| {
            let mut page = Box::new([0; PAGE_SIZE as usize]);
            for (lba, nonce) in self.layout.sectors_of_seal_page(number).iter().zip(&mut nonces) {
                let seal = self.sealer.seal_zero(lba, nonce);
                page[self.layout.place(lba).seal_offset..][..self.layout.seal_len()].copy_from_slice(seal.as_bytes());
            }
            (number, page)
        });
        Ok(pages.collect())
    }

    /// The map pages of the zones of `objects`, with the objects' bits changed.
    pub(super) fn changed_maps(
        &self,
        objects: &[ObjectNumber],
        exist: bool,
    ) -> Result<Vec<(ZoneNumber, ZoneMap, Box<SealPage>)>, VolumeError> {
        let mut changed: Vec<(ZoneNumber, ZoneMap)> = Vec::new();
        let map = self.map();
        for object in objects {
            let zone = self.layout.zone_of(*object);
            if changed.last().is_none_or(|(last, _)| *last != zone) {
                let current = map.zones[zone.0 as usize].clone().expect("the caller has found the zone readable");
                changed.push((zone, current));
            }
            changed.last_mut().expect("pushed above").1.set(*object, exist);
        }
        let nonces = self.draw_nonces(changed.len())?;
        let sealed = changed.into_iter().zip(nonces).map(|((zone, bits), nonce)| {
            let page = Box::new(bits.seal(&self.codec.cipher, self.codec.lineage, zone, nonce));
            (zone, bits, page)
        });
        Ok(sealed.collect())
    }

    /// Map pages that a durable frame holds become the truth.
    pub(super) fn adopt_maps(&self, log: &mut Log, zones: Vec<(ZoneNumber, ZoneMap, Box<SealPage>)>, frame: u64) {
        let mut map = self.map_mut();
        for (zone, bits, page) in zones {
            map.zones[zone.0 as usize] = Some(bits);
            log.maps.insert(zone, MapPage { page, frame });
        }
    }
}

impl<'a> Draft<'a> {
    /// The records as they are sealed.
    fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        self.records.iter().for_each(|record| record.encode(&mut list));
        list
    }

    /// Bytes of the frame.
    fn frame_len(&self) -> u64 {
        ((LIST_OFFSET + self.list().len()).next_multiple_of(PAGE) + self.payload.len() * PAGE) as u64
    }

    /// Adds a record with its payload page.
    pub(super) fn push(&mut self, record: Record, page: &'a [u8]) {
        self.records.push(record);
        self.payload.push(page);
    }

    /// Adds a zero sector, to the run before it where it continues one.
    fn push_zero(&mut self, lba: Lba) {
        if let Some(Record::Zero { sectors }) = self.records.last_mut()
            && sectors.end() == lba
        {
            *sectors = SectorRange::new(sectors.first(), sectors.count() + 1);
        } else {
            self.records.push(Record::Zero { sectors: SectorRange::new(lba, 1) });
        }
    }
}
