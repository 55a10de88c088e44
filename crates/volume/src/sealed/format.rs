//! Making a new sealed volume: a superblock and the zones' map pages. Nothing else is written, however large it is.

use sealdisk_cipher::{VolumeKey, superblock_mac};
use sealdisk_layout::{JournalTail, MAX_VOLUME_SIZE, PackedLayout, SealedPayload, Superblock};
use sealdisk_store::Store;
use sealdisk_units::OBJECT_SIZE;

use crate::OpenError;
use crate::metadata::key_context::{description, key_context};
use crate::metadata::superblocks::write_superblock;
use crate::metadata::zones::write_empty_zones;

/// Room for a few of the smallest frames, so that no frame ever overwrites the one before it.
pub(super) const SHORTEST_JOURNAL: u64 = 64 << 10;

/// The journal of a volume of `size` bytes: a thirty-second of it, between 4 and 64 MiB.
pub(crate) fn journal_len_for(size: u64) -> u64 {
    (size / 32).next_multiple_of(OBJECT_SIZE).clamp(OBJECT_SIZE, 64 << 20)
}

/// Writes what a new volume needs into a store that is large enough and durable when this returns.
pub(crate) fn format(
    store: &dyn Store,
    payload: &SealedPayload,
    key: &VolumeKey,
    size: u64,
    journal_len: u64,
) -> Result<(), OpenError> {
    if size > MAX_VOLUME_SIZE {
        return Err(OpenError::TooLarge { size });
    }
    if journal_len < SHORTEST_JOURNAL {
        return Err(OpenError::BadPayload(format!("a journal of {journal_len} bytes is too short")));
    }
    let layout = PackedLayout::new(payload.offset, journal_len, payload.cipher.seal_len());
    let map_tags = write_empty_zones(store, payload, key, &layout, 0..layout.zone_count(size))?;
    forget_old_journal(store, &layout)?;
    // What is flushed goes there first: it should not be refused because others have filled the file system.
    store.reserve(layout.journal())?;
    let tail = JournalTail { sequence: 1, position: 0, previous_tag: [0; 16], previous_position: 0 };
    let superblock = Superblock { generation: 1, size, journal_len, key_epoch: 0, clean: true, tail };
    let mac = superblock_mac(key, &key_context(payload, &description(payload)));
    for generation in [1, 2] {
        write_superblock(store, &layout, &mac, &Superblock { generation, ..superblock }, &map_tags)?;
    }
    store.sync()?;
    Ok(())
}

/// Whatever lay where the journal will be is freed. (It could not be taken for a frame of this volume: its lineage is
/// new.)
fn forget_old_journal(store: &dyn Store, layout: &PackedLayout) -> Result<(), OpenError> {
    let journal = layout.journal();
    if journal.len > 0 && store.is_allocated(journal)? {
        store.zero(journal)?;
    }
    Ok(())
}
