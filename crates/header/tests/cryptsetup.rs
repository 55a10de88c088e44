//! Debian's cryptsetup and we work on each other's headers.
#![allow(clippy::unwrap_used, reason = "a failed expectation in a test is a failed test")]

mod common;

use std::path::Path;

use common::*;
use sealdisk_cipher::VolumeKey;
use sealdisk_header::{Header, HeaderErrorKind, LastSlot, Payload, Pbkdf, RestoreCheck, SlotPbkdf, Unsupported};
use sealdisk_layout::PlainPayload;
use serde_json::Value;
use zeroize::Zeroizing;

fn metadata(device: &Path) -> Value {
    serde_json::from_str(&cryptsetup(&["luksDump", "--dump-json-metadata", text(device)])).unwrap()
}

/// What must survive whatever cryptsetup does to the rest of the header.
fn assert_still_sealed(volume: &Volume) {
    assert_eq!(*volume.header().payload(), sealed());
}

#[test]
fn luks_dump_shows_a_sealed_volume_for_what_it_is() {
    let volume = Volume::empty();
    let mut options = options(sealed());
    options.label = Some("pgdata".to_owned());
    let header = Header::format(&volume.path(), &options, &volume.key, &passphrase("first")).unwrap();
    let dump = cryptsetup(&["luksDump", text(&volume.path())]);
    for shown in
        ["Label:         \tpgdata", "Subsystem:     \tsealdisk", "cipher: sealdisk-aegis-256", "offset: 16777216"]
    {
        assert!(dump.contains(shown), "no {shown:?} in\n{dump}");
    }
    assert_eq!(header.label(), Some("pgdata"));
    assert_eq!(cryptsetup(&["luksUUID", text(&volume.path())]).trim(), header.uuid());
}

#[test]
fn a_passphrase_added_by_either_opens_with_the_other() {
    for payload in [sealed(), plain()] {
        let volume = Volume::formatted(payload);
        let (first, second) = (volume.key_file("first"), volume.key_file("second"));
        let device = volume.path();
        let mut add = vec!["luksAddKey", text(&device), &second, "--key-file", &first];
        add.extend(CHEAP);
        cryptsetup(&add);
        volume.assert_opens("second");
        volume.assert_opens("first");

        let number =
            volume.header().add_key(&passphrase("second"), &passphrase("third"), Some(7), Pbkdf::CHEAPEST).unwrap();
        assert_eq!(number, 7);
        let third = volume.key_file("third");
        cryptsetup(&["open", "--test-passphrase", text(&device), "--key-file", &third]);
        let refused =
            cryptsetup_refuses(&["open", "--test-passphrase", text(&device), "--key-file", &volume.key_file("no")]);
        assert_eq!(refused.0, 2, "{}", refused.1);
        volume.assert_refuses("no");
        assert_eq!(*volume.header().payload(), payload);
    }
}

#[test]
fn cryptsetup_changes_removes_and_kills_slots_of_a_sealed_volume() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let (first, second, third) = (volume.key_file("first"), volume.key_file("second"), volume.key_file("third"));
    let mut change = vec!["luksChangeKey", text(&device), &second, "--key-file", &first];
    change.extend(CHEAP);
    cryptsetup(&change);
    volume.assert_opens("second");
    volume.assert_refuses("first");

    for (slot, key) in [("4", &first), ("9", &third)] {
        let mut add = vec!["luksAddKey", text(&device), key, "--key-file", &second, "--key-slot", slot];
        add.extend(CHEAP);
        cryptsetup(&add);
    }
    cryptsetup(&["luksKillSlot", text(&device), "4", "--key-file", &second]);
    volume.assert_refuses("first");
    cryptsetup(&["luksRemoveKey", text(&device), &second]);
    volume.assert_refuses("second");
    volume.assert_opens("third");
    assert_eq!(volume.header().key_slots().iter().map(|slot| slot.number).collect::<Vec<_>>(), [9]);
    assert_still_sealed(&volume);
}

