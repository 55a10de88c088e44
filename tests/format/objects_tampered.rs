//! What both implementations refuse of a volume without a journal.

use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, Payload, SealedPayload};
use sealdisk_store::{MemoryObjects, ObjectImage};
use sealdisk_units::Lineage;
use sealdisk_volume::{Volume, VolumeErrorKind};
use support::{Random, read, write};

use crate::exchange::{OFFSET, bare_description};
use crate::objects::{DATA, LAYOUTS, MAP, SUPERBLOCKS, Scratch, has_keys, map_of, open, shape, store_size};
use crate::objects_folder::Folder;

/// What both refuse: the change, and the first sector that is not authentic then.
struct Tampered {
    what: &'static str,
    change: Box<dyn Fn(&Folder)>,
    lba: u64,
}

fn flip(object: u64, offset: u64) -> Box<dyn Fn(&Folder)> {
    Box::new(move |folder| {
        let byte = folder.read(object, offset, 1)[0];
        folder.write(object, offset, &[byte ^ 1]);
    })
}

/// Changes the slot of sector `i` of the first object.
fn flip_slot(sealed: &SealedPayload, i: u64, byte: usize) -> Box<dyn Fn(&Folder)> {
    let seal_len = sealed.cipher.seal_len() as u64;
    let (sectors, slots) = shape(sealed);
    match sealed.layout {
        LayoutName::Omap => Box::new(move |folder| {
            let mut values = folder.values(DATA);
            values.get_mut(&(i as u32)).unwrap()[byte] ^= 1;
            folder.set_values(DATA, &values);
        }),
        LayoutName::Unaligned => flip(DATA, (4096 + seal_len) * i + 4096 + byte as u64),
        _ => flip(DATA, 4096 * (sectors + i / slots) + seal_len * (i % slots) + byte as u64),
    }
}

#[test]
fn both_refuse_what_was_changed_in_objects() {
    for (round, layout) in LAYOUTS.into_iter().enumerate() {
        let cipher = [CipherName::Aes256Gcm, CipherName::Aegis256][round % 2];
        let sealed = SealedPayload { cipher, layout, fold: true, lineage: Lineage([5; 16]), offset: OFFSET };
        let (sectors, _) = shape(&sealed);
        let size = (sectors + 200) * 4096;
        let key = support::key();
        let store = Arc::new(MemoryObjects::new(store_size(sealed, size), has_keys(&sealed)));
        Volume::format(&*store, &Payload::Sealed(sealed), &key, size).unwrap();
        let volume = open(&store, sealed, &key, false);
        write(&volume, sectors * 4096, &[3; 4096]).unwrap();
        volume.close().unwrap();
        let before = store.image();

        // Plain, folded, zero, in an object that did not exist before.
        let volume = open(&store, sealed, &key, false);
        let mut plain = [0; 4096];
        Random::new(1).fill(&mut plain);
        write(&volume, 7 * 4096, &plain).unwrap();
        write(&volume, 9 * 4096, &[1; 4096]).unwrap();
        volume.close().unwrap();
        let image = store.image();

        let scratch = Scratch::new(bare_description(&sealed).as_bytes());
        let stride = if layout == LayoutName::Unaligned { 4096 + cipher.seal_len() as u64 } else { 4096 };
        let bytes = |image: &ObjectImage, object, offset, len| {
            let mut bytes = vec![0; len];
            image.bytes(object, offset, &mut bytes);
            bytes
        };
        let old_page = bytes(&before, MAP, 0, 4096);
        // Beside the newest superblock's copy, the other one.
        let (generation, newest, _) = map_of(&image, cipher);
        let other = (generation + 1) % 2 * (2 << 20);
        let old_copy = bytes(&before, SUPERBLOCKS, other, 8192);
        let old_generation = u64::from_le_bytes(old_copy[16..24].try_into().unwrap());
        assert!(old_generation + 1 < generation && old_copy[4096..4112] != newest);
        let also_old = old_page.clone();
        let mut tampered = vec![
            Tampered { what: "a plain place", change: flip(DATA, stride * 7 + 100), lba: 7 },
            Tampered { what: "a folded place", change: flip(DATA, stride * 9 + 4095), lba: 9 },
            Tampered { what: "a place of zeros", change: flip(DATA, stride * 11 + 4000), lba: 11 },
            Tampered { what: "a plain slot", change: flip_slot(&sealed, 7, 0), lba: 7 },
            Tampered { what: "a fold mark", change: flip_slot(&sealed, 9, 39), lba: 9 },
            Tampered { what: "a seal of zero", change: flip_slot(&sealed, 11, 20), lba: 11 },
            Tampered { what: "a removed object", change: Box::new(|folder| folder.remove(DATA)), lba: 0 },
            Tampered { what: "a changed map page", change: flip(MAP, 2000), lba: 0 },
            Tampered {
                what: "an old map page",
                change: Box::new(move |folder| folder.write(MAP, 0, &old_page)),
                lba: 0,
            },
            Tampered {
                what: "an old map page with its superblock as the older copy",
                change: Box::new(move |folder| {
                    folder.write(MAP, 0, &also_old);
                    folder.write(SUPERBLOCKS, other, &old_copy);
                }),
                lba: 0,
            },
        ];
        if layout == LayoutName::Omap {
            for (what, len) in [("a missing key", None), ("a short value", Some(39)), ("a long value", Some(49))] {
                let change = Box::new(move |folder: &Folder| {
                    let mut values = folder.values(DATA);
                    match len {
                        Some(len) => values.get_mut(&9).unwrap().resize(len, 0),
                        None => drop(values.remove(&9)),
                    }
                    folder.set_values(DATA, &values);
                });
                tampered.push(Tampered { what, change, lba: 9 });
            }
        }
        for Tampered { what, change, lba } in &tampered {
            scratch.objects.save(&image);
            change(&scratch.objects);
            let found = scratch.refused_by_python(&["--bare"]);
            let expected = format!("Unreadable: sector {lba} is not authentic");
            assert!(found.contains(&expected), "{layout}, {what}: {found:?} instead of {expected:?}");
            let store = Arc::new(scratch.objects.load(store_size(sealed, size), has_keys(&sealed)));
            let volume = open(&store, sealed, &key, true);
            let refused = read(&volume, lba * 4096, &mut [0; 4096]).expect_err(what);
            assert_eq!(refused.kind(), VolumeErrorKind::NotAuthentic, "{layout}, {what}");
        }
        scratch.objects.save(&image);
        let by_python = scratch.read_by_python(&["--bare"]);
        assert!(by_python[7 * 4096..8 * 4096] == plain && by_python[9 * 4096..10 * 4096] == [1; 4096], "{layout}");
        assert!(by_python[sectors as usize * 4096..][..4096] == [3; 4096], "{layout}");
    }
}
