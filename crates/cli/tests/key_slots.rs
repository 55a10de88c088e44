//! Key slots, header backups and crypto-erase, with cryptsetup as the judge.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use harness::{CHEAP, Place, cryptsetup};
use support::programs::succeed;

fn slots(place: &Place) -> Vec<u64> {
    let slots: Vec<serde_json::Value> = serde_json::from_str(&place.ok(&["key", "list", "v", "--json"])).unwrap();
    slots.iter().map(|slot| slot["slot"].as_u64().unwrap()).collect()
}

fn opens(place: &Place, key: &str) -> bool {
    let sealdisk = place.sealdisk(&["check", "v", "--key-file", key]).output().unwrap().status.code();
    let mut command = cryptsetup(&["open", "--test-passphrase", "--key-file"]);
    let cryptsetup = command.arg(place.path(key)).arg(place.path("v")).output().unwrap().status.code();
    assert_eq!(sealdisk, cryptsetup, "sealdisk and cryptsetup disagree on {key}");
    sealdisk == Some(0)
}

#[test]
fn keys_are_added_changed_listed_and_removed() {
    let place = Place::new();
    place.volume("v");
    for name in ["second", "third", "fourth"] {
        place.file(name, name.as_bytes());
    }
    let cheap = |arguments: &[&'static str]| [arguments, &CHEAP[..]].concat();
    let added = place.ok(&cheap(&["key", "add", "v", "--key-file", "key", "--new-key-file", "second"]));
    assert_eq!(added, "Added in key slot 1.\n");
    place.ok(&cheap(&["key", "add", "v", "--key-file", "second", "--new-key-file", "third", "--slot", "7", "--quiet"]));
    assert_eq!(slots(&place), [0, 1, 7]);
    assert!(opens(&place, "key") && opens(&place, "second") && opens(&place, "third"));
    place.fails(1, &cheap(&["key", "add", "v", "--key-file", "key", "--new-key-file", "fourth", "--slot", "7"]));
    place.fails(2, &cheap(&["key", "add", "v", "--key-file", "fourth", "--new-key-file", "key"]));

    place.ok(&cheap(&["key", "change", "v", "--key-file", "second", "--new-key-file", "fourth"]));
    assert_eq!(slots(&place), [0, 1, 7]);
    assert!(opens(&place, "fourth") && !opens(&place, "second"));
    place.fails(2, &cheap(&["key", "change", "v", "--key-file", "second", "--new-key-file", "key"]));

    assert_eq!(place.ok(&["key", "remove", "v", "--key-file", "fourth"]), "Removed key slot 1.\n");
    place.ok(&["key", "remove", "v", "--slot", "7"]);
    place.fails(1, &["key", "remove", "v", "--slot", "7"]);
    assert!(place.fails(1, &["key", "remove", "v", "--key-file", "key"]).contains("last"));
    assert_eq!(slots(&place), [0]);
    place.ok(&["key", "remove", "v", "--key-file", "key", "--force"]);
    assert_eq!(slots(&place), Vec::<u64>::new());
}

#[test]
fn a_guess_is_costly_unless_asked_otherwise() {
    let place = Place::new();
    for name in ["key", "second", "third"] {
        place.file(name, name.as_bytes());
    }
    let slot = |number: usize| -> serde_json::Value {
        let slots: serde_json::Value = serde_json::from_str(&place.ok(&["key", "list", "v", "--json"])).unwrap();
        assert_eq!(slots[number]["pbkdf"], "argon2id");
        slots[number].clone()
    };
    let is_strong = |slot: &serde_json::Value| {
        slot["memory_kib"].as_u64().unwrap() >= 64 << 10 && slot["iterations"].as_u64().unwrap() >= 4
    };
    place.ok(&["format", "v", "--size", "8M", "--key-file", "key"]);
    assert!(is_strong(&slot(0)), "{}", slot(0));
    assert!(opens(&place, "key"));

    // However short the time.
    place.ok(&["key", "add", "v", "--key-file", "key", "--new-key-file", "second", "--iter-time", "1"]);
    assert!(is_strong(&slot(1)), "{}", slot(1));
    place.ok(&["key", "change", "v", "--key-file", "second", "--new-key-file", "third", "--iter-time", "300"]);
    assert!(is_strong(&slot(1)), "{}", slot(1));
    assert!(opens(&place, "third") && !opens(&place, "second"));
    let cheap = [&["key", "change", "v", "--key-file", "third", "--new-key-file", "second"], &CHEAP[..]].concat();
    place.ok(&cheap);
    assert_eq!(
        (&slot(1)["memory_kib"], &slot(1)["iterations"], &slot(1)["threads"]),
        (&32.into(), &4.into(), &1.into())
    );

    for nonsense in [&["--iter-time=0"][..], &["--iter-time=-1"], &["--iter-time=soon"], &["--iter-time=600001"]] {
        let add = [&["key", "add", "v", "--key-file", "key", "--new-key-file", "third"], nonsense].concat();
        let output = place.sealdisk(&add).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    // Both at once say two things about the same.
    let output = place.sealdisk(&[&cheap[..], &["--iter-time", "800"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(slots(&place), [0, 1]);
}

#[test]
fn keys_may_be_changed_while_the_volume_is_attached() {
    let place = Place::new();
    place.volume("v");
    place.file("new", b"new");
    place.ok(&["attach", "v", "--as", "nbd", "--key-file", "key"]);
    place.ok(&[&["key", "change", "v", "--key-file", "key", "--new-key-file", "new"], &CHEAP[..]].concat());
    succeed(cryptsetup(&["luksDump"]).arg(place.path("v")));
    place.ok(&["detach", "v"]);
    assert!(opens(&place, "new") && !opens(&place, "key"));
}

#[test]
fn a_header_is_saved_and_restored() {
    let place = Place::new();
    place.volume("v");
    place.file("other", b"other");
    place.ok(&["header", "backup", "v", "backup"]);
    place.fails(5, &["header", "backup", "v", "backup"]);
    place.ok(&[&["key", "change", "v", "--key-file", "key", "--new-key-file", "other"], &CHEAP[..]].concat());
    assert!(!opens(&place, "key"));
    assert!(place.fails(1, &["header", "restore", "v", "backup"]).contains("--force"), "nobody can be asked");
    place.ok(&["header", "restore", "v", "backup", "--force"]);
    assert!(opens(&place, "key") && !opens(&place, "other"));

    place.ok(&["erase", "v", "--force"]);
    place.fails(4, &["attach", "v", "--key-file", "key"]);
    place.ok(&["header", "restore", "v", "backup", "--force"]);
    assert!(opens(&place, "key"), "a backup outlives the erasure, and the manual says so");
}

#[test]
fn a_luks2_volume_is_made_as_asked() {
    let place = Place::new();
    place.file("key", b"secret");
    let plain = ["format", "v", "--size", "8M", "--cipher", "aes-256-xts", "--key-file", "key", "--force"];
    for (more, dump, offset) in [
        (&[][..], ["offset: 16777216 [bytes]", "sector: 4096 [bytes]", "Key:        512 bits"], 16 << 20),
        (
            &["--sector-size", "512", "--key-size", "256", "--offset", "8M", "--label", "db"],
            ["offset: 8388608 [bytes]", "sector: 512 [bytes]", "Key:        256 bits"],
            8 << 20,
        ),
    ] {
        place.ok(&[&plain, &CHEAP[..], more].concat());
        assert_eq!(place.path("v").metadata().unwrap().len(), offset + (8 << 20));
        assert_eq!(place.info("v")["size"], 8 << 20);
        let said = succeed(cryptsetup(&["luksDump"]).arg(place.path("v")));
        for line in dump {
            assert!(said.contains(line), "{line} is missing in {said}");
        }
        assert!(opens(&place, "key"));
        // cryptsetup sees nothing that would keep a kernel from opening it.
        assert!(said.contains("cipher: aes-xts-plain64"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_together_is_refused_with_the_reason() {
    let place = Place::new();
    place.file("key", b"secret");
    for (more, reason) in [
        (&["--cipher", "aegis-256", "--layout", "length-preserving"][..], "no place"),
        (&["--layout", "length-preserving"], "--cipher aes-256-xts"),
        (&["--cipher", "aes-256-xts", "--layout", "packed"], "no seals"),
        (&["--cipher", "aes-256-xts", "--fold"], "no seals"),
        (&["--sector-size", "512"], "--sector-size is for --cipher aes-256-xts"),
        (&["--key-size", "256"], "--key-size is for"),
        (&["--offset", "8M"], "--offset is for"),
        (&["--cipher", "aes-256-xts", "--offset", "1000"], "multiple"),
        (&["--cipher", "rot13"], "rot13"),
        (&["--label", ""], "label"),
    ] {
        let arguments = [&["format", "v", "--size", "8M", "--key-file", "key"], &CHEAP[..], more].concat();
        let output = place.sealdisk(&arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{more:?}: {complaint}");
        assert!(complaint.contains(reason), "{more:?}: {complaint}");
        assert!(!place.path("v").exists(), "{more:?}");
    }
    for size in ["0", "4095", "1M1", "4097", "99999999T"] {
        let output = place.sealdisk(&["format", "v", "--size", size, "--key-file", "key"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{size}: {output:?}");
        assert!(!place.path("v").exists(), "{size}");
    }
}
