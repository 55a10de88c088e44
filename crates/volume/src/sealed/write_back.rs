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

/// How far a sector has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Only in memory: a crash loses it.
    Dirty,
    /// A journal frame that was synced holds it, or holds its seal.
    Journaled,
    /// Also written in place, but no sync has covered that yet.
    Placed,
}

/// A sector that waits.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) content: Content,
    /// When it was written: unique, rising. Tells whether an entry is still the one that was seen before.
    pub(crate) stamp: u64,
    pub(crate) progress: Progress,
    /// The journal frames that speak of this sector and that recovery may need: its newest durable content is in
    /// `newest`, and where that frame holds only a seal and the data is not surely in place, the content before it is in
    /// or after `oldest`.
    pub(crate) frames: Option<Frames>,
}

/// See [`Entry::frames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) oldest: u64,
    pub(crate) newest: u64,
}

/// A sector and the entry that was seen for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) lba: Lba,
    pub(crate) stamp: u64,
}

/// All sectors that wait, by number.
#[derive(Default)]
pub(crate) struct WriteBack {
    entries: HashMap<Lba, Entry>,
    dirty: VecDeque<Waiting>,
    last_stamp: u64,
}

impl WriteBack {
    /// The entry of a sector.
    pub(crate) fn get(&self, lba: Lba) -> Option<&Entry> {
        self.entries.get(&lba)
    }

    /// The entry, if it is still the one that was seen.
    pub(crate) fn current(&self, waiting: Waiting) -> Option<&Entry> {
        self.entries.get(&waiting.lba).filter(|entry| entry.stamp == waiting.stamp)
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
        let frames = self.entries.get(&lba).and_then(|entry| entry.frames);
        self.entries.insert(lba, Entry { content, stamp, progress: Progress::Dirty, frames });
        self.dirty.push_back(Waiting { lba, stamp });
    }

    /// Recovery found this sector's content in a journal frame.
    pub(crate) fn recover(&mut self, lba: Lba, content: Content, frame: u64) -> Waiting {
        self.last_stamp += 1;
        let stamp = self.last_stamp;
        let frames = Some(Frames { oldest: frame, newest: frame });
        self.entries.insert(lba, Entry { content, stamp, progress: Progress::Journaled, frames });
        Waiting { lba, stamp }
    }

    /// Up to `limit` dirty sectors, the longest waiting first. They are no longer queued: the caller commits them or
    /// gives them back.
    pub(crate) fn take_dirty(&mut self, limit: usize) -> Vec<(Waiting, Content)> {
        let mut taken = Vec::with_capacity(limit.min(self.dirty.len()));
        while taken.len() < limit
            && let Some(waiting) = self.dirty.pop_front()
        {
            if let Some(entry) = self.current(waiting) {
                taken.push((waiting, entry.content.clone()));
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

    /// A synced journal frame holds this content, or only its seal. The sector may have been written anew since.
    pub(crate) fn journaled(&mut self, waiting: Waiting, frame: u64, with_data: bool) {
        if let Some(entry) = self.entries.get_mut(&waiting.lba) {
            let oldest = entry.frames.filter(|_| !with_data).map_or(frame, |frames| frames.oldest);
            entry.frames = Some(Frames { oldest, newest: frame });
            if entry.stamp == waiting.stamp {
                entry.progress = Progress::Journaled;
            }
        }
    }

    /// The content was written in place.
    pub(crate) fn placed(&mut self, waiting: Waiting) {
        if let Some(entry) = self.entries.get_mut(&waiting.lba).filter(|entry| entry.stamp == waiting.stamp) {
            entry.progress = Progress::Placed;
        }
    }

    /// The content is in place and durable, and its seal is in the seal cache: forget the entry if it is still this one.
    pub(crate) fn retire(&mut self, waiting: Waiting) {
        if self.current(waiting).is_some() {
            self.entries.remove(&waiting.lba);
        }
    }

    /// The sectors of these objects are zero by decree of the object map.
    pub(crate) fn forget(&mut self, sectors: SectorRange) {
        if sectors.count() > self.entries.len() as u64 {
            self.entries.retain(|lba, _| !sectors.contains(*lba));
        } else {
            for lba in sectors.iter() {
                self.entries.remove(&lba);
            }
        }
    }

    /// The oldest journal frame that recovery would need for a sector's content.
    pub(crate) fn oldest_frame(&self) -> Option<u64> {
        self.entries.values().filter_map(|entry| Some(entry.frames?.oldest)).min()
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
