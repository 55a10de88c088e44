//! The `packed` layout: seals in pages at the end of each 4 MiB object, inside it, so that whatever copies objects as
//! bytes carries the seals along.
//!
//! The payload is a row of objects:
//!
//! ```text
//! object 0        the superblock, twice
//! next J          the journal (none on stores that write an object atomically)
//! then zones      one map object, then up to 16384 data objects; the last zone ends with the volume
//! ```
//!
//! A data object is `sectors_per_object` sectors of 4096 bytes, then seal pages. A seal page holds as many whole seals as
//! fit; a seal never straddles two pages, so that one page is the unit in which seals are read and written. What is left
//! of the last seal page is reserved for a root over the object's seals.

use sealdisk_units::{Lba, OBJECT_SIZE, SECTOR_SIZE, SectorRange, StoreRange};

/// Bytes in a page of seals, a superblock copy or a map page.
pub const PAGE_SIZE: u64 = 4096;

/// Data objects in a zone, each with one bit in the zone's map page.
pub const OBJECTS_PER_ZONE: u64 = 16384;

const PAGES_PER_OBJECT: u64 = OBJECT_SIZE / PAGE_SIZE;

/// The sectors of a data object are a multiple of so many, 64 KiB: no aligned request of that size or a smaller one lies in
/// two objects, and in its object it is aligned too. Ceph's BlueStore keeps an object's bytes in pieces of 64 KiB, and of
/// two pieces it makes two.
const SECTORS_TOGETHER: u64 = 16;

/// Bytes of a map page's tag, of which the superblock has one for each zone.
pub const MAP_TAG_LEN: usize = 16;

/// The largest volume, in bytes: 4 PiB, for whose zones a copy of the superblock has room.
pub const MAX_VOLUME_SIZE: u64 = 1 << 52;

/// Bytes from one copy of the superblock to the other.
const SUPERBLOCK_DISTANCE: u64 = 2 << 20;

/// The number of a data object, counted from 0 over all zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectNumber(pub u64);

/// The number of a zone, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneNumber(pub u64);

/// The number of a seal page, counted from 0 over all data objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealPageNumber(pub u64);

/// Where one sector and its seal lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorPlacement {
    /// The sector's ciphertext: 4096 bytes of the store.
    pub data: StoreRange,
    /// The page that holds its seal.
    pub seal_page: SealPageNumber,
    /// First byte of the seal in that page.
    pub seal_offset: usize,
}

/// Where everything lies in a packed volume. Arithmetic only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedLayout {
    payload: u64,
    journal_len: u64,
    seal_len: usize,
    sectors_per_object: u64,
    seals_per_page: u64,
    object_size: u64,
}

impl PackedLayout {
    /// The layout of a payload that begins at `payload_offset` (a multiple of 4096), with a journal of `journal_len`
    /// bytes (a multiple of 4096) and seals of `seal_len` bytes (1 to 4096).
    pub fn new(payload_offset: u64, journal_len: u64, seal_len: usize) -> Self {
        let seals_per_page = PAGE_SIZE / seal_len as u64;
        // As many sectors as leave room for their seals: with s seals a page, n sectors need n + ceil(n / s) pages.
        let most = PAGES_PER_OBJECT * seals_per_page / (seals_per_page + 1);
        let sectors_per_object = most / SECTORS_TOGETHER * SECTORS_TOGETHER;
        debug_assert!(sectors_per_object + sectors_per_object.div_ceil(seals_per_page) <= PAGES_PER_OBJECT);
        Self {
            payload: payload_offset,
            journal_len,
            seal_len,
            sectors_per_object,
            seals_per_page,
            object_size: OBJECT_SIZE,
        }
    }

    /// The same row without a journal, of objects of `object_size` bytes with so many sectors in each.
    pub(crate) fn with_objects(
        payload_offset: u64,
        seal_len: usize,
        sectors_per_object: u64,
        object_size: u64,
    ) -> Self {
        Self { sectors_per_object, object_size, ..Self::new(payload_offset, 0, seal_len) }
    }

