//! The two copies of the superblock: reading the newest, writing over the older.

use sealdisk_cipher::SuperblockMac;
use sealdisk_layout::{BadSuperblock, MapTag, ObjectLayout, PackedLayout, SealedPayload, Superblock, Unverified};
use sealdisk_store::{AlignedBuf, ReadExtent, Store, StoreError, WriteExtent};

use super::seal_cache::SealPage;
use crate::OpenError;

/// A superblock that the key vouches for, and the tag of each zone's map page.
pub(crate) type Verified = (Superblock, Vec<MapTag>);

/// The newest superblock that the key vouches for.
pub(crate) fn read_superblock(
    store: &dyn Store,
    payload: &SealedPayload,
    mac: &SuperblockMac,
) -> Result<Verified, OpenError> {
    read_superblocks(store, payload, mac).map(|(newest, _)| newest)
}

/// The newest superblock that the key vouches for, and the one before it where that is still there.
pub(crate) fn read_superblocks(
    store: &dyn Store,
    payload: &SealedPayload,
    mac: &SuperblockMac,
) -> Result<(Verified, Option<Verified>), OpenError> {
    let layout = superblock_layout(payload);
    let copies = read_copies(store, payload)?;
    let mut found: Vec<Verified> = Vec::new();
    for (copy, first_page) in copies.iter().zip(layout.superblocks()) {
        let Ok(copy) = copy else { continue };
        let size = copy.claims().size;
        let mut behind = AlignedBuf::new((layout.superblock_len(size) - first_page.len) as usize);
        store.read(&mut [ReadExtent { offset: first_page.end(), buf: &mut behind }])?;
        if let Ok(verified) = copy.verify(mac, &behind, layout.zone_count(size)) {
            found.push(verified);
        }
    }
    found.sort_by_key(|(superblock, _)| std::cmp::Reverse(superblock.generation));
    let mut found = found.into_iter();
    match found.next() {
        Some(newest) => {
            let before = found.next().filter(|(before, _)| before.generation + 1 == newest.0.generation);
            Ok((newest, before))
        }
        None if copies.iter().any(Result::is_ok) => Err(OpenError::WrongKey),
        None => {
            let [first, second] = copies.map(|copy| copy.err().unwrap_or(BadSuperblock::NoMagic));
            Err(OpenError::NoSuperblock(if first == BadSuperblock::NoMagic { second } else { first }))
        }
    }
}

/// The first pages of both copies as they are found.
pub(crate) fn read_copies(
    store: &dyn Store,
    payload: &SealedPayload,
) -> Result<[Result<Unverified, BadSuperblock>; 2], OpenError> {
    let [first, second] = superblock_layout(payload).superblocks().map(|place| {
        let mut page = AlignedBuf::new(size_of::<SealPage>());
        store.read(&mut [ReadExtent { offset: place.offset, buf: &mut page }])?;
        Ok::<_, StoreError>(Unverified::decode(page.first_chunk().expect("a page")))
    });
    Ok([first?, second?])
}

/// Writes a superblock over the older of the two copies.
pub(crate) fn write_superblock(
    store: &dyn Store,
    layout: &PackedLayout,
    mac: &SuperblockMac,
    superblock: &Superblock,
    tags: &[MapTag],
) -> Result<(), StoreError> {
    let place = layout.superblocks()[(superblock.generation % 2) as usize];
    let pages = AlignedBuf::from(&superblock.encode(mac, tags)[..]);
    store.write(&[WriteExtent { offset: place.offset, buf: &pages }])
}

/// Where the superblocks are depends on the payload's offset alone; how many zones a size has, on the layout too.
fn superblock_layout(payload: &SealedPayload) -> PackedLayout {
    let seal_len = payload.cipher.seal_len().max(1);
    let layout = ObjectLayout::new(payload.layout, payload.offset, seal_len);
    layout.map_or_else(|| PackedLayout::new(payload.offset, 0, seal_len), |layout| *layout.rows())
}
