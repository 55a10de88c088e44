//! Looking after a detached volume: check, resize, and what info says of it.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::File;
use std::os::unix::fs::FileExt;

use harness::{CHEAP, Place};
use support::programs::{succeed, tool};

/// Attaches, runs nbdsh code on the disk `h`, detaches.
fn on_disk(place: &Place, program: &str) -> String {
    let uri = place.ok(&["attach", "v", "--as", "nbd", "--key-file", "key"]);
    let said =
        succeed(tool("python3", "python3-libnbd").args(["-m", "nbd", "--uri", uri.trim(), "--command", program]));
    place.ok(&["detach", "v"]);
    said
}

/// Flips one bit of the file.
fn flip_a_bit_at(place: &Place, byte: u64) {
    let file = File::options().read(true).write(true).open(place.path("v")).unwrap();
    let mut one = [0];
    file.read_exact_at(&mut one, byte).unwrap();
    file.write_all_at(&[one[0] ^ 4], byte).unwrap();
}

/// Where in the file the first 4096 bytes lie that are not in `before`.
fn first_change(before: &[u8], after: &[u8], from: usize) -> u64 {
    let changed = (from..after.len()).step_by(4096).find(|&at| before[at..at + 4096] != after[at..at + 4096]);
    changed.unwrap() as u64
}

#[test]
fn a_flipped_bit_is_found_and_its_sector_named() {
    let place = Place::new();
    place.volume("v");
    assert_eq!(place.ok(&["check", "v", "--key-file", "key"]), "8 MiB: every sector is authentic\n");
    on_disk(&place, "h.pwrite(b'A' * 8192, 5 * 4096)");
    let before = std::fs::read(place.path("v")).unwrap();
    on_disk(&place, "h.pwrite(b'B' * 4096, 5 * 4096)");
    let after = std::fs::read(place.path("v")).unwrap();
    // The disk's three objects of 4 MiB come last; header, superblocks and journal change as well.
    let data = after.len() - (12 << 20);
    flip_a_bit_at(&place, first_change(&before, &after, data));

    let output = place.sealdisk(&["check", "v", "--key-file", "key"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sector 5 (bytes 20480 to 24576): not authentic\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 sector is not authentic"), "{output:?}");

    let output = place.sealdisk(&["check", "v", "--key-file", "key", "--json", "--progress-json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let lines: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (report, progress) = lines.split_last().unwrap();
    assert_eq!(report["bad"], serde_json::json!([5]));
    assert_eq!(report["authenticated"], true);
    let last = progress.last().unwrap();
    assert_eq!((last["device_bytes"].as_str(), last["device_size"].as_str()), (Some("8388608"), Some("8388608")));
}

#[test]
fn what_a_client_could_not_read_is_noted_once_in_the_log() {
    let place = Place::new();
    place.volume("v");
    on_disk(&place, "h.pwrite(b'A' * 8192, 5 * 4096)");
    let volume = std::fs::read(place.path("v")).unwrap();
    let data = volume.len() - (12 << 20);
    flip_a_bit_at(&place, first_change(&vec![0; volume.len()], &volume, data));

    let uri = place.ok(&["attach", "v", "--as", "nbd", "--key-file", "key"]);
    let read =
        "for again in range(2):\n try:\n  h.pread(8192, 4 * 4096)\n except nbd.Error as error:\n  print(error.errnum)";
    let said = succeed(tool("python3", "python3-libnbd").args(["-m", "nbd", "--uri", uri.trim(), "--command", read]));
    assert_eq!(said, "5\n5\n");
    let log = std::fs::read_to_string(place.list()[0]["log"].as_str().unwrap()).unwrap();
    let noted: Vec<&str> = log.lines().filter(|line| line.contains("not authentic")).collect();
    assert_eq!(noted.len(), 1, "{log}");
    assert!(noted[0].starts_with(&format!("sealdisk: sector 5 of volume {}", place.path("v").display())), "{log}");
}

#[test]
fn a_volume_grows_and_shrinks_only_by_force() {
    let place = Place::new();
    place.volume("v");
    on_disk(&place, "h.pwrite(b'keep' * 1024, 0)\nh.pwrite(b'lose' * 1024, (8 << 20) - 4096)");
    let resize = |size: &'static str| ["resize", "v", "--size", size, "--key-file", "key"];
    place.ok(&resize("12M"));
    assert_eq!(place.info("v")["size"], 12 << 20);
    assert_eq!(on_disk(&place, "print(bytes(h.pread(4, (8 << 20) - 4096)), h.get_size())"), "b'lose' 12582912\n");
    assert!(place.fails(1, &resize("4M")).contains("--force"));
    place.ok(&[&resize("4M")[..], &["--force"]].concat());
    place.ok(&resize("8M"));
    let said = on_disk(&place, "print(bytes(h.pread(4, 0)), bytes(h.pread(4, (8 << 20) - 4096)))");
    assert_eq!(said, "b'keep' b'\\x00\\x00\\x00\\x00'\n");
    place.fails(1, &resize("5000"));
    place.ok(&["check", "v", "--key-file", "key", "--quiet"]);
}

#[test]
fn info_counts_folded_sectors() {
    let place = Place::new();
    place.file("key", b"secret");
    place.ok(&[&["format", "v", "--size", "8M", "--fold", "--label", "db", "--key-file", "key"], &CHEAP[..]].concat());
    let facts = place.info("v");
    assert_eq!(
        (facts["fold"].as_bool(), facts["label"].as_str(), facts["kind"].as_str()),
        (Some(true), Some("db"), Some("sealed"))
    );
    on_disk(&place, "import os\nh.pwrite(b'row ' * 3072, 0)\nh.pwrite(os.urandom(4096), 65536)");
    let sectors = &place.info("v")["sectors"];
    assert_eq!((sectors["folded"].as_u64(), sectors["plain"].as_u64()), (Some(3), Some(1)));
    assert!(place.ok(&["info", "v"]).contains("Folded:    75.0 % of 4 written sectors"));
}

#[test]
fn every_cipher_makes_a_volume_and_says_what_runs_it() {
    let place = Place::new();
    place.file("key", b"secret");
    for cipher in ["aegis-256", "aes-256-gcm", "xchacha20-poly1305", "aes-256-xts-random", "aes-256-xts"] {
        let format = ["format", "v", "--size", "8M", "--force", "--cipher", cipher, "--key-file", "key"];
        place.ok(&[&format, &CHEAP[..]].concat());
        let facts = place.info("v");
        assert_eq!(facts["cipher"], cipher);
        assert_eq!(facts["authenticated"].as_bool(), Some(!cipher.starts_with("aes-256-xts")));
        assert_eq!(facts["layout"], if cipher == "aes-256-xts" { "length-preserving" } else { "packed" });
        assert_eq!(facts["implementation"].is_string(), cipher != "aes-256-xts", "{facts}");
        assert_eq!(on_disk(&place, "h.pwrite(b'x' * 5000, 100)\nprint(h.pread(5000, 100) == b'x' * 5000)"), "True\n");
        place.ok(&["check", "v", "--key-file", "key", "--quiet"]);
    }
}