#[test]
fn our_changes_are_cryptsetups() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let mut header = volume.header();
    let changed = header.change_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST).unwrap();
    assert_eq!(changed, 0, "a changed slot keeps its number");
    assert_eq!(header.add_key(&passphrase("second"), &passphrase("third"), None, Pbkdf::CHEAPEST).unwrap(), 1);
    let opens = |text: &str| {
        let key = volume.key_file(text);
        cryptsetup_with(&["open", "--test-passphrase", device.to_str().unwrap(), "--key-file", &key], "")
            .status
            .success()
    };
    assert!(!opens("first") && opens("second") && opens("third"));

    assert_eq!(header.remove_key(&passphrase("third"), LastSlot::Keep).unwrap(), 1);
    assert!(!opens("third") && opens("second"));
    assert_eq!(metadata(&device)["keyslots"].as_object().unwrap().len(), 1);

    let refused = header.kill_slot(0, LastSlot::Keep).unwrap_err();
    assert_eq!(*refused.kind(), HeaderErrorKind::LastSlot);
    assert_eq!(*header.kill_slot(5, LastSlot::Keep).unwrap_err().kind(), HeaderErrorKind::NoSuchSlot);
    assert!(opens("second"));
    header.kill_slot(0, LastSlot::Remove).unwrap();
    let erased = header.unlock(&passphrase("second"), None).unwrap_err();
    assert_eq!(*erased.kind(), HeaderErrorKind::Erased);
}

#[test]
fn erasing_leaves_no_slot_whoever_does_it() {
    for ours in [true, false] {
        let volume = Volume::formatted(sealed());
        volume.header().add_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST).unwrap();
        let before = std::fs::read(volume.path()).unwrap();
        if ours {
            volume.header().erase().unwrap();
        } else {
            cryptsetup(&["erase", "--batch-mode", text(&volume.path())]);
        }
        let error = volume.header().unlock(&passphrase("first"), None).unwrap_err();
        assert_eq!(*error.kind(), HeaderErrorKind::Erased);
        assert!(cryptsetup(&["luksDump", text(&volume.path())]).contains("Keyslots:\nTokens:"));
        let after = std::fs::read(volume.path()).unwrap();
        for slot in 0..2 {
            let material = 32768 + slot * 258048..32768 + (slot + 1) * 258048;
            let kept = before[material.clone()].iter().zip(&after[material]).filter(|(old, new)| old == new).count();
            assert!(kept < 4096, "{kept} bytes of slot {slot}'s key material are as before");
        }
        assert_still_sealed(&volume);
    }
}

#[test]
fn backups_of_either_are_restored_by_the_other() {
    for payload in [sealed(), plain()] {
        let volume = Volume::formatted(payload);
        let device = volume.path();
        let (ours, theirs) = (volume.file("ours"), volume.file("theirs"));
        volume.header().backup(&ours).unwrap();
        cryptsetup(&["luksHeaderBackup", text(&device), "--header-backup-file", text(&theirs)]);
        assert_eq!(std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
        let again = volume.header().backup(&ours).unwrap_err();
        assert_eq!(*again.kind(), HeaderErrorKind::Exists);

        volume.header().erase().unwrap();
        cryptsetup(&["luksHeaderRestore", "--batch-mode", text(&device), "--header-backup-file", text(&ours)]);
        volume.assert_opens("first");
        volume.header().erase().unwrap();
        Header::restore(&device, &theirs, RestoreCheck::SameVolume).unwrap();
        volume.assert_opens("first");
        assert_eq!(*volume.header().payload(), payload);
    }
}

#[test]
fn a_backup_of_another_volume_or_onto_no_volume_needs_force() {
    let volume = Volume::formatted(sealed());
    let backup = volume.file("backup");
    volume.header().backup(&backup).unwrap();

    let other = Volume::formatted(sealed());
    let refused = Header::restore(&other.path(), &backup, RestoreCheck::SameVolume).unwrap_err();
    assert_eq!(*refused.kind(), HeaderErrorKind::OtherVolume);
    other.assert_opens("first");

    let lost = Volume::empty();
    let refused = Header::restore(&lost.path(), &backup, RestoreCheck::SameVolume).unwrap_err();
    assert_eq!(*refused.kind(), HeaderErrorKind::OtherVolume);
    assert!(std::fs::read(lost.path()).unwrap().iter().all(|&byte| byte == 0), "a refused restore wrote something");
    let restored = Header::restore(&lost.path(), &backup, RestoreCheck::None).unwrap();
    let key = restored.unlock(&passphrase("first"), None).unwrap();
    assert!(key.expose() == volume.key.expose());

    let nonsense = volume.file("nonsense");
    std::fs::write(&nonsense, vec![7; 1 << 20]).unwrap();
    let refused = Header::restore(&volume.path(), &nonsense, RestoreCheck::None).unwrap_err();
    assert_eq!((refused.kind(), refused.device()), (&HeaderErrorKind::NoHeader, &*nonsense));
    volume.assert_opens("first");
}

#[test]
fn tokens_come_and_go() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let token = volume.file("token");
    let written = r#"{"type":"sealdisk-example","keyslots":["0"],"service":"keys.example"}"#;
    std::fs::write(&token, written).unwrap();
    cryptsetup(&["token", "import", text(&device), "--json-file", text(&token), "--token-id", "3"]);
    let exported = cryptsetup(&["token", "export", text(&device), "--token-id", "3"]);
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap(), serde_json::from_str::<Value>(written).unwrap());
    volume.assert_opens("first");

    volume.header().change_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST).unwrap();
    assert_eq!(metadata(&device)["tokens"]["3"]["keyslots"], serde_json::json!(["0"]));
    cryptsetup(&["token", "remove", text(&device), "--token-id", "3"]);
    volume.assert_opens("second");
    assert_still_sealed(&volume);
}

