//! Changing the size of a volume that is not open.
//!
//! The superblock alone says how large the disk is, and it changes last: a crash before that leaves the old size, with
//! (when shrinking) the end of the disk already zero.

use std::sync::Arc;

use sealdisk_cipher::VolumeKey;
use sealdisk_layout::{MAX_VOLUME_SIZE, SealedPayload};
use sealdisk_store::Store;
use sealdisk_units::ByteRange;

use super::SealedVolume;
use crate::metadata::size::change_size;
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
    let layout = volume.layout;
    volume.close().map_err(OpenError::Recovery)?;
    change_size(&*store, payload, key, &layout, old, size)
}
