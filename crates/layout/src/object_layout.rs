//! Layouts of volumes on a store that changes an object as a whole: no journal, and a choice of where the seals lie.
//!
//! What holds the payload together (superblock, map pages, the order of objects) is the same as in [`PackedLayout`]; only
//! what lies in a data object differs:
//!
//! ```text
//! packed       [ sector 0 | ... | sector 1007 | seal page 0 | ... ]       objects of 4 MiB
//! object-end   [ sector 0 | ... | sector 1023 | seal page 0 | ... ]       objects of 8 MiB, seal pages from 4 MiB on
//! omap         [ sector 0 | ... | sector 1023 ]                           objects of 4 MiB; key: the sector's index
//! unaligned    [ sector 0 | slot 0 | sector 1 | slot 1 | ... ]            objects of 8 MiB
//! ```
//!
//! Objects of 8 MiB hold 4 MiB of data and what goes with it; the rest is a hole that takes no space. So no aligned request
//! of up to 4 MiB lies in two of them, and whatever copies an image by its objects' bytes copies the seals.

use sealdisk_units::{Lba, OBJECT_SIZE, SECTOR_SIZE};

use crate::packed::{ObjectNumber, PAGE_SIZE, PackedLayout, SealPageNumber};
use crate::payload::LayoutName;

/// Where the slots of an object's sectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealPlace {
    /// In pages of slots, from this byte of the object on.
    Pages {
        /// First byte of the first page.
        first: u64,
    },
    /// Each behind its sector.
    Interleaved,
    /// In the object's key-value map, under the sector's index in the object.
    Keys,
}

/// Where everything lies in a volume without a journal. Arithmetic only.
///
/// Whatever the layout, slots are counted in pages (as many whole slots as fit into 4096 bytes), in which they are kept in
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectLayout {
    rows: PackedLayout,
    seals: SealPlace,
}

impl ObjectLayout {
    /// The layout of a payload that begins at `payload_offset`, with slots of `seal_len` bytes (1 to 4096). `None` for
    /// `length-preserving`, which has no slots, and where no object [of the layout's size](LayoutName::object_size) begins there.
    pub fn new(name: LayoutName, payload_offset: u64, seal_len: usize) -> Option<Self> {
        let object_size = name.object_size();
        if !payload_offset.is_multiple_of(object_size) {
            return None;
        }
        let sectors = OBJECT_SIZE / SECTOR_SIZE as u64;
        let packed = PackedLayout::new(payload_offset, 0, seal_len);
        let full = PackedLayout::with_objects(payload_offset, seal_len, sectors, object_size);
        let (rows, seals) = match name {
            LayoutName::Packed => {
                (packed, SealPlace::Pages { first: packed.sectors_per_object() * SECTOR_SIZE as u64 })
            }
            LayoutName::ObjectEnd => (full, SealPlace::Pages { first: OBJECT_SIZE }),
            LayoutName::Omap => (full, SealPlace::Keys),
            LayoutName::Unaligned => (full, SealPlace::Interleaved),
            LayoutName::LengthPreserving => return None,
        };
        Some(Self { rows, seals })
    }

    /// What is the same in all layouts: superblock, zones, which object holds which sectors.
    pub fn rows(&self) -> &PackedLayout {
        &self.rows
    }

    /// Where slots are.
    pub fn seals(&self) -> SealPlace {
        self.seals
    }

    /// The number of the store's object that holds a data object.
    pub fn store_object(&self, object: ObjectNumber) -> u64 {
        self.rows.object(object).offset / self.rows.object_size()
    }

    /// Which of its object's sectors a sector is.
    pub fn index_of(&self, lba: Lba) -> u64 {
        lba.0 % self.rows.sectors_per_object()
    }

    /// The sector with this index in an object.
    pub fn lba_of(&self, object: ObjectNumber, index: u64) -> Lba {
        Lba(object.0 * self.rows.sectors_per_object() + index)
    }