    /// Bytes from the beginning of an object to that of the next one.
    pub fn object_size(&self) -> u64 {
        self.object_size
    }

    /// Bytes of a seal.
    pub fn seal_len(&self) -> usize {
        self.seal_len
    }

    /// Sectors in a data object.
    pub fn sectors_per_object(&self) -> u64 {
        self.sectors_per_object
    }

    /// Seals in a seal page.
    pub fn seals_per_page(&self) -> u64 {
        self.seals_per_page
    }

    /// Seal pages in a data object that are in use.
    pub fn seal_pages_per_object(&self) -> u64 {
        self.sectors_per_object.div_ceil(self.seals_per_page)
    }

    /// The first pages of the two copies of the superblock, which say how large the volume is.
    pub fn superblocks(&self) -> [StoreRange; 2] {
        [0, SUPERBLOCK_DISTANCE].map(|offset| StoreRange::new(self.payload + offset, PAGE_SIZE))
    }

    /// Bytes of a copy of the superblock: its first page, and pages with a tag for each zone of a volume of `size` bytes.
    pub fn superblock_len(&self, size: u64) -> u64 {
        PAGE_SIZE + (self.zone_count(size) * MAP_TAG_LEN as u64).next_multiple_of(PAGE_SIZE)
    }

    /// The journal.
    pub fn journal(&self) -> StoreRange {
        StoreRange::new(self.payload + self.object_size, self.journal_len)
    }

    /// How many data objects a volume of `size` bytes has.
    pub fn object_count(&self, size: u64) -> u64 {
        size.div_ceil(SECTOR_SIZE as u64).div_ceil(self.sectors_per_object)
    }

    /// How many zones a volume of `size` bytes has.
    pub fn zone_count(&self, size: u64) -> u64 {
        self.object_count(size).div_ceil(OBJECTS_PER_ZONE)
    }

    /// Bytes that the store must have, header and all, for a volume of `size` bytes.
    pub fn store_size(&self, size: u64) -> u64 {
        match self.object_count(size) {
            0 => self.zones_start(),
            count => self.object(ObjectNumber(count - 1)).end(),
        }
    }

    /// The zone that an object lies in.
    pub fn zone_of(&self, object: ObjectNumber) -> ZoneNumber {
        ZoneNumber(object.0 / OBJECTS_PER_ZONE)
    }

    /// The zone's map page.
    pub fn map_page(&self, zone: ZoneNumber) -> StoreRange {
        StoreRange::new(self.zones_start() + zone.0 * (OBJECTS_PER_ZONE + 1) * self.object_size, PAGE_SIZE)
    }

    /// A data object, seals and all.
    pub fn object(&self, object: ObjectNumber) -> StoreRange {
        // Every zone before this one, and this one's own, has a map object.
        let maps = self.zone_of(object).0 + 1;
        StoreRange::new(self.zones_start() + (object.0 + maps) * self.object_size, self.object_size)
    }

    /// The data object that holds a sector.
    pub fn object_of(&self, lba: Lba) -> ObjectNumber {
        ObjectNumber(lba.0 / self.sectors_per_object)
    }

    /// The sectors of a data object.
    pub fn sectors_of(&self, object: ObjectNumber) -> SectorRange {
        SectorRange::new(Lba(object.0 * self.sectors_per_object), self.sectors_per_object)
    }

    /// The data objects all of whose sectors lie in the range, as first and end.
    pub fn whole_objects(&self, sectors: SectorRange) -> std::ops::Range<u64> {
        let first = sectors.first().0.div_ceil(self.sectors_per_object);
        first..(sectors.end().0 / self.sectors_per_object).max(first)
    }

