//! New zones.

use sealdisk_cipher::{Nonces, VolumeKey, metadata_cipher};
use sealdisk_layout::{MapTag, PackedLayout, SealedPayload, ZoneMap, ZoneNumber};
use sealdisk_store::{AlignedBuf, Store, WriteExtent};

use super::key_context::{description, key_context};
use crate::OpenError;
use crate::open_error::no_randomness;

/// Map pages that say that no object exists. Returns their tags.
pub(crate) fn write_empty_zones(
    store: &dyn Store,
    payload: &SealedPayload,
    key: &VolumeKey,
    layout: &PackedLayout,
    zones: std::ops::Range<u64>,
) -> Result<Vec<MapTag>, OpenError> {
    let cipher = metadata_cipher(key, &key_context(payload, &description(payload)));
    let nonces = Nonces::draw((zones.end - zones.start) as usize).map_err(no_randomness)?;
    let mut tags = Vec::with_capacity(nonces.len());
    for (zone, nonce) in zones.map(ZoneNumber).zip(nonces) {
        let page = ZoneMap::default().seal(&cipher, payload.lineage, zone, nonce);
        tags.push(MapTag::of(&page, cipher.seal_len()));
        let page = AlignedBuf::from(&page[..]);
        store.write(&[WriteExtent { offset: layout.map_page(zone).offset, buf: &page }])?;
    }
    Ok(tags)
}
