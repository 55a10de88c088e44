//! Writing one frame of the journal.

use std::sync::atomic::Ordering;

use sealdisk_cipher::Seal;
use sealdisk_layout::JournalTail;
use sealdisk_store::{AlignedBuf, Operation, StoreError, WriteExtent};
use sealdisk_units::{Lba, SectorRange};

use super::write_back::{Content, Waiting};
use super::{Log, SealedVolume};
use crate::VolumeError;
use crate::journal::frame::{FrameHeader, PAGE};
use crate::journal::record::Record;

/// Sectors in one frame at most: 8 MiB of data.
const SECTORS_PER_FRAME: usize = 2048;

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

impl SealedVolume {
    /// How many sectors one frame takes: in a short journal fewer, so that no frame reaches the one before it.
    pub(super) fn sectors_per_frame(&self, log: &Log) -> usize {
        SECTORS_PER_FRAME.min(log.ring.len() as usize / PAGE / 8).max(1)
    }

    /// Writes a frame, together with what frames before promised to put in place, and syncs. Returns the frame's number,
    /// which is known only now: making room for it may take a frame of its own.
    pub(super) fn write_frame(&self, log: &mut Log, draft: &Draft<'_>, promises: Promises) -> Result<u64, VolumeError> {
        if let Some(sequence) = self.append_frame(log, draft, promises)? {
            return Ok(sequence);
        }
        self.checkpoint(log)?;
        self.append_frame(log, draft, promises)?.ok_or_else(|| self.journal_is_full(log))
    }

    /// As [`write_frame`](Self::write_frame), where there is room for the frame; `None` where there is not.
    fn append_frame(&self, log: &mut Log, draft: &Draft<'_>, promises: Promises) -> Result<Option<u64>, VolumeError> {
        let list = draft.list();
        let JournalTail { sequence, previous_tag, .. } = log.ring.head();
        let header = FrameHeader {
            sequence,
            previous_tag,
            list_len: list.len() as u32,
            payload_pages: draft.payload.len() as u32,
        };
        let Some(slot) = log.ring.place(header.frame_len()) else { return Ok(None) };
        self.wipe_stale_frame(log)?;
        let mut first_part = AlignedBuf::new(header.list_end());
        let nonce = self.standing.draw_nonces(1)?.next().expect("one nonce was asked for");
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
            return Err(self.standing.store_error(error));
        }
        log.placed.extend(promised.iter().map(|place| place.waiting));
        self.sync()?;
        log.ring.append(slot, header.frame_len(), tag);
        self.journal_half_full.store(log.ring.used() > log.ring.len() / 2, Ordering::Relaxed);
        // What lay in place before this sync is durable now. Should nonces be wanting for its marks, it stays in memory and
        // in the journal until the next time; this frame is durable all the same.
        let _ = self.retire_placed(log);
        Ok(Some(sequence))
    }

    /// Journals anew what is in place and cannot leave the journal, because its seal pages cannot be read. Otherwise the
    /// frames that hold it would fill the journal for good.
    pub(super) fn journal_again(&self, log: &mut Log) -> Result<(), VolumeError> {
        let stuck: Vec<(Waiting, Content)> = {
            let write_back = self.write_back();
            let content = |waiting: &Waiting| Some((*waiting, write_back.still_journaled(*waiting)?.content.clone()));
            log.placed.iter().filter_map(content).collect()
        };
        for some in stuck.chunks(self.sectors_per_frame(log)) {
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
            let Some(sequence) = appended? else { return Ok(()) };
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
        self.store.write(&[extent]).map_err(|error| self.standing.store_error(error))?;
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
        self.standing.store_error(source)
    }

    /// What vouches for a payload page where the sector's own seal does not.
    pub(super) fn check_of(&self, page: &[u8]) -> Result<Option<Seal>, VolumeError> {
        if self.codec.format.check_len == 0 {
            return Ok(None);
        }
        let nonce = self.standing.draw_nonces(1)?.next().expect("one nonce was asked for");
        Ok(Some(self.codec.cipher.seal(page, nonce, &mut [])))
    }
}

impl<'a> Draft<'a> {
    /// The records as they are sealed.
    fn list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        self.records.iter().for_each(|record| record.encode(&mut list));
        list
    }

    /// Adds a record with its payload page.
    pub(super) fn push(&mut self, record: Record, page: &'a [u8]) {
        self.records.push(record);
        self.payload.push(page);
    }

    /// Adds a zero sector, to the run before it where it continues one.
    pub(super) fn push_zero(&mut self, lba: Lba) {
        if let Some(Record::Zero { sectors }) = self.records.last_mut()
            && sectors.end() == lba
        {
            *sectors = SectorRange::new(sectors.first(), sectors.count() + 1);
        } else {
            self.records.push(Record::Zero { sectors: SectorRange::new(lba, 1) });
        }
    }
}
