//! The header of an image: key slots, backups, and what becomes of key material.

use std::process::Stdio;
use std::time::Instant;

use support::programs::{run, succeed};

use crate::Images;
use crate::harness::{CHEAP, cryptsetup, nbd};

/// The first key slots' material lies in the first object: 8 blocks of headers, then 252 KiB each.
fn slot(object: &[u8], number: usize) -> &[u8] {
    &object[32768 + number * 258_048..][..258_048]
}

fn add<'a>(volume: &'a str, key: &'a str, new: &'a str) -> Vec<&'a str> {
    [&["key", "add", volume, "--key-file", key, "--new-key-file", new], &CHEAP[..]].concat()
}

#[test]
fn key_slots_change_while_the_volume_is_attached() {
    let images = Images::new("slots");
    let volume = images.volume("disk", "32M");
    let uri = images.attach(&volume);
    let load = "import os\nfor i in range(40): h.pwrite(os.urandom(65536), i * 65536); h.flush()";
    let writing = std::thread::spawn({
        let uri = uri.clone();
        move || nbd(&uri, load)
    });
    images.place.file("third", b"third secret");
    assert_eq!(images.place.ok(&add(&volume, "key", "other")), "Added in key slot 1.\n");
    images
        .place
        .ok(&[&["key", "change", &volume, "--key-file", "other", "--new-key-file", "third"], &CHEAP[..]].concat());
    assert!(images.place.fails(2, &add(&volume, "other", "key")).contains("no key slot opens"));
    writing.join().unwrap();
    images.place.ok(&["key", "remove", &volume, "--key-file", "key"]);
    let last = images.place.fails(1, &["key", "remove", &volume, "--key-file", "third"]);
    assert!(last.contains(&volume) && !last.contains("/proc"), "{last}");
    images.place.ok(&["detach", "disk"]);
    images.place.fails(2, &["check", &volume, "--key-file", "key"]);
    images.place.ok(&["check", &volume, "--key-file", "third"]);
}

/// Neither is lost: where all is in one object, and where the material of the later key slots is in another.
#[test]
fn two_who_add_keys_at_once_both_succeed() {
    let images = Images::new("slots-race");
    let volume = images.volume("disk", "8M");
    let mut count = 1;
    // One object has room for 16.
    for at_once in [5, 1, 1, 1, 1, 1, 1, 1, 1, 5] {
        let names: Vec<String> = (0..at_once).map(|number| format!("key{}", count + number)).collect();
        names.iter().for_each(|name| drop(images.place.file(name, name.as_bytes())));
        let commands: Vec<_> =
            names.iter().map(|name| images.place.sealdisk(&add(&volume, "key", name)).spawn().unwrap()).collect();
        commands.into_iter().for_each(|mut command| assert!(command.wait().unwrap().success()));
        count += at_once;
    }
    let slots = images.place.ok(&["key", "list", &volume, "--json"]);
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&slots).unwrap().len(), 19);
    let mut names: Vec<String> = (1..count).map(|number| format!("key{number}")).collect();
    names.push("key".into());
    let exported = images.place.path("exported");
    images.rbd(&format!("export --no-progress disk {}", exported.display()));
    for name in &names {
        succeed(cryptsetup(&["open", "--test-passphrase", "--key-file"]).arg(images.place.path(name)).arg(&exported));
    }
    images.place.ok(&["check", &volume, "--key-file", names.last().unwrap()]);
}

#[test]
fn key_material_that_is_wiped_is_zeros_but_in_snapshots() {
    let images = Images::new("slots-wiped");
    let volume = images.volume("disk", "8M");
    images.place.ok(&add(&volume, "key", "other"));
    let before = images.object("disk", None, 0, 4 << 20);
    assert!(slot(&before, 1).iter().any(|byte| *byte != 0));
    images.rbd("snap create --no-progress disk@before");
    images.place.ok(&["key", "remove", &volume, "--key-file", "other"]);
    let after = images.object("disk", None, 0, 4 << 20);
    assert!(slot(&after, 1).iter().all(|byte| *byte == 0));
    assert!(images.object("disk", Some("before"), 0, 4 << 20) == before);
    // What was a key then opens what was a disk then.
    images.place.ok(&["attach", "rbd:slots-wiped/disk@before", "--as", "nbd", "--key-file", "other"]);
    images.place.ok(&["detach", "disk-before"]);

    images.place.ok(&["erase", &volume, "--force"]);
    let erased = images.object("disk", None, 0, 4 << 20);
    assert!(slot(&erased, 0).iter().all(|byte| *byte == 0));
    let complaint = images.place.fails(4, &["check", &volume, "--key-file", "key"]);
    assert!(complaint.contains("erased"), "{complaint}");
}

