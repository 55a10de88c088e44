//! Opening a sealed volume: believing its superblock, its map and its journal, in that order.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use sealdisk_cipher::{VolumeKey, metadata_cipher, sector_sealer, superblock_mac};
use sealdisk_layout::{PackedLayout, SealedPayload};
use sealdisk_store::Store;

use super::format::SHORTEST_JOURNAL;
use super::page_pool::PagePool;
use super::write_back::WriteBack;
use super::{Log, SealedVolume, VERSION_STRIPES, pages_in};
use crate::journal::frame::FrameCodec;
use crate::journal::record::RecordFormat;
use crate::journal::ring::Ring;
use crate::metadata::key_context::{description, key_context};
use crate::metadata::object_map::ObjectMap;
use crate::metadata::seal_cache::SealCache;
use crate::metadata::superblocks::read_superblock;
use crate::standing::Standing;
use crate::{OpenError, OpenOptions};

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
        let (superblock, map_tags) = read_superblock(&*store, payload, &superblock_mac)?;
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
        let (map, _) = ObjectMap::read(&*store, &layout, &codec.cipher, payload.lineage, &[&map_tags]);
        // A third of the memory for sectors that wait, a quarter for seals; the rest is for requests in progress.
        let pool_pages = pages_in(options.memory / 3).max(MIN_POOL_PAGES);
        let recoverable = pages_in(superblock.journal_len as usize) + MIN_POOL_PAGES;
        let volume = Self {
            standing: Standing::new(name, options.read_only),
            sealer: sector_sealer(key, &context, payload.fold),
            superblock_mac,
            size: superblock.size,
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
                freed: false,
                maps: Default::default(),
                map_tags,
            }),
            map: RwLock::new(map),
            seals: Mutex::new(SealCache::new(pages_in(options.memory / 4))),
            write_back: Mutex::new(WriteBack::default()),
            durable_stamp: AtomicU64::new(0),
            versions: (0..VERSION_STRIPES).map(|_| AtomicU64::new(0)).collect(),
            journal_half_full: AtomicBool::new(false),
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
