//! How sectors are sealed, as the store shows it without the key: claims, not facts.

use sealdisk_cipher::Seal;
use sealdisk_layout::{ObjectLayout, ObjectNumber, PAGE_SIZE, SealPlace, SealedPayload};
use sealdisk_store::{ObjectRead, ObjectStore, ReadExtent};

use super::open::layout_of;
use crate::OpenError;
use crate::sealed::SectorForms;

/// Counts the forms of the slots of all objects of a disk of `size` bytes. What never was written has none.
pub(crate) fn sector_forms(
    objects: &dyn ObjectStore,
    payload: &SealedPayload,
    size: u64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SectorForms, OpenError> {
    let layout = layout_of(payload)?;
    let mut forms = SectorForms::default();
    // Nobody vouches for the size: there is nothing to see behind the store's end.
    let count = layout.rows().object_count(size).min(layout.rows().object_count(objects.size()?));
    for object in (0..count).map(ObjectNumber) {
        progress(object.0, count);
        for slot in slots(objects, &layout, object)? {
            forms.count(payload.cipher.claimed_form(&slot));
        }
    }
    progress(count, count);
    Ok(forms)
}

/// The slots of an object's sectors, as far as they are there.
fn slots(objects: &dyn ObjectStore, layout: &ObjectLayout, object: ObjectNumber) -> Result<Vec<Seal>, OpenError> {
    let rows = layout.rows();
    let (len, sectors) = (rows.seal_len(), rows.sectors_per_object());
    let (start, bytes) = match layout.seals() {
        SealPlace::Pages { first } => (first, rows.seal_pages_per_object() * PAGE_SIZE),
        SealPlace::Interleaved => (0, sectors * layout.stride()),
        SealPlace::Keys => (0, 0),
    };
    let mut buf = vec![0; bytes as usize];
    let mut read = ObjectRead::new(layout.store_object(object));
    match layout.seals() {
        SealPlace::Keys => read.keys = (0..sectors as u32).collect(),
        _ => read.extents.push(ReadExtent { offset: start, buf: &mut buf }),
    }
    let mut reads = [read];
    objects.read_objects(&mut reads);
    let [ObjectRead { result, values, .. }] = reads;
    result?;
    Ok(match layout.seals() {
        SealPlace::Keys => {
            let whole = values.iter().filter(|(_, value)| value.len() == len);
            whole.map(|(_, value)| Seal::from_slice(value)).collect()
        }
        SealPlace::Interleaved => {
            let pairs = buf.chunks_exact(layout.stride() as usize);
            pairs.map(|pair| Seal::from_slice(&pair[pair.len() - len..])).collect()
        }
        SealPlace::Pages { .. } => {
            let place = |index| {
                let (page, offset) = layout.slot(object, index);
                (layout.page_offset(0, page) as usize) + offset
            };
            (0..sectors).map(|index| Seal::from_slice(&buf[place(index)..][..len])).collect()
        }
    })
}
