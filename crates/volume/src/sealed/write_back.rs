//! Sectors whose newest content is not yet in place: the disk's write cache, already sealed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sealdisk_cipher::Sealed;
use sealdisk_layout::ObjectNumber;
use sealdisk_units::{Lba, SectorRange};

use super::page_pool::Page;

/// What a sector is to become.
#[derive(Clone)]
pub(crate) enum Content {
    /// This ciphertext, under this seal.
    Sector(Arc<Page>, Sealed),
    /// Zeros.
    Zero,
}

/// A sector and when its content was written. Stamps are unique and rise, so they tell whether a content is still the
/// one that was seen before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) lba: Lba,
    pub(crate) stamp: u64,
}

/// The journal frames that recovery may need for a sector: its newest durable content is in `newest`; where that frame
/// holds only a seal and the data is not surely in place, the content before it is in or after `oldest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

/// Content that a synced journal frame holds, with its data or by its seal, and that is not surely in place.
pub(crate) struct Journaled {
    pub(crate) content: Content,
    pub(crate) stamp: u64,
    pub(crate) frames: Frames,
    /// It was written in place, but no sync has covered that yet.
    pub(crate) placed: bool,
}

/// A sector that waits: written anew, or journaled, or both. Recovery may need the journaled content until it is in
/// place, so a newer one does not replace it.
#[derive(Default)]
struct Entry {
    dirty: Option<(Content, u64)>,
    journaled: Option<Journaled>,
}

/// All sectors that wait, by number.
#[derive(Default)]
pub(crate) struct WriteBack {
    entries: HashMap<Lba, Entry>,
    dirty: VecDeque<Waiting>,
    last_stamp: u64,
}

impl WriteBack {
    /// The newest content of a sector that waits.
    pub(crate) fn newest(&self, lba: Lba) -> Option<&Content> {
        let entry = self.entries.get(&lba)?;
        match (&entry.dirty, &entry.journaled) {
            (Some((content, _)), _) => Some(content),
            (None, journaled) => journaled.as_ref().map(|journaled| &journaled.content),
        }
    }

    /// The journaled content of a sector.
    pub(crate) fn journaled(&self, lba: Lba) -> Option<&Journaled> {
        self.entries.get(&lba)?.journaled.as_ref()
    }

    /// The journaled content that was seen, if it is still the newest one.
    pub(crate) fn still_journaled(&self, waiting: Waiting) -> Option<&Journaled> {
        self.journaled(waiting.lba).filter(|journaled| journaled.stamp == waiting.stamp)
    }

    /// How many sectors wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The stamp of the newest write.
    pub(crate) fn last_stamp(&self) -> u64 {
        self.last_stamp
    }

    /// Every write with a smaller stamp has been taken. `None`: every write.
    pub(crate) fn oldest_dirty_stamp(&self) -> Option<u64> {
        self.dirty.front().map(|waiting| waiting.stamp)
    }

    /// At most this many sectors are dirty.
    pub(crate) fn dirty_bound(&self) -> usize {
        self.dirty.len()
    }

    /// A sector has new content.
    pub(crate) fn insert(&mut self, lba: Lba, content: Content) {
        self.last_stamp += 1;
        let stamp = self.last_stamp;
        self.entries.entry(lba).or_default().dirty = Some((content, stamp));
        self.dirty.push_back(Waiting { lba, stamp });
        // Writing the same sectors over and over leaves stale places in the queue.
        if self.dirty.len() > 2 * self.entries.len() + 1024 {
            let entries = &self.entries;
            self.dirty.retain(|waiting| {
                let dirty = entries.get(&waiting.lba).and_then(|entry| entry.dirty.as_ref());
                dirty.is_some_and(|(_, stamp)| *stamp == waiting.stamp)
            });
        }
    }

    /// Recovery found this sector's content in a journal frame.
    pub(crate) fn recover(&mut self, lba: Lba, content: Content, frame: u64) -> Waiting {
        self.last_stamp += 1;
        let waiting = Waiting { lba, stamp: self.last_stamp };
        self.set_journaled(waiting, content, frame, true);
        waiting
    }

    /// Up to `limit` dirty sectors, the longest waiting first. They are no longer queued: the caller commits them or
    /// gives them back.
    pub(crate) fn take_dirty(&mut self, limit: usize) -> Vec<(Waiting, Content)> {
        let mut taken = Vec::with_capacity(limit.min(self.dirty.len()));
        while taken.len() < limit
            && let Some(waiting) = self.dirty.pop_front()
        {
            let dirty = self.entries.get(&waiting.lba).and_then(|entry| entry.dirty.as_ref());
            if let Some((content, _)) = dirty.filter(|(_, stamp)| *stamp == waiting.stamp) {
                taken.push((waiting, content.clone()));
            }
        }
        taken
    }

    /// The commit failed: they are dirty as before.
    pub(crate) fn give_back(&mut self, taken: &[(Waiting, Content)]) {
        for (waiting, _) in taken.iter().rev() {
            self.dirty.push_front(*waiting);
        }
    }

    /// A synced journal frame holds this content, with its data or by its seal. The sector may have been written anew
    /// since.
    pub(crate) fn set_journaled(&mut self, waiting: Waiting, content: Content, frame: u64, with_data: bool) {
        let entry = self.entries.entry(waiting.lba).or_default();
        let before = entry.journaled.as_ref().filter(|_| !with_data);
        let oldest = before.map_or(frame, |before| before.frames.oldest);
        let frames = Frames { oldest, newest: frame };
        entry.journaled = Some(Journaled { content, stamp: waiting.stamp, frames, placed: false });
        entry.dirty.take_if(|(_, stamp)| *stamp == waiting.stamp);
    }

    /// The content was written in place.
    pub(crate) fn set_placed(&mut self, waiting: Waiting) {
        let journaled = self.entries.get_mut(&waiting.lba).and_then(|entry| entry.journaled.as_mut());
        if let Some(journaled) = journaled.filter(|journaled| journaled.stamp == waiting.stamp) {
            journaled.placed = true;
        }
    }

    /// This content waits no longer: it is in place and durable, with its seal in the seal cache, or there is nothing to
    /// be done for it.
    pub(crate) fn retire(&mut self, waiting: Waiting) {
        if let Some(entry) = self.entries.get_mut(&waiting.lba) {
            entry.journaled.take_if(|journaled| journaled.stamp == waiting.stamp);
            entry.dirty.take_if(|(_, stamp)| *stamp == waiting.stamp);
            if entry.journaled.is_none() && entry.dirty.is_none() {
                self.entries.remove(&waiting.lba);
            }
        }
    }

    /// These sectors are zero by decree of the object map.
    pub(crate) fn forget(&mut self, sectors: SectorRange) {
        if sectors.count() > self.entries.len() as u64 {
            self.entries.retain(|lba, _| !sectors.contains(*lba));
        } else {
            for lba in sectors.iter() {
                self.entries.remove(&lba);
            }
        }
    }

    /// The oldest journal frame that recovery would need for a sector.
    pub(crate) fn oldest_frame(&self) -> Option<u64> {
        self.entries.values().filter_map(|entry| Some(entry.journaled.as_ref()?.frames.oldest)).min()
    }
}

/// Objects that sectors lie in, each once, in order.
pub(crate) fn objects_of(
    sectors: impl Iterator<Item = Lba>,
    object_of: impl Fn(Lba) -> ObjectNumber,
) -> Vec<ObjectNumber> {
    let mut objects: Vec<_> = sectors.map(object_of).collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}
