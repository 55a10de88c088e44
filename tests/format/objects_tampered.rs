//! What both implementations refuse of a volume without a journal.

use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, Payload, SealedPayload};
use sealdisk_store::{MemoryObjects, ObjectImage};
use sealdisk_units::{Lineage, OBJECT_SIZE};
use sealdisk_volume::{Volume, VolumeErrorKind};
use support::{Random, authenticated_ciphers, read, write};

use crate::exchange::{OFFSET, bare_description, read_all};
use crate::objects::{LAYOUTS, Places, Scratch, has_keys, map_of, open, shape, store_size};
use crate::objects_folder::Folder;

/// A change of the objects, and the first sector that is not authentic then.
struct Tampered {
    what: &'static str,
    change: Box<dyn Fn(&Folder)>,
    lba: u64,
}

impl Tampered {
    fn new(what: &'static str, lba: u64, change: impl Fn(&Folder) + 'static) -> Self {
        Self { what, change: Box::new(change), lba }
    }
}

fn flip(object: u64, offset: u64) -> impl Fn(&Folder) {
    move |folder| {
        let byte = folder.read(object, offset, 1)[0];
        folder.write(object, offset, &[byte ^ 1]);
    }
}

/// Changes the value of a key of the first object; `None` removes it.
fn change_value(key: u32, change: impl Fn(&mut Vec<u8>) -> Option<()>) -> impl Fn(&Folder) {
    let object = Places::of(LayoutName::Omap).data;
    move |folder| {
        let mut values = folder.values(object);
        if change(values.get_mut(&key).unwrap()).is_none() {
            values.remove(&key);
        }
        folder.set_values(object, &values);
    }
}

/// Changes the slot of sector `i` of the first object.
fn flip_slot(sealed: &SealedPayload, i: u64, byte: usize) -> Box<dyn Fn(&Folder)> {
    let seal_len = sealed.cipher.seal_len() as u64;
    let (sectors, slots) = shape(sealed);
    let data = Places::of(sealed.layout).data;
    match sealed.layout {
        LayoutName::Omap => Box::new(change_value(i as u32, move |value| {
            value[byte] ^= 1;
            Some(())
        })),
        LayoutName::Unaligned => Box::new(flip(data, (4096 + seal_len) * i + 4096 + byte as u64)),
        _ => Box::new(flip(data, 4096 * (sectors + i / slots) + seal_len * (i % slots) + byte as u64)),
    }
}

/// Changes of sectors 7, 9 and 11, which are plain, folded and zero.
fn of_sectors(sealed: &SealedPayload) -> Vec<Tampered> {
    let data = Places::of(sealed.layout).data;
    let stride = if sealed.layout == LayoutName::Unaligned { 4096 + sealed.cipher.seal_len() as u64 } else { 4096 };
    vec![
        Tampered::new("a plain place", 7, flip(data, stride * 7 + 100)),
        Tampered::new("a folded place", 9, flip(data, stride * 9 + 4095)),
        Tampered::new("a place of zeros", 11, flip(data, stride * 11 + 4000)),
        Tampered::new("a plain slot", 7, flip_slot(sealed, 7, 0)),
        Tampered::new("a fold mark", 9, flip_slot(sealed, 9, 39)),
        Tampered::new("a seal of zero", 11, flip_slot(sealed, 11, 20)),
        Tampered::new("a removed object", 0, move |folder| folder.remove(data)),
    ]
}

fn of_keys(seal_len: usize) -> Vec<Tampered> {
    let resize = |len| {
        change_value(9, move |value| {
            value.resize(len, 0xff);
            Some(())
        })
    };
    vec![
        Tampered::new("a missing key", 9, change_value(9, |_| None)),
        Tampered::new("a short value", 9, resize(seal_len - 1)),
        Tampered::new("a long value", 9, resize(seal_len + 1)),
        Tampered::new("a removed object", 0, |folder| folder.remove(Places::of(LayoutName::Omap).data)),
    ]
}

fn bytes(image: &ObjectImage, object: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    image.bytes(object, offset, &mut bytes);
    bytes
}

