//! Reading a journal after a crash: which frames are whole, and whether any is missing that must have been there.

use sealdisk_layout::JournalTail;
use sealdisk_store::{AlignedBuf, ReadExtent, Store, StoreError};
use sealdisk_units::StoreRange;

use super::frame::{FrameCodec, FrameHeader, OpenedFrame, PAGE};
use super::record::Record;
use super::ring::Ring;

/// A whole frame.
pub(crate) struct Frame {
    pub(crate) sequence: u64,
    /// The records, and for those that have one the payload page's offset in the store.
    pub(crate) records: Vec<(Record, Option<u64>)>,
}

/// Why a journal cannot be believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// Neither the next frame is there nor the one before, which nothing can have overwritten.
    #[error(
        "frame {0}, the last one that the superblock knows, is not there: the journal was put back to an older state, or \
         is another volume's"
    )]
    NotOurs(u64),
    /// A frame is missing although a later one shows that it had been made durable.
    #[error("frame {missing} of the journal is damaged or missing although frame {later} was written after it")]
    Missing { missing: u64, later: u64 },
}

/// What was found in a journal.
pub(crate) struct Scan {
    /// The whole frames from the tail on.
    pub(crate) frames: Vec<Frame>,
    /// The ring as it stands behind them.
    pub(crate) ring: Ring,
    /// Why they are not all that there must have been.
    pub(crate) damage: Option<Damage>,
}

/// Reads all frames from `tail` on. `payload_is_whole` says whether a payload page is what its record says.
///
/// The first frame that is not whole ends the journal: it was being written when the crash came, since the next frame is
/// begun only after a sync. So if any later frame can be found anywhere, one that had been made durable was lost.
pub(crate) fn read_frames(
    store: &dyn Store,
    journal: StoreRange,
    tail: JournalTail,
    codec: &FrameCodec,
    payload_is_whole: impl Fn(&Record, &[u8]) -> bool,
) -> Result<Scan, StoreError> {
    let mut ring = Ring::new(journal.len, tail);
    let mut frames = Vec::new();
    'frames: loop {
        let head = ring.head();
        for position in [head.position, 0] {
            if let Some((frame, frame_len, tag)) =
                read_frame(store, journal, JournalTail { position, ..head }, codec, &payload_is_whole)?
                && let Some(slot) = ring.place(frame_len).filter(|slot| slot.position == position)
            {
                frames.push(frame);
                ring.append(slot, frame_len, tag);
                continue 'frames;
            }
        }
        break;
    }
    let damage = if frames.is_empty() && !previous_frame_is_there(store, journal, tail, codec)? {
        Some(Damage::NotOurs(tail.sequence - 1))
    } else {
        let missing = ring.head().sequence;
        later_frame(store, journal, missing, codec)?.map(|later| Damage::Missing { missing, later })
    };
    Ok(Scan { frames, ring, damage })
}

type FoundFrame = (Frame, u64, [u8; 16]);

fn read_frame(
    store: &dyn Store,
    journal: StoreRange,
    expected: JournalTail,
    codec: &FrameCodec,
    payload_is_whole: &impl Fn(&Record, &[u8]) -> bool,
) -> Result<Option<FoundFrame>, StoreError> {
    let position = expected.position;
    let Some((header, opened)) = open_first_part(store, journal, position, codec)? else { return Ok(None) };
    if header.sequence != expected.sequence || header.previous_tag != expected.previous_tag {
        return Ok(None);
    }
    let payload_start = journal.offset + position + header.list_end() as u64;
    let mut payload = AlignedBuf::new(header.payload_pages as usize * PAGE);
    store.read(&mut [ReadExtent { offset: payload_start, buf: &mut payload }])?;
    let mut pages = payload.chunks_exact(PAGE).enumerate();
    let mut records = Vec::with_capacity(opened.records.len());
    for record in opened.records {
        let page = if record.has_payload() { pages.next() } else { None };
        if let Some((_, bytes)) = page
            && !payload_is_whole(&record, bytes)
        {
            return Ok(None);
        }
        records.push((record, page.map(|(index, _)| payload_start + (index * PAGE) as u64)));
    }
    Ok(Some((Frame { sequence: header.sequence, records }, header.frame_len(), opened.tag)))
}

/// Whether the frame before `tail` lies where it was written. Of a journal that was never written to there is none.
fn previous_frame_is_there(
    store: &dyn Store,
    journal: StoreRange,
    tail: JournalTail,
    codec: &FrameCodec,
) -> Result<bool, StoreError> {
    if tail.sequence <= 1 {
        return Ok(true);
    }
    let found = open_first_part(store, journal, tail.previous_position, codec)?;
    Ok(found.is_some_and(|(header, opened)| header.sequence + 1 == tail.sequence && opened.tag == tail.previous_tag))
}

/// The frame at a position, its payload unseen; `None` where no frame of this volume was written there.
fn open_first_part(
    store: &dyn Store,
    journal: StoreRange,
    position: u64,
    codec: &FrameCodec,
) -> Result<Option<(FrameHeader, OpenedFrame)>, StoreError> {
    if position + PAGE as u64 > journal.len {
        return Ok(None);
    }
    let mut first_part = AlignedBuf::new(PAGE);
    store.read(&mut [ReadExtent { offset: journal.offset + position, buf: &mut first_part }])?;
    let Some(header) = FrameHeader::decode(&first_part) else { return Ok(None) };
    if position + header.frame_len() > journal.len {
        return Ok(None);
    }
    if header.list_end() > PAGE {
        first_part = AlignedBuf::new(header.list_end());
        store.read(&mut [ReadExtent { offset: journal.offset + position, buf: &mut first_part }])?;
    }
    Ok(codec.open(&header, position, &first_part).map(|opened| (header, opened)))
}

/// A frame of this volume with a sequence number above `sequence`, anywhere in the journal.
fn later_frame(
    store: &dyn Store,
    journal: StoreRange,
    sequence: u64,
    codec: &FrameCodec,
) -> Result<Option<u64>, StoreError> {
    const CHUNK: u64 = 1 << 20;
    let mut chunk = AlignedBuf::new(CHUNK.min(journal.len) as usize);
    let mut start = 0;
    while start < journal.len {
        let len = (journal.len - start).min(CHUNK) as usize;
        store.read(&mut [ReadExtent { offset: journal.offset + start, buf: &mut chunk[..len] }])?;
        for (index, page) in chunk[..len].chunks_exact(PAGE).enumerate() {
            let position = start + (index * PAGE) as u64;
            let claims_to_be_later = FrameHeader::decode(page).is_some_and(|header| header.sequence > sequence);
            if claims_to_be_later && let Some((header, _)) = open_first_part(store, journal, position, codec)? {
                return Ok(Some(header.sequence));
            }
        }
        start += len as u64;
    }
    Ok(None)
}