#[test]
fn a_header_is_saved_restored_and_understood_by_cryptsetup() {
    let images = Images::new("slots-backup");
    let volume = images.volume("disk", "8M");
    let uri = images.attach(&volume);
    images.place.ok(&["header", "backup", &volume, "saved"]);
    nbd(&uri, "h.pwrite(b'x' * 4096, 0)");
    assert!(images.place.fails(5, &["header", "restore", &volume, "saved", "--force"]).contains("'disk'"));
    assert!(images.place.fails(5, &["erase", &volume, "--force"]).contains("'disk'"));
    images.place.ok(&["detach", "disk"]);

    images.place.ok(&["erase", &volume, "--force"]);
    images.place.fails(4, &["check", &volume, "--key-file", "key"]);
    images.place.ok(&["header", "restore", &volume, "saved", "--force"]);
    images.place.ok(&["check", &volume, "--key-file", "key"]);
    images.volume("another", "8M");
    images.place.ok(&["header", "backup", "rbd:slots-backup/another", "foreign"]);
    // Nobody can be asked here.
    assert!(images.place.fails(1, &["header", "restore", &volume, "foreign"]).contains("--force"));

    let exported = images.place.path("exported");
    images.rbd(&format!("export --no-progress disk {}", exported.display()));
    let dump = succeed(cryptsetup(&["luksDump"]).arg(&exported));
    assert!(dump.contains("sealdisk-") && dump.contains("16777216"), "{dump}");
    succeed(cryptsetup(&["open", "--test-passphrase", "--key-file"]).arg(images.place.path("key")).arg(&exported));
    succeed(cryptsetup(&["luksHeaderBackup", "--header-backup-file"]).arg(images.place.path("theirs")).arg(&exported));
    images.place.ok(&["header", "restore", &volume, "theirs", "--force"]);
    images.place.ok(&["check", &volume, "--key-file", "key"]);
}

/// Killed at ten moments, when the header lies in more than one object. `crates/header/tests/object_edits.rs` has the states
/// in between one by one.
#[test]
fn a_killed_change_of_a_key_slot_leaves_the_old_key_or_the_new_one() {
    let images = Images::new("slots-killed");
    let volume = images.volume("disk", "8M");
    let place = &images.place;
    place.file("old", b"old secret");
    place.file("new", b"new secret");
    // The first object has room for the material of 16.
    place.ok(&["header", "backup", &volume, "saved"]);
    for slot in 1..=16 {
        let (new, slot) = (if slot == 16 { "old" } else { "other" }, slot.to_string());
        place.ok(&[&add("saved", "key", new)[..], &["--slot", &slot]].concat());
    }
    place.ok(&["header", "restore", &volume, "saved", "--force"]);
    images.rbd("snap create --no-progress disk@s");
    let change = |image: &str| {
        images.rbd(&format!(
            "clone --rbd-default-clone-format 2 --image-feature layering,exclusive-lock,deep-flatten disk@s {}/{image}",
            images.pool
        ));
        let child = images.name(image);
        let change = ["key", "change", &child, "--slot", "16", "--key-file", "old", "--new-key-file", "new"];
        place.sealdisk(&[&change[..], &CHEAP].concat())
    };
    let opens = |image: &str| {
        let exported = place.path(image);
        images.rbd(&format!("export --no-progress {image} {}", exported.display()));
        succeed(cryptsetup(&["luksDump"]).arg(&exported));
        ["key", "other", "old", "new"].map(|key| {
            let mut open = cryptsetup(&["open", "--test-passphrase", "--key-file"]);
            run(open.arg(place.path(key)).arg(&exported)).status.success()
        })
    };
    let mut alone = change("alone");
    let begun = Instant::now();
    succeed(&mut alone);
    let whole = begun.elapsed();
    assert_eq!(opens("alone"), [true, true, false, true]);
    for moment in 1..=10 {
        let image = format!("killed-{moment}");
        let mut changing = change(&image).stdout(Stdio::null()).spawn().unwrap();
        // At first it connects, and at last it says good-bye.
        std::thread::sleep(whole * (2 * moment + 5) / 30);
        let _ = changing.kill();
        changing.wait().unwrap();
        let [key, other, old, new] = opens(&image);
        assert!(key && other && (old || new), "{image}: {key} {other} {old} {new}");
        assert!(place.ok(&["key", "list", &images.name(&image)]).lines().count() > 17);
    }
}
