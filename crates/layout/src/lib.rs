//! Where a sector and its seal lie, and what the payload says of itself. No I/O and no keys of its own.

mod map_page;
mod object_layout;
mod packed;
mod payload;
mod superblock;

pub use map_page::{MapTag, ZoneMap};
pub use object_layout::{ObjectLayout, SealPlace};
pub use packed::{
    MAP_TAG_LEN, MAX_VOLUME_SIZE, OBJECTS_PER_ZONE, ObjectNumber, PAGE_SIZE, PackedLayout, SealPageNumber,
    SectorPlacement, ZoneNumber,
};
pub use payload::{BadCombination, LayoutName, Payload, PlainPayload, SealedPayload, UnknownLayout, check_combination};
pub use superblock::{BadSuperblock, JournalTail, MAX_JOURNAL_LEN, Superblock, Unverified};
