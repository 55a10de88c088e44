//! Objects that begin to exist: their seal pages, every sector zero, and the map pages that say so.

use sealdisk_layout::{MapTag, ObjectNumber, PAGE_SIZE, SealPageNumber, ZoneMap, ZoneNumber};

use super::write_back::{Content, Waiting, objects_of};
use super::{Log, MapPage, SealedVolume, UnreadableZone};
use crate::VolumeError;
use crate::metadata::seal_cache::SealPage;

/// What creating objects brings with it.
#[derive(Default)]
pub(super) struct Creation {
    pub(super) objects: Vec<ObjectNumber>,
    pub(super) zones: Vec<(ZoneNumber, ZoneMap, Box<SealPage>)>,
    pub(super) seal_pages: Vec<(SealPageNumber, Box<SealPage>)>,
}

impl SealedVolume {
    pub(super) fn object_exists(&self, object: ObjectNumber) -> bool {
        matches!(self.map().exists(&self.layout, object), Ok(true))
    }

    /// Prepares the objects that sectors lie in and that do not exist yet: their seal pages, every sector zero, and the
    /// map pages that will say that they exist.
    pub(super) fn create_objects(&self, taken: &[&(Waiting, Content)]) -> Result<Creation, VolumeError> {
        let mut creation = Creation::default();
        for object in objects_of(taken.iter().map(|(waiting, _)| waiting.lba), |lba| self.layout.object_of(lba)) {
            let exists = self.map().exists(&self.layout, object);
            match exists {
                Ok(true) => {}
                Ok(false) => creation.objects.push(object),
                Err(UnreadableZone) => return Err(self.standing.not_authentic(self.layout.sectors_of(object).first())),
            }
        }
        for object in &creation.objects {
            creation.seal_pages.extend(self.zero_seal_pages(*object)?);
        }
        creation.zones = self.changed_maps(&creation.objects, true)?;
        Ok(creation)
    }

    /// Makes the places of objects that do not exist yet durably zero, as their seals will say: before the frame that
    /// creates them, which may survive a crash without its sync.
    pub(super) fn clear_places(&self, log: &mut Log, objects: &[ObjectNumber]) -> Result<(), VolumeError> {
        for object in objects {
            let range = self.layout.object(*object);
            if self.store.is_allocated(range).map_err(|error| self.standing.store_error(error))? {
                log.freed = true;
                self.store.zero(range).map_err(|error| self.standing.store_error(error))?;
            }
        }
        if log.freed && !objects.is_empty() {
            self.sync()?;
            log.freed = false;
        }
        Ok(())
    }

    /// The seal pages of an object in which every sector is zero.
    pub(super) fn zero_seal_pages(
        &self,
        object: ObjectNumber,
    ) -> Result<Vec<(SealPageNumber, Box<SealPage>)>, VolumeError> {
        let mut nonces = self.standing.draw_nonces(self.layout.sectors_per_object() as usize)?;
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
        let nonces = self.standing.draw_nonces(changed.len())?;
        let sealed = changed.into_iter().zip(nonces).map(|((zone, bits), nonce)| {
            let page = Box::new(bits.seal(&self.codec.cipher, self.codec.lineage, zone, nonce));
            (zone, bits, page)
        });
        Ok(sealed.collect())
    }

    /// The tag of a sealed map page.
    pub(super) fn tag_of(&self, page: &SealPage) -> MapTag {
        MapTag::of(page, self.codec.cipher.seal_len())
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