/// `cryptsetup config --label` without `--subsystem` wipes the subsystem, so nothing may hang on it.
#[test]
fn labels_and_uuids_can_be_changed() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let loaded = volume.header();
    cryptsetup(&["config", text(&device), "--label", "renamed"]);
    assert_eq!(volume.header().label(), Some("renamed"));
    volume.assert_opens("first");
    assert!(loaded.unlock(&passphrase("first"), None).is_ok(), "a new label is not a new volume");

    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    cryptsetup(&["luksUUID", "--batch-mode", text(&device), "--uuid", uuid]);
    assert_eq!(volume.header().uuid(), uuid);
    volume.assert_opens("first");
    assert_eq!(*loaded.unlock(&passphrase("first"), None).unwrap_err().kind(), HeaderErrorKind::Changed);
    assert_still_sealed(&volume);
}

/// A kernel without device-mapper stops `open` before cryptsetup looks at the segment; that a kernel with it makes no
/// mapping either is tested where there is one. What cryptsetup looks at is the same in every version from 2.4 to 2.8:
/// an integrity tag (which type `aead` always has) and a journal cipher other than `none`.
#[test]
fn cryptsetup_does_not_open_a_sealed_volume() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let first = volume.key_file("first");
    let before = std::fs::read(&device).unwrap();
    let name = format!("sealdisk-test-{}", std::process::id());
    let (_, said) = cryptsetup_refuses(&["open", text(&device), &name, "--key-file", &first]);
    assert!(
        said.contains("Unsupported device integrity configuration") || said.contains("Cannot initialize device-mapper"),
        "{said}"
    );
    assert!(!Path::new("/dev/mapper").join(&name).exists());
    let integrity = &metadata(&device)["segments"]["0"]["integrity"];
    assert_eq!(integrity["type"], "aead");
    assert_ne!(integrity["journal_encryption"], "none");
    assert!(std::fs::read(&device).unwrap() == before, "a refused command wrote something");
}

