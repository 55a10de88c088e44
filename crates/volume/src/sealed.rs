//! A sealed volume: every sector under a fresh nonce, its seal written together with it.
//!
//! A write is sealed at once and waits in memory ([`write_back`]). A commit ([`commit`]) writes what waits to the journal
//! and syncs; the sectors are then durable. Later they are written in place, and when a sync has covered that, their
//! seals enter the seal cache ([`seal_cache`]) and the sectors are forgotten. A checkpoint ([`checkpoint`]) writes the
//! cached seals back and frees the journal. After a crash the same state is built again from the journal ([`recovery`]).
//!
//! Locks, in the order in which they are taken: `log`, then `map`, then `seals`, then `write_back`. The log's holder is
//! the only one who writes to the store.

mod append;
mod checkpoint;
mod commit;
mod discard;
mod format;
mod inspect;
mod objects;
mod open;
mod page_pool;
mod read;
mod recovery;
mod short_read;
mod write;
mod write_back;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sealdisk_cipher::{SectorSealer, SuperblockMac};
use sealdisk_layout::{MapTag, PAGE_SIZE, PackedLayout, Superblock, ZoneNumber};
use sealdisk_store::Store;
use sealdisk_units::{Lba, SECTOR_SIZE};

use crate::VolumeError;
use crate::journal::frame::FrameCodec;
use crate::journal::ring::Ring;
use crate::metadata::object_map::{ObjectMap, UnreadableZone};
use crate::metadata::seal_cache::SealCache;
use crate::standing::Standing;
use page_pool::PagePool;
use write_back::{Waiting, WriteBack};

pub(crate) use format::{format, journal_len_for};
pub use inspect::SectorForms;
pub(crate) use inspect::{inspect, sector_forms};
pub(crate) use short_read::{Begun, ShortRead};

/// Stripes of sector versions: enough that unrelated sectors seldom share one.
const VERSION_STRIPES: usize = 1024;

/// An open sealed volume.
pub(crate) struct SealedVolume {
    standing: Standing,
    store: Arc<dyn Store>,
    layout: PackedLayout,
    sealer: SectorSealer,
    codec: FrameCodec,
    superblock_mac: SuperblockMac,
    size: u64,
    pool: Arc<PagePool>,
    log: Mutex<Log>,
    map: RwLock<ObjectMap>,
    seals: Mutex<SealCache>,
    write_back: Mutex<WriteBack>,
    /// Every write with a stamp up to this one is durable.
    durable_stamp: AtomicU64,
    /// Rises with every write to a sector of the stripe.
    versions: Vec<AtomicU64>,
    /// Whether a checkpoint would be welcome.
    journal_half_full: AtomicBool,
    /// What is known to be missing of a volume that was opened read-only all the same.
    damage: OnceLock<String>,
}

/// What only the holder of the commit lock may touch.
struct Log {
    ring: Ring,
    superblock: Superblock,
    /// Where a frame lies whose write failed. It may be whole all the same, and must not be found.
    stale_frame: Option<u64>,
    /// How many sectors were journaled by seal only since the journal was last empty.
    promises: usize,
    /// Every write with a stamp up to this one is in the journal, with its data or by its seal.
    journaled_stamp: u64,
    /// Journaled by seal only: to be written in place with the next commit.
    place_soon: Vec<Waiting>,
    /// Journaled with data: may be written in place at leisure.
    place_later: Vec<Waiting>,
    /// Written in place, and no sync since.
    placed: Vec<Waiting>,
    /// Whether objects' space was given back and no sync is known to have come since: it may come back after a crash.
    freed: bool,
    /// Map pages that a frame holds and that are not in place.
    maps: BTreeMap<ZoneNumber, MapPage>,
    /// The tags of the map pages that are in place, by zone.
    map_tags: Vec<MapTag>,
}

struct MapPage {
    page: Box<[u8; PAGE_SIZE as usize]>,
    frame: u64,
}

impl SealedVolume {
    /// Whether it takes writes, and if not, why.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// What is known to be missing.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// What runs the cipher on this machine.
    pub(crate) fn implementation(&self) -> &'static str {
        self.sealer.implementation()
    }

    /// How many data objects exist.
    pub(crate) fn object_count(&self) -> u64 {
        self.map().count()
    }

    /// How many sectors wait to be written in place.
    pub(crate) fn waiting(&self) -> usize {
        self.write_back().len()
    }

    /// How many bytes from `offset` on lie in objects that do not exist and have nothing waiting.
    pub(crate) fn absent_bytes(&self, offset: u64) -> u64 {
        if self.waiting() > 0 {
            return 0;
        }
        self.map().absent_bytes(&self.layout, self.size, offset)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn write_back(&self) -> MutexGuard<'_, WriteBack> {
        self.write_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn version(&self, lba: Lba) -> &AtomicU64 {
        &self.versions[lba.0 as usize % VERSION_STRIPES]
    }

    /// Where superblock, journal, zones and objects lie.
    pub(crate) fn rows(&self) -> &PackedLayout {
        &self.layout
    }

    /// What holds the volume's bytes.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Syncs the store. A failure is final: nothing that was written since the last good sync can be trusted to be there,
    /// and no later sync can be trusted to say so.
    fn sync(&self) -> Result<(), VolumeError> {
        self.standing.check_writable()?;
        self.store.sync().map_err(|error| self.standing.final_store_error(error))
    }
}

/// Pages that fit into so much memory.
fn pages_in(bytes: usize) -> usize {
    bytes / SECTOR_SIZE
}
