//! After a crash: the journal says what was durable and not yet in place.
//!
//! For each sector the journal may speak of several contents, the last of which is the newest. A content that was
//! journaled with its data can always be had. One that was journaled by its seal alone is there if what lies in the
//! sector's place opens under that seal; otherwise the crash came before it was written, and the content before it
//! counts, down to the one whose seal is in the seal page.
//!
//! Nothing is written to find that out: the volume's state in memory is built as it was, and an ordinary checkpoint puts
//! it in place. A crash during recovery leaves the journal as it was, and every step gives the same bytes again, or a
//! content that the same journal also vouches for.

use std::collections::BTreeMap;

use sealdisk_cipher::{Sealed, SealedForm};
use sealdisk_layout::{MapTag, ObjectNumber, ZoneMap, ZoneNumber};
use sealdisk_store::{AlignedBuf, Operation, ReadExtent, StoreError};
use sealdisk_units::{Lba, SECTOR_SIZE};

use super::page_pool::FreshPage;
use super::write_back::Content;
use super::{Log, MapPage, SealedVolume};
use crate::journal::record::Record;
use crate::journal::scan::{Frame, Scan, read_frames};
use crate::{OpenError, VolumeError};

/// A content that the journal offers for a sector.
#[derive(Clone, Copy)]
enum Candidate {
    Zero,
    /// The payload page at this place in the store.
    Data(Sealed, u64),
    InPlace(Sealed),
}

/// A map page in the journal: its frame, its place in the store, and the tag that it must have.
struct OfferedMap {
    frame: u64,
    offset: u64,
    tag: MapTag,
}

/// A candidate and the frame that offers it.
type Offer = (u64, Candidate);

/// Sectors that are looked at together.
const SECTORS_AT_ONCE: usize = 256;

/// What the journal says of one object.
#[derive(Default)]
struct ObjectHistory {
    /// The frame in which it began to exist.
    created: Option<u64>,
    /// For each sector the frames that speak of it, oldest first.
    sectors: BTreeMap<Lba, Vec<Offer>>,
}

impl SealedVolume {
    /// Builds the state that the journal describes, and where the volume is writable, puts it in place. Read-only, a damaged
    /// journal is used as far as it goes, so that what is there can be saved.
    pub(super) fn recover(&self) -> Result<(), OpenError> {
        let mut log = self.log();
        let tail = log.superblock.tail;
        let Scan { frames, ring, damage } =
            read_frames(&*self.store, self.layout.journal(), tail, &self.codec, |record, page| {
                self.payload_is_whole(record, page)
            })?;
        let damage = damage.map(|damage| damage.to_string()).or_else(|| {
            let newer = log.superblock.clean && !frames.is_empty();
            newer.then(|| "the superblock is older than the journal: it was put back".to_owned())
        });
        if let Some(damage) = damage {
            if !self.standing.is_read_only() {
                return Err(OpenError::DamagedJournal(damage));
            }
            let _ = self.damage.set(damage);
        }
        log.ring = ring;
        let (objects, maps) = replay(frames, self);
        self.adopt_recovered_maps(&mut log, maps)?;
        for (object, history) in objects {
            self.recover_object(&mut log, object, history).map_err(OpenError::Recovery)?;
        }
        if !self.standing.is_read_only() {
            // The first sync makes sure that what was just believed of the sectors in place is durable.
            self.sync().map_err(OpenError::Recovery)?;
            self.checkpoint(&mut log).map_err(OpenError::Recovery)?;
        }
        Ok(())
    }

    fn payload_is_whole(&self, record: &Record, page: &[u8]) -> bool {
        match record {
            // Whole, and this frame's: the journal's last round may have left another map page of the zone at this place.
            Record::Map { zone, tag } => page
                .first_chunk()
                .is_some_and(|page| ZoneMap::open(&self.codec.cipher, self.codec.lineage, *zone, *tag, page).is_ok()),
            Record::Data { check: Some(check), .. } => self.codec.cipher.open(page, check, &mut []).is_ok(),
            Record::Data { lba, sealed, check: None } => self.sealer.opens_as(*lba, sealed, page),
            _ => true,
        }
    }

    fn adopt_recovered_maps(&self, log: &mut Log, maps: BTreeMap<ZoneNumber, OfferedMap>) -> Result<(), OpenError> {
        for (zone, OfferedMap { frame, offset, tag }) in maps {
            let mut page = AlignedBuf::new(SECTOR_SIZE);
            self.store.read(&mut [ReadExtent { offset, buf: &mut page }])?;
            let page: Box<[u8; SECTOR_SIZE]> = Box::new(page[..].try_into().expect("a page"));
            let mut map = self.map_mut();
            let Some(slot) = map.zones.get_mut(zone.0 as usize) else { continue };
            *slot = ZoneMap::open(&self.codec.cipher, self.codec.lineage, zone, tag, &page).ok();
            log.maps.insert(zone, MapPage { page, frame });
        }
        Ok(())
    }

    fn recover_object(&self, log: &mut Log, object: ObjectNumber, history: ObjectHistory) -> Result<(), VolumeError> {
        if let Some(frame) = history.created {
            let pages = self.zero_seal_pages(object)?;
            let mut seals = self.seals();
            pages.into_iter().for_each(|(number, page)| seals.insert_new(number, &page, frame));
        }
        let sectors: Vec<_> = history.sectors.into_iter().collect();
        for some in sectors.chunks(SECTORS_AT_ONCE) {
            self.recover_sectors(log, some)?;
        }
        Ok(())
    }

