//! Opening a sealed volume: believing its superblock, its map and its journal, in that order.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use sealdisk_cipher::{SuperblockMac, VolumeKey, metadata_cipher, sector_sealer, superblock_mac};
use sealdisk_layout::{BadSuperblock, PackedLayout, SealedPayload, Superblock, Unverified, ZoneMap, ZoneNumber};
use sealdisk_store::{AlignedBuf, ReadExtent, Store};
use sealdisk_units::StoreRange;

use super::format::SHORTEST_JOURNAL;
use super::key_context::{description, key_context};
use super::page_pool::PagePool;
use super::seal_cache::{SealCache, SealPage};
use super::write_back::WriteBack;
use super::{Log, ObjectMap, SealedVolume, VERSION_STRIPES, pages_in};
use crate::journal::frame::FrameCodec;
use crate::journal::record::RecordFormat;
use crate::journal::ring::Ring;
use crate::{OpenError, OpenOptions};

/// The newest superblock that the key vouches for.
pub(super) fn read_superblock(
    store: &dyn Store,
    payload: &SealedPayload,
    mac: &SuperblockMac,
) -> Result<Superblock, OpenError> {
    let copies = read_copies(store, payload)?;
    let verified = copies.iter().flatten().filter_map(|copy| copy.verify(mac).ok());
    match verified.max_by_key(|superblock| superblock.generation) {
        Some(superblock) => Ok(superblock),
        None if copies.iter().any(Result::is_ok) => Err(OpenError::WrongKey),
        None => {
            let [first, second] = copies.map(|copy| copy.err().unwrap_or(BadSuperblock::NoMagic));
            Err(OpenError::NoSuperblock(if first == BadSuperblock::NoMagic { second } else { first }))
        }
    }
}

/// Both copies as they are found.
pub(super) fn read_copies(
    store: &dyn Store,
    payload: &SealedPayload,
) -> Result<[Result<Unverified, BadSuperblock>; 2], OpenError> {
    // Where the superblocks are depends on the payload's offset alone.
    let places = PackedLayout::new(payload.offset, 0, payload.cipher.seal_len().max(1)).superblocks();
    let [first, second] = places.map(|place| read_page(store, place).map(|page| Unverified::decode(&page)));
    Ok([first?, second?])
}

fn read_page(store: &dyn Store, place: StoreRange) -> Result<SealPage, OpenError> {
    let mut page = AlignedBuf::new(size_of::<SealPage>());
    store.read(&mut [ReadExtent { offset: place.offset, buf: &mut page }])?;
    Ok(page[..].try_into().expect("a page"))
}

impl SealedVolume {
    /// Opens a volume and brings it up to date with its journal; read-only, in memory alone.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        name: &str,
        payload: &SealedPayload,
        key: &VolumeKey,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let description = description(payload);
        let context = key_context(payload, &description);
        let superblock_mac = superblock_mac(key, &context);
        let superblock = read_superblock(&*store, payload, &superblock_mac)?;
        if superblock.key_epoch != 0 || superblock.journal_len < SHORTEST_JOURNAL {
            let reason = "the volume uses something that this program does not know; use a newer sealdisk";
            return Err(OpenError::BadPayload(reason.to_owned()));
        }
        let layout = PackedLayout::new(payload.offset, superblock.journal_len, payload.cipher.seal_len());
        let cipher = metadata_cipher(key, &context);
        let check_len = if payload.cipher.is_authenticated() { 0 } else { cipher.seal_len() };
        let codec = FrameCodec {
            cipher,
            lineage: payload.lineage,
            format: RecordFormat { seal_len: payload.cipher.seal_len(), check_len },
        };
        let zones = read_zones(&*store, &layout, &codec, superblock.size);
        // A third of the memory for sectors that wait, a quarter for seals; the rest is for requests in progress.
        let pool_pages = pages_in(options.memory / 3).max(MIN_POOL_PAGES);
        let recoverable = pages_in(superblock.journal_len as usize) + MIN_POOL_PAGES;
        let volume = Self {
            name: name.to_owned(),
            sealer: sector_sealer(key, &context, payload.fold),
            superblock_mac,
            size: superblock.size,
            read_only: options.read_only,
            // Recovery may need a page for every page of the journal.
            pool: PagePool::new(pool_pages.max(recoverable)),
            log: Mutex::new(Log {
                ring: Ring::new(superblock.journal_len, superblock.tail),
                superblock,
                stale_frame: None,
                promises: 0,
                journaled_stamp: 0,
                place_soon: Vec::new(),
                place_later: Vec::new(),
                placed: Vec::new(),
                maps: Default::default(),
            }),
            map: RwLock::new(ObjectMap { zones }),
            seals: Mutex::new(SealCache::new(pages_in(options.memory / 4))),
            write_back: Mutex::new(WriteBack::default()),
            durable_stamp: AtomicU64::new(0),
            versions: (0..VERSION_STRIPES).map(|_| AtomicU64::new(0)).collect(),
            journal_half_full: AtomicBool::new(false),
            failed: OnceLock::new(),
            damage: OnceLock::new(),
            store,
            layout,
            codec,
        };
        volume.recover()?;
        Ok(volume)
    }
}

/// Enough pages for a few large requests, however little memory is allowed.
const MIN_POOL_PAGES: usize = 1024;

/// Which objects exist. A zone whose map page is not authentic is unreadable; the others are not.
fn read_zones(store: &dyn Store, layout: &PackedLayout, codec: &FrameCodec, size: u64) -> Vec<Option<ZoneMap>> {
    let zones = (0..layout.zone_count(size)).map(ZoneNumber);
    let open = |zone| {
        let page = read_page(store, layout.map_page(zone)).ok()?;
        ZoneMap::open(&codec.cipher, codec.lineage, zone, &page).ok()
    };
    zones.map(open).collect()
}
