//! Headers that someone has edited. Each file in `tests/hostile` is one corruption; its first lines say what must happen.
//!
//! ```text
//! # Why.
//! base: sealed | plain
//! expect: opens | other-payload | wrong-passphrase | no-slot | no-header | refused: WORDS OF THE REASON
//! set POINTER JSON         both copies, checksums made right (RFC 6901 pointers)
//! remove POINTER           likewise
//! copy POINTER POINTER     likewise, over an existing member
//! replace OLD => NEW       in the JSON text, likewise
//! deep N                   N nested lists as a member of the JSON
//! bytes OFFSET HEX         of the device, checksums made right
//! torn OFFSET HEX          of the device, checksums left wrong
//! ```
#![allow(clippy::unwrap_used, reason = "a failed expectation in a test is a failed test")]

mod common;

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use common::*;
use sealdisk_header::{Header, HeaderErrorKind, LastSlot, Payload, Pbkdf};
use serde_json::Value;

/// Both copies measure 16 KiB in a header of libcryptsetup's.
const COPY: usize = 16384;
const BINARY: usize = 4096;

struct Vector {
    name: String,
    base: Payload,
    expect: String,
    edits: Vec<String>,
}

fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| parse(file)).collect()
}

fn parse(file: &Path) -> Vector {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut field =
        |name| lines.next().unwrap().strip_prefix(name).unwrap_or_else(|| panic!("{file:?}: no {name}")).to_owned();
    let (base, expect) = (field("base: "), field("expect: "));
    let base = match base.as_str() {
        "sealed" => sealed(),
        "plain" => plain(),
        other => panic!("{file:?}: no base {other}"),
    };
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    Vector { name, base, expect, edits: lines.map(str::to_owned).collect() }
}

/// Applies the edits to a device image.
fn corrupt(image: &mut [u8], edits: &[String]) {
    for edit in edits {
        let (verb, rest) = edit.split_once(' ').unwrap();
        match verb {
            "set" => edit_json(image, |json| {
                let (pointer, value) = rest.split_once(' ').unwrap();
                let value = serde_json::from_str(value).unwrap();
                match pointer.rsplit_once('/') {
                    Some((parent, member)) => json.pointer_mut(parent).unwrap()[member] = value,
                    None => *json = value,
                }
            }),
            "remove" => edit_json(image, |json| {
                let (parent, member) = rest.rsplit_once('/').unwrap();
                json.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member).unwrap();
            }),
            "copy" => edit_json(image, |json| {
                let (from, to) = rest.split_once(' ').unwrap();
                *json.pointer_mut(to).unwrap() = json.pointer(from).unwrap().clone();
            }),
            "replace" => edit_text(image, |text| {
                let (old, new) = rest.split_once(" => ").or_else(|| Some((rest.strip_suffix(" =>")?, ""))).unwrap();
                assert!(text.contains(old), "no {old} in {text}");
                text.replace(old, new)
            }),
            "deep" => edit_text(image, |text| {
                let depth = rest.parse().unwrap();
                text.replacen('{', &format!("{{\"deep\":{}{},", "[".repeat(depth), "]".repeat(depth)), 1)
            }),
            "bytes" | "torn" => {
                let (offset, hex) = rest.split_once(' ').unwrap();
                let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
                let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(digits).collect();
                let offset: usize = offset.parse().unwrap();
                image[offset..offset + bytes.len()].copy_from_slice(&bytes);
                if verb == "bytes" {
                    correct_checksums(image);
                }
            }
            other => panic!("no edit {other}"),
        }
    }
}

fn edit_json(image: &mut [u8], edit: impl Fn(&mut Value)) {
    edit_text(image, |text| {
        let mut json = serde_json::from_str(text).unwrap();
        edit(&mut json);
        json.to_string()
    });
}

fn edit_text(image: &mut [u8], edit: impl Fn(&str) -> String) {
    for copy in image[..2 * COPY].chunks_exact_mut(COPY) {
        let area = &mut copy[BINARY..];
        let end = area.iter().position(|&byte| byte == 0).unwrap();
        let text = edit(std::str::from_utf8(&area[..end]).unwrap());
        area.fill(0);
        area[..text.len()].copy_from_slice(text.as_bytes());
    }
    correct_checksums(image);
}