/// Puts back what was before the first object existed, but not all of it.
fn of_the_map(before: &ObjectImage, after: &ObjectImage, cipher: CipherName, layout: LayoutName) -> Vec<Tampered> {
    let Places { superblocks, map, .. } = Places::of(layout);
    let page = bytes(before, map, 0, 4096);
    let (generation, newest, _) = map_of(after, cipher, layout);
    // The copy that is not the newest.
    let place = (generation + 1) % 2 * (2 << 20);
    let copy = bytes(before, superblocks, place, 8192);
    let generation_before = u64::from_le_bytes(copy[16..24].try_into().unwrap());
    assert!(generation_before + 1 < generation && copy[4096..4112] != newest);
    let also_page = page.clone();
    vec![
        Tampered::new("a changed map page", 0, flip(map, 2000)),
        Tampered::new("an old map page", 0, move |folder| folder.write(map, 0, &page)),
        Tampered::new("an old map page, its superblock as the older copy", 0, move |folder| {
            folder.write(map, 0, &also_page);
            folder.write(superblocks, place, &copy);
        }),
    ]
}

#[test]
fn both_refuse_what_was_changed_in_objects() {
    let with_tags = LAYOUTS.into_iter().zip(authenticated_ciphers().cycle());
    for (layout, cipher) in with_tags.chain(LAYOUTS.map(|layout| (layout, CipherName::Aes256XtsRandom))) {
        let sealed = SealedPayload { cipher, layout, fold: true, lineage: Lineage([5; 16]), offset: OFFSET };
        let (sectors, _) = shape(&sealed);
        let size = (sectors + 200) * 4096;
        let key = support::key();
        let store =
            Arc::new(MemoryObjects::new(store_size(sealed, size), sealed.layout.object_size(), has_keys(&sealed)));
        Volume::format(&*store, &Payload::Sealed(sealed), &key, size).unwrap();
        let volume = open(&store, sealed, &key, false);
        write(&volume, sectors * 4096, &[3; 4096]).unwrap();
        volume.close().unwrap();
        let before = store.image();
        let volume = open(&store, sealed, &key, false);
        let mut plain = [0; 4096];
        Random::new(1).fill(&mut plain);
        write(&volume, 7 * 4096, &plain).unwrap();
        write(&volume, 9 * 4096, &[1; 4096]).unwrap();
        volume.close().unwrap();
        let after = store.image();

        // What there is no tag for is not noticed.
        let mut all = if cipher == CipherName::Aes256XtsRandom { Vec::new() } else { of_sectors(&sealed) };
        all.extend(of_the_map(&before, &after, cipher, layout));
        all.extend(if has_keys(&sealed) { of_keys(cipher.seal_len()) } else { Vec::new() });
        let scratch = Scratch::new(bare_description(&sealed).as_bytes(), layout);
        let reopen = || {
            let store = Arc::new(scratch.objects.load(
                store_size(sealed, size),
                sealed.layout.object_size(),
                has_keys(&sealed),
            ));
            open(&store, sealed, &key, true)
        };
        for Tampered { what, change, lba } in &all {
            scratch.objects.save(&after);
            change(&scratch.objects);
            let (found, expected) =
                (scratch.refused_by_python(&["--bare"]), format!("Unreadable: sector {lba} is not authentic"));
            assert!(found.contains(&expected), "{cipher}, {layout}, {what}: {found:?} instead of {expected:?}");
            let refused = read(&reopen(), lba * 4096, &mut [0; 4096]).expect_err(what);
            assert_eq!(refused.kind(), VolumeErrorKind::NotAuthentic, "{cipher}, {layout}, {what}");
        }
        let sector = |disk: &[u8], lba: u64| disk[lba as usize * 4096..][..4096].to_vec();
        scratch.objects.save(&after);
        let disk = scratch.read_by_python(&["--bare"]);
        assert!(sector(&disk, 7) == plain && sector(&disk, 9) == [1; 4096], "{cipher}, {layout}");
        assert!(sector(&disk, sectors) == [3; 4096] && read_all(&reopen()) == disk, "{cipher}, {layout}");

        // The whole of both objects is a state that once was, and nothing says that it is old.
        let Places { superblocks, map, .. } = Places::of(layout);
        for object in [superblocks, map] {
            scratch.objects.write(object, 0, &bytes(&before, object, 0, OBJECT_SIZE as usize));
        }
        let disk = scratch.read_by_python(&["--bare"]);
        assert!(sector(&disk, 7) == [0; 4096] && sector(&disk, sectors) == [3; 4096], "{cipher}, {layout}");
        assert!(read_all(&reopen()) == disk, "{cipher}, {layout}");
    }
}
