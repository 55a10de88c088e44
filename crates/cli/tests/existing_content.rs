//! What a file or device holds already is not overwritten by mistake.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use harness::{CHEAP, Place, cryptsetup};
use support::programs::{succeed, tool};

/// Ways to fill a file of 64 MiB, and what the refusal must say.
type Filling = (&'static str, fn(&Path), &'static str);

const FILLINGS: &[Filling] = &[
    ("luks2", |path| luks(path, "luks2"), "a LUKS header"),
    ("luks1", |path| luks(path, "luks1"), "a LUKS header"),
    ("ext4", |path| drop(succeed(tool("mkfs.ext4", "e2fsprogs").args(["-q", "-F"]).arg(path))), "a file system (ext4)"),
    ("vfat", |path| drop(succeed(tool("mkfs.vfat", "dosfstools").arg(path))), "a file system (vfat)"),
    ("swap", |path| drop(succeed(tool("mkswap", "util-linux").arg(path))), "(swap)"),
    ("gpt", |path| partition(path, "label: gpt\n,\n"), "a partition table (gpt)"),
    ("dos", |path| partition(path, "label: dos\n,\n"), "a partition table (dos)"),
    ("sqlite", sqlite, "an SQLite database"),
    ("postgres", postgres_page, "a PostgreSQL table or index"),
    ("text", |path| write_at(path, b"dear diary", 0), "unknown content"),
    ("late", |path| write_at(path, b"x", (64 << 20) - 1), "unknown content"),
];

fn luks(path: &Path, kind: &str) {
    let key = path.with_extension("key");
    fs::write(&key, b"x").unwrap();
    let cheap = ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"];
    succeed(cryptsetup(&["luksFormat", "--batch-mode", "--type", kind, "--key-file"]).arg(key).args(cheap).arg(path));
}

fn partition(path: &Path, script: &str) {
    let input = path.with_extension("script");
    fs::write(&input, script).unwrap();
    succeed(tool("sfdisk", "fdisk").arg("--quiet").arg(path).stdin(File::open(input).unwrap()));
}

fn sqlite(path: &Path) {
    fs::remove_file(path).unwrap();
    succeed(tool("sqlite3", "sqlite3").arg(path).arg("create table t(x); insert into t values(1);"));
}

/// An empty heap page of 8 KiB, as PostgreSQL's PageInit() makes it.
fn postgres_page(path: &Path) {
    let mut page = [0; 24];
    page[12..20].copy_from_slice(&[24, 0, 0, 0x20, 0, 0x20, 4, 0x20]);
    write_at(path, &page, 0);
}

fn write_at(path: &Path, bytes: &[u8], at: u64) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn format<'a>(target: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["format", target, "--size", "8M", "--key-file", "key"], &CHEAP[..], more].concat()
}

#[test]
fn content_is_refused_and_left_alone_and_overwritten_by_force() {
    let place = Place::new();
    place.file("key", b"secret");
    for (name, fill, what) in FILLINGS {
        let path = place.path(name);
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        fill(&path);
        let before = fs::read(&path).unwrap();
        let complaint = place.fails(4, &format(name, &[]));
        assert!(complaint.contains(what) && complaint.contains("--force"), "{name}: {complaint}");
        assert!(fs::read(&path).unwrap() == before, "{name}: something was written");
        place.ok(&format(name, &["--force"]));
        assert_eq!(place.info(name)["size"], 8 << 20);
        place.ok(&["check", name, "--key-file", "key", "--quiet"]);
    }
}

#[test]
fn options_that_are_refused_destroy_nothing_even_by_force() {
    let place = Place::new();
    place.file("key", b"secret");
    place.file("diary", b"dear diary");
    let xts = ["--cipher", "aes-256-xts", "--offset", "1000"];
    for wrong in [&["--label", ""][..], &xts, &["--fold", "--cipher", "aes-256-xts"], &["--key-size", "256"]] {
        place.fails(1, &[&format("diary", &["--force"])[..], wrong].concat());
        assert_eq!(fs::read(place.path("diary")).unwrap(), b"dear diary", "{wrong:?}");
    }
}

#[test]
fn a_file_of_nothing_but_holes_may_be_formatted() {
    let place = Place::new();
    place.file("key", b"secret");
    File::create(place.path("empty")).unwrap();
    File::create(place.path("holes")).unwrap().set_len(1 << 30).unwrap();
    for name in ["empty", "holes"] {
        place.ok(&format(name, &[]));
        assert_eq!(place.info(name)["size"], 8 << 20);
    }
}

#[test]
fn what_cannot_be_a_volume_is_refused() {
    let place = Place::new();
    place.file("key", b"secret");
    fs::create_dir(place.path("folder")).unwrap();
    succeed(Command::new("mkfifo").arg(place.path("pipe")));
    for (target, code) in [("folder", 4), ("pipe", 4), ("/dev/null", 4), ("no/such/folder", 4)] {
        place.fails(code, &format(target, &["--force"]));
    }
    let complaint = place.fails(4, &["info", "rbd:pool/image"]);
    assert!(complaint.contains("Ceph"), "{complaint}");
}

#[test]
fn a_failed_format_leaves_no_file_behind() {
    let place = Place::new();
    place.file("empty", b"");
    place.file("key", b"secret");
    place.fails(1, &["format", "new", "--size", "8M", "--key-file", "empty"]);
    place.fails(1, &["format", "new", "--key-file", "key"]);
    assert!(!place.path("new").exists());
}

/// A loop device, for as long as it is needed.
struct Loop(String);

impl Loop {
    fn on(path: &Path) -> Self {
        let out = succeed(tool("losetup", "mount").args(["--find", "--show"]).arg(path));
        Self(out.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        succeed(tool("losetup", "mount").args(["--detach", &self.0]));
    }
}

#[test]
fn a_block_device_is_formatted_whole_and_never_while_it_is_in_use() {
    let place = Place::new();
    place.file("key", b"secret");
    File::create(place.path("disk")).unwrap().set_len(96 << 20).unwrap();
    let device = Loop::on(&place.path("disk"));
    let complaint = place.fails(5, &format("disk", &["--force"]));
    assert!(complaint.contains(&device.0), "{complaint}");

    succeed(tool("mkfs.ext4", "e2fsprogs").arg("-q").arg(&device.0));
    place.fails(4, &format(&device.0, &[]));
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    succeed(tool("mount", "mount").arg(&device.0).arg(&mounted));
    let refused = place.sealdisk(&format(&device.0, &["--force"])).output().unwrap();
    succeed(tool("umount", "mount").arg(&mounted));
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");

    let whole = [&["format", &device.0, "--force", "--key-file", "key"], &CHEAP[..]].concat();
    place.ok(&whole);
    let size = place.info(&device.0)["size"].as_u64().unwrap();
    assert!(size > 64 << 20 && size < 80 << 20, "{size}");
    place.ok(&["check", &device.0, "--key-file", "key"]);
    let complaint =
        place.fails(4, &[&["format", &device.0, "--force", "--size", "96M", "--key-file", "key"], &CHEAP[..]].concat());
    assert!(complaint.contains(&size.to_string()), "{complaint}");
}