    /// Finds for each sector the newest content that can be had.
    fn recover_sectors(&self, log: &mut Log, sectors: &[(Lba, Vec<Offer>)]) -> Result<(), VolumeError> {
        let lying = self.read_in_place(sectors)?;
        let mut in_place = Vec::new();
        for (lba, offers) in sectors {
            let data = lying.get(lba);
            for (frame, candidate) in offers.iter().rev() {
                match candidate {
                    Candidate::Zero => {
                        let waiting = self.write_back().recover(*lba, Content::Zero, *frame);
                        log.place_later.push(waiting);
                    }
                    Candidate::Data(sealed, offset) => {
                        let mut page = self.page_for_recovery()?;
                        self.store
                            .read(&mut [ReadExtent { offset: *offset, buf: page.bytes_mut() }])
                            .map_err(|error| self.standing.store_error(error))?;
                        let content = Content::Sector(page.freeze(), *sealed);
                        let waiting = self.write_back().recover(*lba, content, *frame);
                        log.place_later.push(waiting);
                    }
                    Candidate::InPlace(sealed) => {
                        let Some(data) = data else { continue };
                        if !self.sealer.opens_as(*lba, sealed, data) {
                            continue;
                        }
                        in_place.push((*lba, *sealed, *frame, &data[..]));
                    }
                }
                break;
            }
        }
        self.adopt_in_place(log, &in_place)
    }

    /// What lies in the places of those sectors that a frame speaks of by seal only.
    fn read_in_place(&self, sectors: &[(Lba, Vec<Offer>)]) -> Result<BTreeMap<Lba, AlignedBuf>, VolumeError> {
        let promised = sectors.iter().filter(|(_, offers)| matches!(offers.last(), Some((_, Candidate::InPlace(_)))));
        let mut found: BTreeMap<Lba, AlignedBuf> =
            promised.map(|(lba, _)| (*lba, AlignedBuf::new(SECTOR_SIZE))).collect();
        let extents = found.iter_mut();
        let mut extents: Vec<_> = extents
            .map(|(lba, buf)| ReadExtent { offset: self.layout.place(*lba).data.offset, buf: &mut buf[..] })
            .collect();
        self.store.read(&mut extents).map_err(|error| self.standing.store_error(error))?;
        drop(extents);
        Ok(found)
    }

    fn page_for_recovery(&self) -> Result<FreshPage, VolumeError> {
        let page = self.pool.lend(1).and_then(|mut pages| pages.pop());
        page.ok_or_else(|| {
            let full = StoreError::new(Operation::Read(self.layout.journal()), std::io::ErrorKind::OutOfMemory);
            self.standing.store_error(full)
        })
    }

    /// Seals of sectors that lie in place enter the cache. A sector whose seal page cannot be read waits in memory.
    fn adopt_in_place(&self, log: &mut Log, sectors: &[(Lba, Sealed, u64, &[u8])]) -> Result<(), VolumeError> {
        let nonces = self.standing.draw_nonces(sectors.len())?;
        let mut unread = Vec::new();
        self.with_seal_pages(sectors.iter().map(|(lba, ..)| *lba), |seals| {
            for (sector, nonce) in sectors.iter().zip(nonces) {
                let (lba, sealed, frame, _) = sector;
                let place = self.layout.place(*lba);
                if seals.get(place.seal_page).is_none() {
                    unread.push(sector);
                    continue;
                }
                let seal = match sealed.form {
                    SealedForm::Plain => sealed.seal,
                    SealedForm::Folded => self.sealer.fold_mark(*lba, nonce),
                };
                seals.set(place.seal_page, place.seal_offset, &seal, *frame);
            }
        });
        for (lba, sealed, frame, data) in unread {
            let mut page = self.page_for_recovery()?;
            page.bytes_mut().copy_from_slice(data);
            let waiting = self.write_back().recover(*lba, Content::Sector(page.freeze(), *sealed), *frame);
            log.placed.push(waiting);
        }
        Ok(())
    }
}

type Histories = (BTreeMap<ObjectNumber, ObjectHistory>, BTreeMap<ZoneNumber, OfferedMap>);

/// Sorts what the frames say by object and sector, and the newest map pages by zone.
fn replay(frames: Vec<Frame>, volume: &SealedVolume) -> Histories {
    let layout = &volume.layout;
    let inside = |lba: Lba| layout.object_of(lba).0 < layout.object_count(volume.size);
    let mut objects: BTreeMap<ObjectNumber, ObjectHistory> = BTreeMap::new();
    let mut maps = BTreeMap::new();
    for frame in frames {
        for (record, payload) in frame.records {
            let mut offer = |lba: Lba, candidate| {
                if inside(lba) {
                    let sectors = &mut objects.entry(layout.object_of(lba)).or_default().sectors;
                    sectors.entry(lba).or_default().push((frame.sequence, candidate));
                }
            };
            match record {
                Record::Drop { first, count } => {
                    objects.retain(|object, _| !(first.0..first.0.saturating_add(count)).contains(&object.0));
                }
                Record::Create { object } => {
                    let history = ObjectHistory { created: Some(frame.sequence), ..Default::default() };
                    objects.insert(object, history);
                }
                Record::Map { zone, tag } => {
                    let offset = payload.expect("map records have a payload page");
                    maps.insert(zone, OfferedMap { frame: frame.sequence, offset, tag });
                }
                Record::Zero { sectors } => sectors.iter().for_each(|lba| offer(lba, Candidate::Zero)),
                Record::Data { lba, sealed, .. } => {
                    offer(lba, Candidate::Data(sealed, payload.expect("data records have a payload page")));
                }
                Record::InPlace { lba, sealed } => offer(lba, Candidate::InPlace(sealed)),
            }
        }
    }
    objects.retain(|object, _| object.0 < layout.object_count(volume.size));
    (objects, maps)
}
