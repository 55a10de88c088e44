//! Plain LUKS volumes on images: librbd, QEMU and Sealdisk read and write the same bytes.

use std::process::Command;

use serde_json::Value;
use support::programs::{succeed, tool};

use crate::Images;
use crate::harness::{CHEAP, nbd};

const CREATE: &str = "create --image-feature layering,exclusive-lock,deep-flatten";

impl Images {
    /// A program of QEMU's, to be given an image under librbd's encryption as QEMU's rbd driver opens it.
    fn qemu(&self, program: &str, image: &str, format: &str) -> (Command, String) {
        let mut qemu = tool(program, "qemu-utils");
        if program == "qemu-img" {
            qemu.args(["info", "--output", "json"]);
        }
        let secret = format!("secret,id=key,file={}", self.place.path("key").display());
        qemu.args(["--object", &secret, "--image-opts"]).env("CEPH_CONF", self.cluster.conf());
        // To QEMU, LUKS is the first version.
        let format = format.trim_end_matches('1');
        let options = format!(
            "driver=rbd,pool={},image={image},conf={},encrypt.format={format},encrypt.key-secret=key",
            self.pool,
            self.cluster.conf().display()
        );
        (qemu, options)
    }

    /// Has QEMU read and write, with commands of qemu-io.
    fn qemu_io(&self, image: &str, format: &str, commands: impl Iterator<Item = String>) {
        let (mut qemu, options) = self.qemu("qemu-io", image, format);
        commands.for_each(|command| {
            qemu.args(["-c", &command]);
        });
        let said = succeed(qemu.arg(options));
        assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    }

    fn size_in_qemu(&self, image: &str, format: &str) -> u64 {
        let (mut qemu, options) = self.qemu("qemu-img", image, format);
        let info: Value = serde_json::from_str(&succeed(qemu.arg(options))).unwrap();
        info["virtual-size"].as_u64().unwrap()
    }

    /// Makes a key slot cheap to open, for everyone.
    fn cheapen(&self, image: &str) {
        let volume = self.name(image);
        let change = ["key", "change", &volume, "--key-file", "key", "--new-key-file", "key"];
        self.place.ok(&[&change[..], &CHEAP].concat());
    }
}

/// Both write, and read what the other wrote: at the start, across objects, less than a sector, and at the end.
fn exchange(images: &Images, image: &str, format: &str) {
    let volume = images.name(image);
    let size = images.place.info(&volume)["size"].as_u64().unwrap();
    let places = [(0, 4096), ((4 << 20) - 8192, 16384), ((1 << 20) + 512, 1024), (size - 512, 512)];
    let patterns = |first: usize| places.iter().enumerate().map(move |(i, place)| (first + i, *place));

    images.qemu_io(image, format, patterns(0x11).map(|(pattern, (at, len))| format!("write -P {pattern} {at} {len}")));
    let uri = images.attach(&volume);
    let read = |(pattern, (offset, len))| format!("print(h.pread({len}, {offset}) == bytes([{pattern}]) * {len})\n");
    assert_eq!(nbd(&uri, &patterns(0x11).map(read).collect::<String>()), "True\n".repeat(places.len()), "{image}");
    let write = |(pattern, (offset, len))| format!("h.pwrite(bytes([{pattern}]) * {len}, {offset})\n");
    nbd(&uri, &(patterns(0x81).map(write).collect::<String>() + "h.flush()"));
    // What nobody wrote, and what was discarded, is zeros to both.
    let zeros = "print(h.pread(65536, 9 << 20) == bytes(65536), h.pread(1024, 512 + (1 << 20)) == bytes(1024))";
    let (hole, discarded) = ((9 << 20, 65536), ((1 << 20) + 512, 1024));
    nbd(&uri, "h.trim(4096, 1 << 20)\nh.pwrite(b'x' * 65536, 9 << 20)\nh.trim(9 << 20, 7 << 20)\nh.flush()");
    assert_eq!(nbd(&uri, zeros), "True True\n", "{image}");
    images.place.ok(&["detach", image]);
    let zeros = [hole, discarded].map(|(at, len)| format!("read -P 0 {at} {len}"));
    images.qemu_io(image, format, zeros.into_iter());
    let patterns = |first: usize| patterns(first).filter(move |(_, place)| *place != discarded);
    images.qemu_io(image, format, patterns(0x81).map(|(pattern, (at, len))| format!("read -P {pattern} {at} {len}")));
}