    /// From the first byte of a sector to that of the next one.
    pub fn stride(&self) -> u64 {
        match self.seals {
            SealPlace::Interleaved => SECTOR_SIZE as u64 + self.rows.seal_len() as u64,
            SealPlace::Pages { .. } | SealPlace::Keys => SECTOR_SIZE as u64,
        }
    }

    /// The page of slots that holds an index's slot, and the slot's first byte in it.
    pub fn slot(&self, object: ObjectNumber, index: u64) -> (SealPageNumber, usize) {
        let page = SealPageNumber(object.0 * self.rows.seal_pages_per_object() + index / self.rows.seals_per_page());
        (page, (index % self.rows.seals_per_page()) as usize * self.rows.seal_len())
    }

    /// The object that a page of slots belongs to.
    pub fn object_of_page(&self, page: SealPageNumber) -> ObjectNumber {
        ObjectNumber(page.0 / self.rows.seal_pages_per_object())
    }

    /// The indices whose slots a page holds.
    pub fn indices_of_page(&self, page: SealPageNumber) -> std::ops::Range<u64> {
        let sectors = self.rows.sectors_of_seal_page(page);
        let first = self.index_of(sectors.first());
        first..first + sectors.count()
    }

    /// Where a page of slots lies in its object, where `first` is [where the first one lies](SealPlace::Pages).
    pub fn page_offset(&self, first: u64, page: SealPageNumber) -> u64 {
        first + page.0 % self.rows.seal_pages_per_object() * PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUTS: [LayoutName; 4] =
        [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];

    #[test]
    fn packed_is_the_packed_layout_without_a_journal() {
        let layout = ObjectLayout::new(LayoutName::Packed, 16 << 20, 48).unwrap();
        let packed = PackedLayout::new(16 << 20, 0, 48);
        let SealPlace::Pages { first } = layout.seals() else { panic!() };
        for lba in [0, 1, 84, 85, 1007, 1008, 5_000_000].map(Lba) {
            let place = packed.place(lba);
            let object = packed.object_of(lba);
            let (page, offset) = layout.slot(object, layout.index_of(lba));
            assert_eq!((page, offset), (place.seal_page, place.seal_offset));
            let start = layout.store_object(object) * OBJECT_SIZE;
            assert_eq!(start + layout.index_of(lba) * layout.stride(), place.data.offset);
            assert_eq!(start + layout.page_offset(first, page), packed.seal_page(page).offset);
        }
    }

    proptest! {
        /// Sectors and slots of an object share no byte, and every sector is found again.
        #[test]
        fn places_do_not_overlap(
            name in prop::sample::select(LAYOUTS.to_vec()),
            seal_len in prop::sample::select(vec![16usize, 40, 48]),
            a in 0u64..1 << 36,
            b in 0u64..1 << 36,
        ) {
            prop_assume!(a != b);
            let layout = ObjectLayout::new(name, 16 << 20, seal_len).unwrap();
            let place = |lba: u64| {
                let object = layout.rows().object_of(Lba(lba));
                let index = layout.index_of(Lba(lba));
                assert_eq!(layout.lba_of(object, index), Lba(lba));
                let (page, offset) = layout.slot(object, index);
                assert_eq!(layout.object_of_page(page), object);
                assert!(layout.indices_of_page(page).contains(&index));
                (layout.store_object(object), index * layout.stride(), page, offset)
            };
            let ((object_a, data_a, page_a, slot_a), (object_b, data_b, page_b, slot_b)) = (place(a), place(b));
            prop_assert!(object_a != object_b || data_a.abs_diff(data_b) >= layout.stride());
            prop_assert!(page_a != page_b || slot_a.abs_diff(slot_b) >= seal_len);
            if let SealPlace::Pages { first } = layout.seals() {
                prop_assert!(data_a + SECTOR_SIZE as u64 <= first);
                prop_assert!(slot_a + seal_len <= PAGE_SIZE as usize);
                prop_assert!(page_a == page_b || object_a != object_b
                    || layout.page_offset(first, page_a).abs_diff(layout.page_offset(first, page_b)) >= PAGE_SIZE);
            }
        }
    }
}
