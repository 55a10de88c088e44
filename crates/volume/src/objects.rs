//! A sealed volume on a store that changes an object as a whole: data and seals of an object's sectors are written by one
//! operation, so there is no journal, and what was answered is durable.
//!
//! Writes of one object take turns ([`turns`]). While one is on its way, those that come wait for each other and go
//! together with the next. So a page of seals in memory ([`crate::metadata::seal_cache`]) is what the store has, each
//! operation can carry it whole, and an operation that fails takes nothing else with it.
//!
//! An object that begins to exist is written first, and then the map ([`roots`]) says so; one that ceases to exist leaves
//! the map first.
//!
//! Locks: an object's turn, then `whole_objects`, then `roots`, then `map` or `seals`, each of the last two for a short time and never across
//! I/O. Readers take no turns.

mod change;
mod discard;
mod forms;
mod open;
mod operation;
mod plan;
mod read;
mod roots;
mod turns;
mod versions;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sealdisk_cipher::{MetadataCipher, SectorSealer, SuperblockMac};
use sealdisk_layout::{ObjectLayout, ObjectNumber, PackedLayout, SealPlace};
use sealdisk_store::{ObjectStore, Store};
use sealdisk_units::Lineage;

use crate::VolumeError;
use crate::buffers::Buffers;
use crate::metadata::object_map::{ObjectMap, UnreadableZone};
use crate::metadata::seal_cache::SealCache;
use crate::standing::Standing;
use roots::Roots;
use turns::Turns;
use versions::Versions;

pub(crate) use forms::sector_forms;
pub(crate) use open::format;

/// An open volume.
pub(crate) struct ObjectVolume {
    standing: Standing,
    store: Arc<dyn Store>,
    layout: ObjectLayout,
    lineage: Lineage,
    sealer: SectorSealer,
    metadata: MetadataCipher,
    superblock_mac: SuperblockMac,
    size: u64,
    buffers: Arc<Buffers>,
    turns: Turns,
    roots: Mutex<Roots>,
    map: RwLock<ObjectMap>,
    seals: Mutex<SealCache>,
    versions: Versions,
    /// Held while objects are written whole of which a client wrote little: many at once would take too much memory.
    whole_objects: Mutex<()>,
}

impl ObjectVolume {
    /// Whether it takes writes, and if not, why.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What runs the cipher on this machine.
    pub(crate) fn implementation(&self) -> &'static str {
        self.sealer.implementation()
    }

    /// How many data objects exist.
    pub(crate) fn object_count(&self) -> u64 {
        self.map().count()
    }

    /// Where superblock, zones and objects lie.
    pub(crate) fn rows(&self) -> &PackedLayout {
        self.layout.rows()
    }

    /// Whether each sector has its seal beside it.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.layout.seals() == SealPlace::Interleaved
    }

    /// What holds the volume's bytes.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How many bytes from `offset` on lie in objects that do not exist.
    pub(crate) fn absent_bytes(&self, offset: u64) -> u64 {
        self.map().absent_bytes(self.layout.rows(), self.size, offset)
    }

    /// What was answered is durable. But whoever has lost the store must not be told that all is well.
    pub(crate) fn flush(&self) -> Result<(), VolumeError> {
        if self.standing.is_read_only() {
            return Ok(());
        }
        self.standing.check_writable()?;
        self.store.sync().map_err(|error| self.standing.store_error(error))
    }

    fn objects(&self) -> &dyn ObjectStore {
        self.store.objects().expect("opening has seen to that")
    }

    fn exists(&self, object: ObjectNumber) -> Result<bool, VolumeError> {
        let exists = self.map().exists(self.layout.rows(), object);
        exists.map_err(|UnreadableZone| self.standing.not_authentic(self.layout.lba_of(object, 0)))
    }

    fn map(&self) -> RwLockReadGuard<'_, ObjectMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, ObjectMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn seals(&self) -> MutexGuard<'_, SealCache> {
        self.seals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn roots(&self) -> MutexGuard<'_, Roots> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