#[test]
fn images_of_librbds_encryption_open_here_and_ours_there() {
    let images = Images::new("interop");
    let key = images.place.path("key");
    // Whole objects; neither whole objects nor whole sectors of 4 KiB; whole sectors.
    let even = 64 << 20;
    let odd = (50 << 20) + 12 * 512;
    let odder = (41 << 20) + 4096;
    let theirs = [
        ("two", "luks2", "aes-256", even),
        ("two-odd", "luks2", "aes-256", odd),
        ("two-odder", "luks2", "aes-128", odder),
        ("one", "luks1", "aes-256", even),
        ("one-odd", "luks1", "aes-128", odd),
    ];
    // What is no multiple of an object's size is one of a sector's.
    let ours = [("ours", &[][..]), ("ours-128", &["--key-size", "256"])];
    let exchange_theirs = |image: &str, format: &str, cipher: &str, size: u64| {
        images.rbd(&format!("{CREATE} --size {size}B {image}"));
        images.rbd(&format!("encryption format {image} {format} {} --cipher-alg {cipher}", key.display()));
        let info = images.place.info(&images.name(image));
        assert_eq!(info["kind"], format);
        images.cheapen(image);
        let theirs = images.size_in_qemu(image, format);
        // librbd's disk ends with the image, in the midst of a sector if need be; ours has whole ones.
        let sector = info["sector_size"].as_u64().unwrap();
        assert_eq!(info["size"].as_u64().unwrap(), theirs / sector * sector, "{image}");
        exchange(&images, image, format);
    };
    let exchange_ours = |image: &str, more: &[&str]| {
        let format =
            ["format", &images.name(image), "--size", "20975616", "--cipher", "aes-256-xts", "--key-file", "key"];
        images.place.ok(&[&format[..], &CHEAP, more].concat());
        assert_eq!(images.size_in_qemu(image, "luks2"), 20_975_616);
        exchange(&images, image, "luks2");
    };
    // librbd's key slots take as long as cryptsetup's, all of them together no longer than one.
    std::thread::scope(|scope| {
        for (image, format, cipher, size) in theirs {
            scope.spawn(move || exchange_theirs(image, format, cipher, size));
        }
        for (image, more) in ours {
            scope.spawn(move || exchange_ours(image, more));
        }
    });
}

#[test]
fn key_slots_of_luks1_are_managed() {
    let images = Images::new("interop-luks1");
    images.rbd(&format!("{CREATE} --size 64M disk"));
    images.rbd(&format!("encryption format disk luks1 {}", images.place.path("key").display()));
    let volume = images.name("disk");
    let add = [&["key", "add", &volume, "--key-file", "key", "--new-key-file", "other"], &CHEAP[..]].concat();
    assert_eq!(images.place.ok(&add), "Added in key slot 1.\n");
    images.place.ok(&["key", "remove", &volume, "--key-file", "key"]);
    images.place.fails(2, &["check", &volume, "--key-file", "key"]);
    images.place.ok(&["check", &volume, "--key-file", "other"]);
    let list = images.place.ok(&["key", "list", &volume]);
    assert!(list.contains("pbkdf2") && !list.contains("argon2"), "{list}");
    images.place.ok(&["header", "backup", &volume, "saved"]);
    images.place.ok(&["erase", &volume, "--force"]);
    images.place.ok(&["header", "restore", &volume, "saved", "--force"]);
    images.place.ok(&["check", &volume, "--key-file", "other"]);
    assert!(images.place.ok(&["info", &volume]).contains("LUKS1"));
}