#[test]
fn cryptsetup_reencrypts_plain_volumes_only() {
    let reencrypt = |volume: &Volume, how: &str| {
        let key = volume.key_file("first");
        cryptsetup_with(&["reencrypt", "--batch-mode", text(&volume.path()), "--key-file", &key, how], "")
    };
    let volume = Volume::formatted(sealed());
    let before = std::fs::read(volume.path()).unwrap();
    for how in ["--init-only", "--force-offline-reencrypt", "--encrypt"] {
        assert!(!reencrypt(&volume, how).status.success(), "{how}");
    }
    let said = reencrypt(&volume, "--init-only").stderr;
    assert!(String::from_utf8_lossy(&said).contains("integrity profile is not supported"));
    cryptsetup_refuses(&["convert", "--batch-mode", "--type", "luks1", text(&volume.path())]);
    assert!(std::fs::read(volume.path()).unwrap() == before, "a refused command wrote something");
    cryptsetup(&["repair", "--batch-mode", text(&volume.path())]);
    volume.assert_opens("first");

    let volume = Volume::formatted(plain());
    assert!(reencrypt(&volume, "--init-only").status.success());
    let error = Header::load(&volume.path()).unwrap_err();
    assert_eq!(*error.kind(), HeaderErrorKind::Unsupported(Unsupported::Reencryption));
}

#[test]
fn a_plain_volume_is_what_luks_format_makes() {
    let ours = Volume::formatted(plain());
    let theirs = Volume::empty();
    let key = theirs.key_file("first");
    let device = theirs.path();
    let mut format =
        vec!["luksFormat", "--batch-mode", "--type", "luks2", "--sector-size", "4096", "--key-size", "512"];
    format.extend(["--cipher", "aes-xts-plain64", text(&device), &key]);
    format.extend(CHEAP);
    cryptsetup(&format);
    let (ours, theirs) = (metadata(&ours.path()), metadata(&theirs.path()));
    for part in ["segments", "config", "tokens"] {
        assert_eq!(ours[part], theirs[part]);
    }
    for member in ["type", "key_size", "af", "priority"] {
        assert_eq!(ours["keyslots"]["0"][member], theirs["keyslots"]["0"][member]);
    }
    assert_eq!(ours["keyslots"]["0"]["area"], theirs["keyslots"]["0"]["area"]);
}

#[test]
fn plain_volumes_of_cryptsetup_load_with_every_sector_key_and_offset() {
    for (sector, bits, offset) in
        [("512", "256", "32768"), ("512", "512", "65536"), ("4096", "256", "40960"), ("1024", "512", "32768")]
    {
        let volume = Volume::empty();
        let device = volume.path();
        std::fs::File::options().write(true).open(&device).unwrap().set_len(40 << 20).unwrap();
        let key = volume.key_file("first");
        let mut format =
            vec!["luksFormat", "--batch-mode", "--type", "luks2", "--sector-size", sector, "--key-size", bits];
        format.extend(["--offset", offset, "--cipher", "aes-xts-plain64", text(&device), &key]);
        format.extend(CHEAP);
        cryptsetup(&format);
        let header = volume.header();
        let expected = PlainPayload {
            offset: offset.parse::<u64>().unwrap() * 512,
            size: None,
            sector_size: sector.parse().unwrap(),
            iv_tweak: 0,
        };
        assert_eq!(*header.payload(), Payload::Plain(expected));
        let key = header.unlock(&passphrase("first"), Some(0)).unwrap();
        assert_eq!(key.expose().len() * 8, bits.parse::<usize>().unwrap());
        let dumped = volume.file("dumped-key");
        let first = volume.key_file("first");
        let dump = ["luksDump", "--batch-mode", "--dump-volume-key", text(&device), "--key-file", &first];
        cryptsetup(&[&dump[..], &["--volume-key-file", text(&dumped)]].concat());
        assert!(std::fs::read(dumped).unwrap() == key.expose(), "cryptsetup has another volume key");
    }
}

#[test]
fn plain_volumes_of_ours_keep_size_tweak_and_both_key_lengths() {
    for (bytes, size, sector_size, iv_tweak) in
        [(32, None, 512, 0), (64, Some(1 << 20), 4096, 0), (32, Some(3 << 9), 512, 8), (64, None, 2048, 1 << 40)]
    {
        let volume = Volume::empty();
        let device = volume.path();
        let key = VolumeKey::new(Zeroizing::new((0..bytes).collect())).unwrap();
        let payload = Payload::Plain(PlainPayload { offset: 17 << 20, size, sector_size, iv_tweak });
        let header = Header::format(&device, &options(payload), &key, &passphrase("first")).unwrap();
        assert_eq!(*header.payload(), payload);
        let opened = volume.header().unlock(&passphrase("first"), None).unwrap();
        assert!(opened.expose() == key.expose());
        let segment = &metadata(&device)["segments"]["0"];
        assert_eq!(segment["size"], size.map_or("dynamic".to_owned(), |size: u64| size.to_string()));
        assert_eq!(segment["iv_tweak"], iv_tweak.to_string());
        let first = volume.key_file("first");
        cryptsetup(&["open", "--test-passphrase", text(&device), "--key-file", &first]);
    }
}