/// As the specification says: SHA-256 over the copy, with zeros where the checksum goes.
fn correct_checksums(image: &mut [u8]) {
    for copy in image[..2 * COPY].chunks_exact_mut(COPY) {
        copy[448..512].fill(0);
        let sum = digest(&SHA256, copy);
        copy[448..480].copy_from_slice(sum.as_ref());
    }
}

/// What happens to who loads the header and gives the right passphrase.
fn outcome(device: &Path, base: &Payload) -> String {
    let header = match Header::load(device) {
        Ok(header) => header,
        Err(error) => {
            return match error.kind() {
                HeaderErrorKind::NoHeader => "no-header".to_owned(),
                HeaderErrorKind::Unsupported(reason) => format!("refused: {reason}"),
                _ => format!("failed: {error}"),
            };
        }
    };
    let unlocked = header.unlock(&passphrase("first"), None);
    match unlocked.as_ref().map_err(|error| error.kind()) {
        Ok(_) if header.payload() != base => "other-payload".to_owned(),
        Ok(_) => "opens".to_owned(),
        Err(HeaderErrorKind::WrongPassphrase) => "wrong-passphrase".to_owned(),
        Err(HeaderErrorKind::NoSuchSlot) => "no-slot".to_owned(),
        Err(kind) => format!("failed: {kind:?}"),
    }
}

#[test]
fn every_corruption_does_what_its_file_says() {
    let (sealed_volume, plain_volume) = (Volume::formatted(sealed()), Volume::formatted(plain()));
    let (sealed_image, plain_image) =
        (std::fs::read(sealed_volume.path()).unwrap(), std::fs::read(plain_volume.path()).unwrap());
    let vectors = vectors();
    assert!(vectors.len() > 50, "only {} corruptions found", vectors.len());
    let mut wrong = Vec::new();
    for vector in vectors {
        let target = Volume::empty();
        let mut image = if vector.base == sealed() { sealed_image.clone() } else { plain_image.clone() };
        corrupt(&mut image, &vector.edits);
        std::fs::write(target.path(), &image).unwrap();
        let found = outcome(&target.path(), &vector.base);
        let expected = match vector.expect.strip_prefix("refused: ") {
            Some(words) => found.starts_with("refused: ") && found.contains(words),
            None => found == vector.expect,
        };
        if !expected {
            wrong.push(format!("{}: expected {}, found {found}", vector.name, vector.expect));
        }
        // Whatever it is, our other verbs neither panic nor write to a header that was refused.
        if found.starts_with("refused") || found == "no-header" {
            assert!(
                Header::restore(&sealed_volume.path(), &target.path(), sealdisk_header::RestoreCheck::None).is_err()
            );
            assert!(std::fs::read(target.path()).unwrap() == image, "{}: loading wrote to it", vector.name);
        } else if let Ok(mut header) = Header::load(&target.path()) {
            let _ = header.change_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST);
            let _ = header.kill_slot(0, LastSlot::Remove);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sealed_volume.assert_opens("first");
}

/// Any single byte of either copy's used part, changed and its checksum made right, is no reason to panic.
#[test]
fn any_changed_byte_is_survived() {
    let volume = Volume::formatted(sealed());
    let image = std::fs::read(volume.path()).unwrap();
    let used = BINARY + image[BINARY..COPY].iter().position(|&byte| byte == 0).unwrap();
    let target = Volume::empty();
    for offset in (0..512).chain(BINARY..used).step_by(3) {
        let mut edited = image[..2 * COPY].to_vec();
        edited[offset] ^= 1 << (offset % 7);
        edited[COPY + offset] ^= 1 << (offset % 7);
        if !(448..512).contains(&offset) {
            correct_checksums(&mut edited);
        }
        let file = std::fs::OpenOptions::new().write(true).open(target.path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &edited, 0).unwrap();
        let _ = Header::load(&target.path());
    }
}
