//! Commits: what waits in memory becomes durable with one sequential write to the journal and one sync.
//!
//! A journal frame records a sector in one of two ways. With its data: a few sectors, or sectors that a crash could tear
//! while they are overwritten. Or by its seal alone: then the data is written in place with the next commit, whose sync
//! covers it; should the crash come between, recovery finds either the old sector in place, which its old seal opens, or
//! the new one.

use std::sync::atomic::Ordering;

use sealdisk_layout::PAGE_SIZE;
use sealdisk_units::Lba;

use super::append::{Draft, Promises};
use super::objects::Creation;
use super::write_back::{Content, Waiting};
use super::{Log, SealedVolume};
use crate::VolumeError;
use crate::journal::record::Record;

/// From so many sectors on, writing them twice costs more than writing them to their places at once.
const IN_PLACE_FROM: usize = 64;

/// Objects that one frame creates at most: each brings 48 KiB of seals into memory.
const CREATIONS_PER_FRAME: usize = 64;

/// Sectors journaled by seal only after which a checkpoint is made, so that recovery need not look at more.
pub(super) const MOST_PROMISES: usize = 128 << 10;

/// What a crash leaves of a sector that is being written in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    /// The old sector or the new one.
    Whole,
    /// Perhaps neither; but the old one was zero, and the journal can say so.
    Zeros,
    /// Perhaps neither.
    Tears,
}

impl SealedVolume {
    /// Makes everything durable whose write had returned before this call.
    pub(crate) fn flush(&self) -> Result<(), VolumeError> {
        if self.standing.is_read_only() {
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
        self.standing.check_writable()
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
        self.standing.check_writable()?;
        let limit = self.sectors_per_frame(log);
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
        let creation = self.create_objects(&taken)?;
        let mut draft = Draft::default();
        draft.records.extend(creation.objects.iter().map(|object| Record::Create { object: *object }));
        for (zone, _, page) in &creation.zones {
            draft.push(Record::Map { zone: *zone, tag: self.tag_of(page) }, &page[..]);
        }
        let many = taken.len() >= IN_PLACE_FROM;
        let overwrites: Vec<Overwrite> = taken
            .iter()
            .map(|(waiting, content)| match content {
                Content::Sector(..) if many => self.overwrite(waiting.lba, &creation),
                _ => Overwrite::Tears,
            })
            .collect();
        // What is written over zeros may be torn; then it is zero still.
        for ((waiting, _), _) in taken.iter().zip(&overwrites).filter(|(_, overwrite)| **overwrite == Overwrite::Zeros)
        {
            draft.push_zero(waiting.lba);
        }
        for ((waiting, content), overwrite) in taken.iter().zip(&overwrites) {
            match content {
                Content::Zero => draft.push_zero(waiting.lba),
                Content::Sector(page, sealed) if *overwrite == Overwrite::Tears => {
                    let check = self.check_of(page)?;
                    draft.push(Record::Data { lba: waiting.lba, sealed: *sealed, check }, page);
                }
                Content::Sector(_, sealed) => {
                    draft.records.push(Record::InPlace { lba: waiting.lba, sealed: *sealed });
                }
            }
        }
        self.clear_places(log, &creation.objects)?;
        let sequence = self.write_frame(log, &draft, Promises::Keep)?;
        drop(draft);

        {
            let mut seals = self.seals();
            for (number, page) in creation.seal_pages {
                seals.insert_new(number, &page, sequence);
            }
        }
        self.adopt_maps(log, creation.zones, sequence);
        let mut write_back = self.write_back();
        idle.iter().for_each(|(waiting, _)| write_back.retire(*waiting));
        for ((waiting, content), overwrite) in taken.into_iter().zip(overwrites) {
            let with_data = overwrite == Overwrite::Tears;
            write_back.set_journaled(*waiting, content.clone(), sequence, with_data);
            log.promises += usize::from(!with_data);
            let list = if with_data { &mut log.place_later } else { &mut log.place_soon };
            list.push(*waiting);
        }
        Ok(true)
    }

    /// What a crash while the sector is written in place would leave.
    fn overwrite(&self, lba: Lba, creation: &Creation) -> Overwrite {
        if !self.sealer.cipher().is_authenticated() {
            // Recovery could not tell whether what lies there is the old sector or the new one.
            return Overwrite::Tears;
        }
        if self.store.write_atomicity() >= PAGE_SIZE as u32 {
            return Overwrite::Whole;
        }
        if creation.objects.binary_search(&self.layout.object_of(lba)).is_ok() {
            return Overwrite::Zeros;
        }
        let place = self.layout.place(lba);
        let slot = self.seals().get(place.seal_page).map(|page| self.seal_in(page, &place));
        let journaled = self.write_back().journaled(lba).is_some();
        let zero = !journaled && slot.is_some_and(|slot| self.is_zero_seal(lba, &slot));
        if zero { Overwrite::Zeros } else { Overwrite::Tears }
    }
}
