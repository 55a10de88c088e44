//! Which data objects of a volume exist, as its map pages say.

use sealdisk_cipher::MetadataCipher;
use sealdisk_layout::{MapTag, ObjectNumber, PackedLayout, ZoneMap, ZoneNumber};
use sealdisk_store::{AlignedBuf, ReadExtent, Store};
use sealdisk_units::{Lba, Lineage, SECTOR_SIZE};

use super::seal_cache::SealPage;

/// Which objects exist; a zone whose map page is not authentic is `None`.
pub(crate) struct ObjectMap {
    pub(crate) zones: Vec<Option<ZoneMap>>,
}

/// A zone's map cannot be believed.
pub(crate) struct UnreadableZone;

impl ObjectMap {
    /// Reads the map pages of all zones. One that is not authentic, or has none of the tags that the lists have for its
    /// zone, makes its zone unreadable; the others are not. Returns the pages' tags too, and for unreadable zones those of
    /// the first list.
    pub(crate) fn read(
        store: &dyn Store,
        layout: &PackedLayout,
        cipher: &MetadataCipher,
        lineage: Lineage,
        tags: &[&[MapTag]],
    ) -> (Self, Vec<MapTag>) {
        let open = |number: usize| {
            let zone = ZoneNumber(number as u64);
            let mut page = AlignedBuf::new(size_of::<SealPage>());
            store.read(&mut [ReadExtent { offset: layout.map_page(zone).offset, buf: &mut page }]).ok()?;
            let page = page.first_chunk()?;
            let mut accepted = tags.iter().filter_map(|tags| tags.get(number));
            accepted.find_map(|tag| Some((ZoneMap::open(cipher, lineage, zone, *tag, page).ok()?, *tag)))
        };
        let expected = tags.first().copied().unwrap_or_default();
        let zones = expected.iter().enumerate().map(|(number, expected)| match open(number) {
            Some((zone, tag)) => (Some(zone), tag),
            None => (None, *expected),
        });
        let (zones, tags) = zones.unzip();
        (Self { zones }, tags)
    }

    pub(crate) fn exists(&self, layout: &PackedLayout, object: ObjectNumber) -> Result<bool, UnreadableZone> {
        match self.zones.get(layout.zone_of(object).0 as usize) {
            Some(Some(zone)) => Ok(zone.exists(object)),
            _ => Err(UnreadableZone),
        }
    }

    /// How many bytes of a disk of `size` bytes, from `offset` on, lie in objects that do not exist.
    pub(crate) fn absent_bytes(&self, layout: &PackedLayout, size: u64, offset: u64) -> u64 {
        let mut object = layout.object_of(Lba(offset / SECTOR_SIZE as u64));
        while object.0 < layout.object_count(size) && matches!(self.exists(layout, object), Ok(false)) {
            object.0 += 1;
        }
        let end = layout.sectors_of(object).first().0 * SECTOR_SIZE as u64;
        end.min(size).saturating_sub(offset)
    }

    pub(crate) fn count(&self) -> u64 {
        self.zones.iter().flatten().map(ZoneMap::count).sum()
    }
}
