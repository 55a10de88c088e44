//! A header whose edits are put into objects one after the other opens after each of them, for us and for cryptsetup: whoever
//! puts them there may be killed at any time.
#![allow(clippy::unwrap_used, reason = "a failed expectation in a test is a failed test")]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::*;
use sealdisk_cipher::VolumeKey;
use sealdisk_header::{Header, LastSlot, ObjectEdit, Pbkdf, RestoreCheck};
use zeroize::Zeroizing;

fn apply(bytes: &mut [u8], edit: &ObjectEdit, object_size: usize) {
    let start = edit.object as usize * object_size;
    for (offset, expected) in &edit.expected {
        assert_eq!(&bytes[start + *offset as usize..][..expected.len()], expected);
    }
    for (offset, written) in &edit.writes {
        bytes[start + *offset as usize..][..written.len()].copy_from_slice(written);
    }
    for (offset, len) in &edit.zeros {
        bytes[start + *offset as usize..][..*len as usize].fill(0);
    }
}

/// Whether a header opens with one of these. Debian's cryptsetup must think the same. (It mends what is torn: it comes
/// second.)
fn opens(device: &Path, passphrases: &[&str]) -> bool {
    let header = Header::load(device).unwrap();
    let ours: Vec<bool> = passphrases.iter().map(|text| header.unlock(&passphrase(text), None).is_ok()).collect();
    cryptsetup(&["luksDump", common::text(device)]);
    let theirs = passphrases.iter().map(|text| {
        let open = ["open", "--test-passphrase", "--key-file=-", common::text(device)];
        cryptsetup_with(&open, text).status.success()
    });
    assert_eq!(theirs.collect::<Vec<_>>(), ours, "cryptsetup, and we");
    ours.contains(&true) || passphrases.is_empty()
}

/// Changes a header with `change`, and goes the way there edit by edit. `any` of these must open it at all times.
fn goes_through(name: &str, slots: u32, any: &[&str], change: impl Fn(&Path)) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (device, copy) = (folder.path().join("device"), folder.path().join("copy"));
    fs::File::create(&device).unwrap().set_len(OFFSET + 4096).unwrap();
    let key = VolumeKey::new(Zeroizing::new((0..64).collect())).unwrap();
    let mut header = Header::format(&device, &options(sealed()), &key, &passphrase("old")).unwrap();
    // More key slots than one object has room for.
    for slot in 1..slots {
        header.add_key(&passphrase("old"), &passphrase("other"), Some(slot), Pbkdf::CHEAPEST).unwrap();
    }
    let before = fs::read(&device).unwrap();
    change(&device);
    let after = fs::read(&device).unwrap();
    let map = Header::load(&device).unwrap().map();
    let mut last = Vec::new();
    for object_size in [4 << 20, 64 << 10, 4096] {
        let edits = ObjectEdit::between(&before, &after, &map, object_size as u64);
        assert!(object_size < 4 << 20 || slots > 1 || edits.len() == 1, "{name}: {} edits", edits.len());
        assert_eq!(edits.iter().filter(|edit| !edit.expected.is_empty()).count(), 1);
        let mut bytes = before.clone();
        let file = fs::File::create(&copy).unwrap();
        // After none of them, after each, and after all. Of many small objects, not after every one.
        let asked = |done: usize| {
            edits.len() < 12 || done.is_multiple_of(37) || edits.get(done).is_none_or(|edit| edit.object < 8)
        };
        for done in 0..=edits.len() {
            if asked(done) {
                file.write_all_at(&bytes, 0).unwrap();
                assert!(opens(&copy, any), "{name}: {done} of {} edits in objects of {object_size}", edits.len());
            }
            edits.get(done).into_iter().for_each(|edit| apply(&mut bytes, edit, object_size));
        }
        let copies = map.copies.end as usize;
        assert!(bytes[..copies] == after[..copies], "{name}");
        for area in &map.key_material {
            let area = area.start as usize..area.end as usize;
            assert!(bytes[area.clone()] == after[area], "{name}");
        }
        last = bytes;
    }
    last
}

#[test]
fn at_any_time_the_old_or_the_new_key_opens() {
    let add = |device: &Path| {
        let mut header = Header::load(device).unwrap();
        header.add_key(&passphrase("old"), &passphrase("new"), None, Pbkdf::CHEAPEST).unwrap();
    };
    let change = |device: &Path| {
        let mut header = Header::load(device).unwrap();
        header.change_key(&passphrase("old"), &passphrase("new"), None, Pbkdf::CHEAPEST).unwrap();
    };
    goes_through("add", 1, &["old"], add);
    goes_through("add among many", 20, &["old"], add);
    goes_through("change", 1, &["old", "new"], change);
    goes_through("change among many", 20, &["old", "new"], change);
}

#[test]
fn a_wiped_key_slot_is_zeros() {
    let remove = |device: &Path| {
        let mut header = Header::load(device).unwrap();
        header.kill_slot(2, LastSlot::Keep).unwrap();
    };
    goes_through("remove among many", 20, &["old"], |device| {
        Header::load(device).unwrap().kill_slot(18, LastSlot::Keep).unwrap();
    });
    let bytes = goes_through("remove", 3, &["old"], remove);
    let area = 32768 + 2 * 258048..32768 + 3 * 258048;
    assert!(bytes[area].iter().all(|byte| *byte == 0));

    let bytes = goes_through("erase", 3, &[], |device| Header::load(device).unwrap().erase().unwrap());
    assert!(bytes[32768..32768 + 3 * 258048].iter().all(|byte| *byte == 0));
}

#[test]
fn a_restored_header_is_the_old_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup");
    for (name, slots) in [("restore", 1), ("restore among many", 20)] {
        goes_through(name, slots, &["old", "new"], |device| {
            let _ = fs::remove_file(&backup);
            let mut header = Header::load(device).unwrap();
            header.change_key(&passphrase("old"), &passphrase("new"), None, Pbkdf::CHEAPEST).unwrap();
            header.backup(&backup).unwrap();
            header.add_key(&passphrase("new"), &passphrase("old"), None, Pbkdf::CHEAPEST).unwrap();
            Header::restore(device, &backup, RestoreCheck::SameVolume).unwrap();
        });
    }
}
