//! What can be told of a sealed volume without its key: claims, not facts.

use sealdisk_cipher::{Form, Seal};
use sealdisk_layout::{PackedLayout, SealedPayload, Superblock};
use sealdisk_store::{AlignedBuf, ReadExtent, Store};
use sealdisk_units::StoreRange;

use crate::OpenError;
use crate::metadata::superblocks::read_copies;

/// How many sectors the store shows to be sealed in which way. Dropped objects that still take space count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SectorForms {
    /// Sectors with their seal in a seal page.
    pub plain: u64,
    /// Sectors that carry their own seal.
    pub folded: u64,
    /// Sectors that are sealed as zero.
    pub zero: u64,
}

impl SectorForms {
    /// One more sector of this form.
    pub(crate) fn count(&mut self, form: Option<Form>) {
        match form {
            Some(Form::Plain) => self.plain += 1,
            Some(Form::FoldMark) => self.folded += 1,
            Some(Form::Zero) => self.zero += 1,
            _ => {}
        }
    }
}

/// The newest superblock's claims.
pub(crate) fn inspect(store: &dyn Store, payload: &SealedPayload) -> Result<Superblock, OpenError> {
    let copies = read_copies(store, payload)?;
    let newest = copies.iter().flatten().map(|copy| *copy.claims()).max_by_key(|claims| claims.generation);
    let damage = || copies.iter().find_map(|copy| copy.as_ref().err().copied());
    match newest {
        Some(superblock) => Ok(superblock),
        None => Err(OpenError::NoSuperblock(damage().expect("no copy is readable"))),
    }
}

/// Counts the forms of all sectors whose seal pages take space, by the form byte that stands in clear.
pub(crate) fn sector_forms(
    store: &dyn Store,
    payload: &SealedPayload,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SectorForms, OpenError> {
    let superblock = inspect(store, payload)?;
    let layout = PackedLayout::new(payload.offset, superblock.journal_len, payload.cipher.seal_len());
    let mut forms = SectorForms::default();
    // Nobody vouches for the size: there is nothing to see behind the store's end.
    let count = layout.object_count(superblock.size).min(layout.object_count(store.size()?));
    for object in (0..count).map(sealdisk_layout::ObjectNumber) {
        progress(object.0, count);
        let mut pages = layout.seal_pages_of(object);
        let Some(first) = pages.next() else { continue };
        let len = layout.seal_pages_per_object() * sealdisk_layout::PAGE_SIZE;
        let range = StoreRange::new(layout.seal_page(first).offset, len);
        if !store.is_allocated(range)? {
            continue;
        }
        let mut buf = AlignedBuf::new(len as usize);
        store.read(&mut [ReadExtent { offset: range.offset, buf: &mut buf }])?;
        for lba in layout.sectors_of(object).iter() {
            let place = layout.place(lba);
            let page = (layout.seal_page(place.seal_page).offset - range.offset) as usize;
            let seal = Seal::from_slice(&buf[page + place.seal_offset..][..layout.seal_len()]);
            forms.count(payload.cipher.claimed_form(&seal));
        }
    }
    progress(count, count);
    Ok(forms)
}
