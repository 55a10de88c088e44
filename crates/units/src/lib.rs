//! Where things are, and how large: arithmetic only, no I/O and no keys.
//!
//! Three address spaces meet in Sealdisk, and each has types of its own so that a number of one cannot be handed to
//! another by mistake:
//!
//! * the disk that a client sees: [`ByteRange`] (a request that has been checked against the disk's size), [`Lba`] and
//!   [`SectorRange`] (4096-byte sectors of it);
//! * the store that holds the ciphertext: [`StoreRange`];
//! * the objects of the store, [`OBJECT_SIZE`] bytes each, the unit in which Ceph's RBD places data.

mod bytes;
mod lineage;
mod sector;
mod store_range;

pub use bytes::{ByteRange, OutOfRange};
pub use lineage::{BadLineage, Lineage};
pub use sector::{Lba, Piece, SECTOR_SIZE, SectorRange};
pub use store_range::{OBJECT_SIZE, StoreRange};
