//! Making and opening a volume without a journal.

use std::sync::{Arc, Mutex, RwLock};

use sealdisk_cipher::{VolumeKey, metadata_cipher, sector_sealer, superblock_mac};
use sealdisk_layout::{
    JournalTail, LayoutName, MAX_VOLUME_SIZE, ObjectLayout, PAGE_SIZE, PackedLayout, SealedPayload, Superblock,
    ZoneNumber,
};
use sealdisk_store::{ObjectStore, ReadExtent, Store};

use super::ObjectVolume;
use super::roots::Roots;
use super::turns::Turns;
use super::versions::Versions;
use crate::metadata::key_context::{description, key_context};
use crate::metadata::object_map::ObjectMap;
use crate::metadata::seal_cache::SealCache;
use crate::metadata::superblocks::{read_superblocks, write_superblock};
use crate::metadata::zones::write_empty_zones;
use crate::standing::Standing;
use crate::{OpenError, OpenOptions};

/// There is no frame before the first one, and there will be none.
const NO_JOURNAL: JournalTail = JournalTail { sequence: 1, position: 0, previous_tag: [0; 16], previous_position: 0 };

/// Where everything lies.
pub(crate) fn layout_of(payload: &SealedPayload) -> Result<ObjectLayout, OpenError> {
    ObjectLayout::new(payload.layout, payload.offset, payload.cipher.seal_len()).ok_or_else(|| {
        let SealedPayload { layout, cipher, offset, .. } = payload;
        OpenError::BadPayload(format!(
            "layout {layout} cannot begin at byte {offset}: that is no multiple of its objects' {} bytes, or cipher {cipher} \
             does not go with it",
            layout.object_size()
        ))
    })
}

/// Writes what a new volume needs into a store that is large enough.
pub(crate) fn format(
    store: &dyn Store,
    objects: &dyn ObjectStore,
    payload: &SealedPayload,
    key: &VolumeKey,
    size: u64,
) -> Result<(), OpenError> {
    if size > MAX_VOLUME_SIZE {
        return Err(OpenError::TooLarge { size });
    }
    if payload.layout == LayoutName::Omap && !objects.has_keys()? {
        let reason = "layout omap keeps seals in keys, and an erasure-coded pool has none; use --layout packed";
        return Err(OpenError::BadPayload(reason.to_owned()));
    }
    let layout = layout_of(payload)?;
    let tags = write_empty_zones(store, payload, key, layout.rows(), 0..layout.rows().zone_count(size))?;
    let mac = superblock_mac(key, &key_context(payload, &description(payload)));
    for generation in [1, 2] {
        let superblock = Superblock { generation, size, journal_len: 0, key_epoch: 0, clean: true, tail: NO_JOURNAL };
        write_superblock(store, layout.rows(), &mac, &superblock, &tags)?;
    }
    store.sync()?;
    Ok(())
}

impl ObjectVolume {
    /// Opens a volume. Nothing need be brought up to date.
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
        let ((superblock, announced), before) = read_superblocks(&*store, payload, &superblock_mac)?;
        if superblock.key_epoch != 0 || superblock.journal_len != 0 || store.objects().is_none() {
            let reason = "the volume uses something that this program does not know; use a newer sealdisk";
            return Err(OpenError::BadPayload(reason.to_owned()));
        }
        if payload.layout == LayoutName::Omap && store.objects().is_some_and(ObjectStore::shares_objects) {
            return Err(OpenError::BadPayload(format!(
                "this is a clone, and layout {} keeps seals where Ceph does not copy them; use the original, or copy its \
                 files to a volume of layout packed",
                payload.layout
            )));
        }
        let layout = layout_of(payload)?;
        let metadata = metadata_cipher(key, &context);
        let tags_before = before.as_ref().map_or(&[][..], |(_, tags)| tags);
        let (map, in_place) =
            ObjectMap::read(&*store, layout.rows(), &metadata, payload.lineage, &[&announced, tags_before]);
        if !options.read_only {
            // One that could be read next time may be the page that only the older superblock knows. That must stay.
            try_unreadable(&*store, &map, layout.rows())?;
        }
        // After a crash they differ, and closing makes them alike. Not where a zone cannot be read: which page is the
        // right one there may show later.
        let alike = before.as_ref().is_some_and(|(before, tags)| {
            let as_newest = Superblock { generation: superblock.generation, ..*before };
            as_newest == superblock && *tags == announced && announced == in_place
        });
        let untouched = alike || map.zones.iter().any(Option::is_none);
        let roots = Roots { superblock, announced, in_place, untouched };
        Ok(Self {
            standing: Standing::new(name, options.read_only),
            sealer: sector_sealer(key, &context, payload.fold),
            lineage: payload.lineage,
            superblock_mac,
            metadata,
            size: superblock.size,
            buffers: Arc::default(),
            turns: Turns::default(),
            roots: Mutex::new(roots),
            map: RwLock::new(map),
            // Half of the memory; the rest is for requests in progress.
            seals: Mutex::new(SealCache::new(options.memory / 2 / PAGE_SIZE as usize)),
            versions: Versions::new(),
            whole_objects: Mutex::default(),
            store,
            layout,
        })
    }
}

/// Fails if a zone is unreadable because the store does not give its map page.
fn try_unreadable(store: &dyn Store, map: &ObjectMap, rows: &PackedLayout) -> Result<(), OpenError> {
    for (number, _) in map.zones.iter().enumerate().filter(|(_, zone)| zone.is_none()) {
        let mut page = [0; PAGE_SIZE as usize];
        let offset = rows.map_page(ZoneNumber(number as u64)).offset;
        store.read(&mut [ReadExtent { offset, buf: &mut page }])?;
    }
    Ok(())
}