#[test]
fn headers_that_are_not_for_us_say_why() {
    let volume = Volume::empty();
    let device = volume.path();
    let format = |arguments: &[&str]| {
        let key = volume.key_file("first");
        let mut all = vec!["luksFormat", "--batch-mode", text(&device), &key];
        all.extend(arguments);
        cryptsetup(&all);
        Header::load(&device).unwrap_err()
    };

    let other =
        format(&[&["--type", "luks2", "--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"], &CHEAP[..]].concat());
    assert_eq!(*other.kind(), HeaderErrorKind::Unsupported(Unsupported::Cipher("aes-cbc-essiv:sha256".to_owned())));

    std::fs::write(&device, b"").unwrap();
    assert_eq!(*Header::load(&device).unwrap_err().kind(), HeaderErrorKind::NoHeader);
    assert_eq!(*Header::load(&volume.file("nowhere")).unwrap_err().kind(), HeaderErrorKind::Device);
    assert_eq!(*Header::load(Path::new("/dev/null")).unwrap_err().kind(), HeaderErrorKind::Device);
}

/// A key slot may hold a key that is not the volume's.
#[test]
fn an_unbound_key_slot_opens_nothing() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let unbound = volume.key_file("unbound");
    let mut add = vec!["luksAddKey", "--unbound", "--key-size", "512", "--key-slot", "5", text(&device), &unbound];
    add.extend(CHEAP);
    let output = cryptsetup_with(&add, "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut header = volume.header();
    assert_eq!(
        header.key_slots().iter().map(|slot| (slot.number, slot.bound)).collect::<Vec<_>>(),
        [(0, true), (5, false)]
    );
    assert_eq!(*header.unlock(&passphrase("unbound"), Some(5)).unwrap_err().kind(), HeaderErrorKind::NoSuchSlot);
    volume.assert_refuses("unbound");
    let last = header.kill_slot(0, LastSlot::Keep).unwrap_err();
    assert_eq!(*last.kind(), HeaderErrorKind::LastSlot, "an unbound slot is no way in");
    header.kill_slot(5, LastSlot::Keep).unwrap();
    volume.assert_opens("first");
}

#[test]
fn thirty_two_slots_and_no_more() {
    let volume = Volume::formatted(sealed());
    let mut header = volume.header();
    for number in 1..32 {
        let new = passphrase(&format!("pass {number}"));
        assert_eq!(header.add_key(&passphrase("first"), &new, None, Pbkdf::CHEAPEST).unwrap(), number);
    }
    let full = header.add_key(&passphrase("first"), &passphrase("more"), None, Pbkdf::CHEAPEST).unwrap_err();
    assert_eq!(*full.kind(), HeaderErrorKind::NoFreeSlot);
    let full = header.change_key(&passphrase("first"), &passphrase("more"), None, Pbkdf::CHEAPEST).unwrap_err();
    assert_eq!(*full.kind(), HeaderErrorKind::NoFreeSlot);
    let taken = header.add_key(&passphrase("first"), &passphrase("more"), Some(3), Pbkdf::CHEAPEST).unwrap_err();
    assert_eq!(*taken.kind(), HeaderErrorKind::SlotInUse);
    volume.assert_opens("first");
    volume.assert_opens("pass 31");
    let slot = &header.key_slots()[31];
    let expected = SlotPbkdf::Argon2 { variant: "argon2id".to_owned(), passes: 4, memory_kib: 32, threads: 1 };
    assert_eq!((slot.number, &slot.pbkdf, slot.encryption.as_str()), (31, &expected, "aes-xts-plain64"));
}
