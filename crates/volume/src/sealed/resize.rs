//! Changing the size of a volume that is not open.
//!
//! The superblock alone says how large the disk is, and it changes last: a crash before that leaves the old size, with
//! (when shrinking) the end of the disk already zero.

use std::sync::Arc;

use sealdisk_cipher::{VolumeKey, superblock_mac};
use sealdisk_layout::{MAX_VOLUME_SIZE, PackedLayout, SealedPayload, Superblock};
use sealdisk_store::Store;
use sealdisk_units::ByteRange;

use super::SealedVolume;
use super::format::write_empty_zones;
use super::key_context::{description, key_context};
use super::superblocks::{read_superblock, write_superblock};
use crate::{OpenError, OpenOptions, Space};

/// Grows a volume, or shrinks it where `force` says that what lies behind the new end may go.
pub(crate) fn resize(
    store: Arc<dyn Store>,
    name: &str,
    payload: &SealedPayload,
    key: &VolumeKey,
    size: u64,
    force: bool,
) -> Result<(), OpenError> {
    if size > MAX_VOLUME_SIZE {
        return Err(OpenError::TooLarge { size });
    }
    // Opening puts the journal in place; closing leaves it empty.
    let volume = SealedVolume::open(store.clone(), name, payload, key, OpenOptions::default())?;
    let old = volume.size();
    if size < old {
        if !force {
            return Err(OpenError::ShrinkNeedsForce { from: old, to: size });
        }
        let end = ByteRange::checked(size, old - size, old).expect("the end of the disk");
        volume.zero(end, Space::Free).map_err(OpenError::Recovery)?;
    }
    volume.close().map_err(OpenError::Recovery)?;
    drop(volume);

    let mac = superblock_mac(key, &key_context(payload, &description(payload)));
    let (superblock, mut map_tags) = read_superblock(&*store, payload, &mac)?;
    let layout = PackedLayout::new(payload.offset, superblock.journal_len, payload.cipher.seal_len());
    if size > old {
        store.resize(layout.store_size(size).max(store.size()?))?;
        let zones = layout.zone_count(old)..layout.zone_count(size);
        map_tags.extend(write_empty_zones(&*store, payload, key, &layout, zones)?);
        store.sync()?;
    }
    map_tags.truncate(layout.zone_count(size) as usize);
    // Both copies, one after the other: at no time is there none that can be read.
    for generation in [1, 2].map(|step| superblock.generation + step) {
        write_superblock(&*store, &layout, &mac, &Superblock { generation, size, ..superblock }, &map_tags)?;
        store.sync()?;
    }
    if size < old {
        store.resize(layout.store_size(size))?;
        store.sync()?;
    }
    Ok(())
}