    /// Where a sector and its seal lie.
    pub fn place(&self, lba: Lba) -> SectorPlacement {
        let object = self.object_of(lba);
        let index = lba.0 % self.sectors_per_object;
        let data = self.object(object).offset + index * SECTOR_SIZE as u64;
        SectorPlacement {
            data: StoreRange::new(data, SECTOR_SIZE as u64),
            seal_page: SealPageNumber(object.0 * self.seal_pages_per_object() + index / self.seals_per_page),
            seal_offset: (index % self.seals_per_page) as usize * self.seal_len,
        }
    }

    /// Where a seal page lies.
    pub fn seal_page(&self, page: SealPageNumber) -> StoreRange {
        let pages = self.seal_pages_per_object();
        let object = self.object(ObjectNumber(page.0 / pages));
        let sectors = self.sectors_per_object * SECTOR_SIZE as u64;
        StoreRange::new(object.offset + sectors + page.0 % pages * PAGE_SIZE, PAGE_SIZE)
    }

    /// The seal pages of an object.
    pub fn seal_pages_of(&self, object: ObjectNumber) -> impl Iterator<Item = SealPageNumber> + use<> {
        let pages = self.seal_pages_per_object();
        (object.0 * pages..(object.0 + 1) * pages).map(SealPageNumber)
    }

    /// The sectors whose seals a page holds.
    pub fn sectors_of_seal_page(&self, page: SealPageNumber) -> SectorRange {
        let pages = self.seal_pages_per_object();
        let first = page.0 % pages * self.seals_per_page;
        let count = self.seals_per_page.min(self.sectors_per_object - first);
        SectorRange::new(Lba(page.0 / pages * self.sectors_per_object + first), count)
    }

    fn zones_start(&self) -> u64 {
        self.payload + self.object_size + self.journal_len.next_multiple_of(self.object_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_of_the_format() {
        for (seal_len, sectors, pages, per_page) in [(48, 1008, 12, 85), (40, 1008, 10, 102), (16, 1008, 4, 256)] {
            let layout = PackedLayout::new(16 << 20, 64 << 20, seal_len);
            assert_eq!(layout.sectors_per_object(), sectors);
            assert_eq!(layout.seal_pages_per_object(), pages);
            assert_eq!(layout.seals_per_page(), per_page);
        }
    }

    proptest! {
        /// No two things share a byte, and everything lies in the object it belongs to.
        #[test]
        fn places_do_not_overlap(
            seal_len in prop::sample::select(vec![16usize, 40, 48]),
            journal_pages in 0u64..5000,
            a in 0u64..1 << 36,
            b in 0u64..1 << 36,
        ) {
            let layout = PackedLayout::new(16 << 20, journal_pages * 4096, seal_len);
            prop_assume!(a != b);
            let (pa, pb) = (layout.place(Lba(a)), layout.place(Lba(b)));
            prop_assert!(!pa.data.overlaps(&pb.data));
            prop_assert!((pa.seal_page, pa.seal_offset) != (pb.seal_page, pb.seal_offset));
            prop_assert!(!layout.seal_page(pa.seal_page).overlaps(&pb.data));
            prop_assert!(!layout.map_page(layout.zone_of(layout.object_of(Lba(a)))).overlaps(&pb.data));
            prop_assert!(!layout.journal().overlaps(&pb.data));
            let object = layout.object(layout.object_of(Lba(a)));
            for inside in [pa.data, layout.seal_page(pa.seal_page)] {
                prop_assert!(object.offset <= inside.offset && inside.end() <= object.end());
            }
            prop_assert!(layout.sectors_of_seal_page(pa.seal_page).contains(Lba(a)));
            prop_assert!(layout.sectors_of(layout.object_of(Lba(a))).contains(Lba(a)));
            prop_assert!(pa.seal_offset + seal_len <= 4096);
            let size = (a + 1) * 4096;
            prop_assert!(layout.store_size(size) >= object.end());
            prop_assert_eq!(layout.object_count(size), layout.object_of(Lba(a)).0 + 1);
        }
    }
}
