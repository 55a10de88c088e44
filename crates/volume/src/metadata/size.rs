//! A volume's size.

use sealdisk_cipher::{VolumeKey, superblock_mac};
use sealdisk_layout::{PackedLayout, SealedPayload, Superblock};
use sealdisk_store::Store;

use super::key_context::{description, key_context};
use super::superblocks::{read_superblock, write_superblock};
use super::zones::write_empty_zones;
use crate::OpenError;

/// Gives a volume that was closed another size. What lies behind a new end has been discarded.
pub(crate) fn change_size(
    store: &dyn Store,
    payload: &SealedPayload,
    key: &VolumeKey,
    layout: &PackedLayout,
    old: u64,
    size: u64,
) -> Result<(), OpenError> {
    let mac = superblock_mac(key, &key_context(payload, &description(payload)));
    let (superblock, mut map_tags) = read_superblock(store, payload, &mac)?;
    if size > old {
        store.resize(layout.store_size(size).max(store.size()?))?;
        let zones = layout.zone_count(old)..layout.zone_count(size);
        map_tags.extend(write_empty_zones(store, payload, key, layout, zones)?);
        store.sync()?;
    }
    map_tags.truncate(layout.zone_count(size) as usize);
    // Both copies, one after the other: at no time is there none that can be read.
    for generation in [1, 2].map(|step| superblock.generation + step) {
        write_superblock(store, layout, &mac, &Superblock { generation, size, ..superblock }, &map_tags)?;
        store.sync()?;
    }
    if size < old {
        store.resize(layout.store_size(size))?;
        store.sync()?;
    }
    Ok(())
}
