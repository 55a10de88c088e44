//! Superblock and map, of which no operation can write both.
//!
//! The superblock has the tag of each map page. It is written first, with the tags of the pages that will be; then the
//! pages. A crash in between leaves a superblock that speaks of a page which never came; the copy before it speaks of the
//! one that is there. So where there is no journal, a reader takes a map page that either copy knows. The copy that
//! is overwritten next must know no page that is in place and that the other does not: hence [`ObjectVolume::settle`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sealdisk_layout::{MapTag, ObjectNumber, Superblock, ZoneMap, ZoneNumber};
use sealdisk_store::{ObjectWrite, Step, WriteExtent};

use super::ObjectVolume;
use crate::VolumeError;
use crate::metadata::seal_cache::SealPage;
use crate::metadata::superblocks::write_superblock;

/// What the superblock says, and what is.
pub(super) struct Roots {
    /// The newest one that was written.
    pub(super) superblock: Superblock,
    /// The tags in it.
    pub(super) announced: Vec<MapTag>,
    /// The tags of the pages that are in place.
    pub(super) in_place: Vec<MapTag>,
    /// There is nothing for [`ObjectVolume::close`] to do: both copies are the same as what is in place, or it could not
    /// be read.
    pub(super) untouched: bool,
}

impl ObjectVolume {
    /// Objects begin or cease to exist: durable when this is `Ok`. After an error, each zone has changed or not.
    pub(super) fn change_map(&self, changes: &[(ObjectNumber, bool)]) -> Result<(), VolumeError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut roots = self.roots();
        let zones = self.changed_zones(changes)?;
        self.settle(&mut roots)?;
        let mut tags = roots.in_place.clone();
        for (zone, _, page) in &zones {
            tags[zone.0 as usize] = MapTag::of(page, self.metadata.seal_len());
        }
        self.announce(&mut roots, tags)?;
        let mut pages: Vec<_> = zones
            .iter()
            .map(|(zone, _, page)| {
                let object = self.layout.rows().map_page(*zone).offset / self.layout.rows().object_size();
                ObjectWrite::new(object, vec![Step::Write(WriteExtent { offset: 0, buf: &page[..] })])
            })
            .collect();
        self.objects().write_objects(&mut pages);
        let mut outcome = Ok(());
        let results: Vec<_> = pages.into_iter().map(|page| page.result).collect();
        for ((zone, bits, _), result) in zones.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    roots.in_place[zone.0 as usize] = roots.announced[zone.0 as usize];
                    self.map_mut().zones[zone.0 as usize] = Some(bits);
                }
                Err(error) => outcome = Err(self.standing.store_error(error)),
            }
        }
        outcome
    }

    /// The maps of the objects' zones with their bits changed, sealed.
    fn changed_zones(
        &self,
        changes: &[(ObjectNumber, bool)],
    ) -> Result<Vec<(ZoneNumber, ZoneMap, Box<SealPage>)>, VolumeError> {
        let mut zones = BTreeMap::new();
        for (object, exists) in changes {
            let zone = self.layout.rows().zone_of(*object);
            let bits = match zones.entry(zone) {
                Entry::Occupied(changed) => changed.into_mut(),
                Entry::Vacant(unchanged) => {
                    let bits = self.map().zones.get(zone.0 as usize).cloned().flatten();
                    unchanged.insert(bits.ok_or_else(|| self.standing.not_authentic(self.layout.lba_of(*object, 0)))?)
                }
            };
            bits.set(*object, *exists);
        }
        let nonces = self.standing.draw_nonces(zones.len())?;
        let sealed = zones.into_iter().zip(nonces).map(|((zone, bits), nonce)| {
            let page = Box::new(bits.seal(&self.metadata, self.lineage, zone, nonce));
            (zone, bits, page)
        });
        Ok(sealed.collect())
    }

    /// The newest superblock knows the pages that are in place.
    fn settle(&self, roots: &mut Roots) -> Result<(), VolumeError> {
        if roots.announced == roots.in_place {
            return Ok(());
        }
        let tags = roots.in_place.clone();
        self.announce(roots, tags)
    }

    fn announce(&self, roots: &mut Roots, tags: Vec<MapTag>) -> Result<(), VolumeError> {
        let superblock = Superblock { generation: roots.superblock.generation + 1, ..roots.superblock };
        write_superblock(&*self.store, self.layout.rows(), &self.superblock_mac, &superblock, &tags)
            .map_err(|error| self.standing.store_error(error))?;
        roots.untouched = false;
        (roots.superblock, roots.announced) = (superblock, tags);
        Ok(())
    }

    /// Both copies know the pages that are in place, and no others: from now on none that was there before is taken.
    pub(crate) fn close(&self) -> Result<(), VolumeError> {
        self.flush()?;
        let mut roots = self.roots();
        if self.standing.is_read_only() || roots.untouched {
            return Ok(());
        }
        for _ in 0..2 {
            let tags = roots.in_place.clone();
            self.announce(&mut roots, tags)?;
        }
        roots.untouched = true;
        Ok(())
    }
}
