//! What a real kernel says of our volumes: Debian's 6.12 with dm-crypt, dm-integrity and nbd, and Debian's `cryptsetup`,
//! in a virtual machine.
//!
//! A volume of cipher `aes-256-xts` and layout `length-preserving` is LUKS2: dm-crypt reads what `sealdisk` wrote and the
//! reverse. A sealed volume is refused before any mapping is made. The kernel's NBD client is a judge of our server that
//! nobody here wrote.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

#[path = "kernel/cpio.rs"]
mod cpio;
#[path = "kernel/machine.rs"]
mod machine;
#[path = "kernel/place.rs"]
mod place;

use std::fs;
use std::path::Path;

use machine::{Debian, Machine};
use place::{CHEAP, KEY, Place};
use sha2::{Digest, Sha256};
use support::Random;
use support::programs::{succeed, tool};

const MIB: u64 = 1 << 20;

/// A volume that both sides can make.
struct Shape {
    name: &'static str,
    sector_size: u64,
    /// Bits of the volume key.
    key_size: u64,
    /// Where the data begin, in bytes, unless where they do by default.
    offset: Option<u64>,
    /// Usable bytes.
    size: u64,
}

/// Where data begin by default, with both programs.
const OFFSET: u64 = 16 * MIB;

#[rustfmt::skip]
const SHAPES: [Shape; 9] = [
    Shape { name: "usual",    sector_size: 4096, key_size: 512, offset: None, size: 8 * MIB },
    Shape { name: "small",    sector_size: 512,  key_size: 512, offset: None, size: 3 * MIB },
    Shape { name: "aes128",   sector_size: 4096, key_size: 256, offset: None, size: 2 * MIB + 4096 },
    Shape { name: "odd",      sector_size: 512,  key_size: 256, offset: None, size: 2 * MIB + 7 * 512 },
    Shape { name: "far",      sector_size: 4096, key_size: 512, offset: Some(20 * MIB + 4096), size: MIB },
    Shape { name: "odd-far",  sector_size: 512,  key_size: 512, offset: Some(OFFSET + 3 * 4096), size: MIB + 512 },
    Shape { name: "near",     sector_size: 512,  key_size: 256, offset: Some(8 * MIB), size: MIB },
    Shape { name: "between",  sector_size: 2048, key_size: 512, offset: None, size: MIB + 2048 },
    Shape { name: "one",      sector_size: 512,  key_size: 512, offset: None, size: 512 },
];

impl Shape {
    /// That this is what `dmsetup table` says: START LENGTH crypt CIPHER KEY IV-OFFSET DEVICE OFFSET [OPTIONS].
    #[track_caller]
    fn assert_is(&self, table: &str) {
        let words: Vec<&str> = table.split(' ').collect();
        assert_eq!(words[..4], ["0", &(self.size / 512).to_string(), "crypt", "aes-xts-plain64"], "{table}");
        assert!(words[4].starts_with(&format!(":{}:", self.key_size / 8)), "{table}");
        assert_eq!(words[7], (self.offset.unwrap_or(OFFSET) / 512).to_string(), "{table}");
        let sector_size = format!("sector_size:{}", self.sector_size);
        assert_eq!(words.contains(&sector_size.as_str()), self.sector_size != 512, "{table}");
    }
}

#[test]
fn dm_crypt_reads_what_sealdisk_wrote() {
    let place = Place::new();
    let mut machine = Machine::new(Debian::Bookworm).file("key", KEY);
    let mut written = Vec::new();
    for (number, shape) in SHAPES.iter().enumerate() {
        let Shape { name, sector_size, key_size, offset, size } = shape;
        let offset = offset.map(|offset| format!("--offset {offset}")).unwrap_or_default();
        let volume = place.format(
            name,
            &format!(
                "--cipher aes-256-xts --layout length-preserving --size {size} \
                 --sector-size {sector_size} --key-size {key_size} {offset}"
            ),
        );
        let content = random(number as u64, *size);
        place.write(name, &content);
        machine = machine.disk(name, &volume);
        written.push(sum(&content));
    }
    let report = machine.run(
        "for disk in /disks/*; do
            name=${disk##*/}
            cryptsetup open --key-file key $disk $name
            echo $name size: $(blockdev --getsize64 /dev/mapper/$name)
            echo $name table: $(dmsetup table $name)
            echo $name sum: $(sha256sum </dev/mapper/$name)
        done",
    );
    for (shape, sum) in SHAPES.iter().zip(written) {
        assert_eq!(report.value(&format!("{} size", shape.name)), shape.size.to_string(), "{}", shape.name);
        shape.assert_is(report.value(&format!("{} table", shape.name)));
        assert_eq!(report.value(&format!("{} sum", shape.name)), format!("{sum} -"), "{}", shape.name);
    }
}

#[test]
fn sealdisk_reads_what_dm_crypt_wrote() {
    let place = Place::new();
    let mut machine = Machine::new(Debian::Bookworm).file("key", KEY);
    let mut formats = String::new();
    for Shape { name, sector_size, key_size, offset, size } in &SHAPES {
        machine = machine.disk(name, &place.blank(name, offset.unwrap_or(OFFSET) + size));
        // cryptsetup counts offsets in sectors of 512 bytes.
        let offset = offset.map(|offset| format!("--offset {}", offset / 512)).unwrap_or_default();
        formats += &format!("{name} {CHEAP} --sector-size {sector_size} --key-size {key_size} {offset}\n");
    }
    // What cryptsetup makes if it is asked for nothing, and if it is asked for as small a header as there can be.
    machine = machine.disk("default", &place.blank("default", OFFSET + 2 * MIB));
    formats += &format!("default {CHEAP}\n");
    machine = machine.disk("tight", &place.blank("tight", 4 * MIB));
    formats += &format!("tight {CHEAP} --offset 2048 --luks2-metadata-size 16k --luks2-keyslots-size 256k\n");

    let report = machine.file("formats", formats.as_bytes()).run(
        "while read -r name options; do
            cryptsetup luksFormat --type luks2 --batch-mode $options /disks/$name key
            cryptsetup open --key-file key /disks/$name $name
            size=$(blockdev --getsize64 /dev/mapper/$name)
            echo $name size: $size
            echo $name table: $(dmsetup table $name)
            echo $name sum: $(head -c $size /dev/urandom | tee /dev/mapper/$name | sha256sum)
            sync
            cryptsetup close $name
        done <formats",
    );
    for shape in &SHAPES {
        shape.assert_is(report.value(&format!("{} table", shape.name)));
    }
    for (name, size) in
        SHAPES.iter().map(|shape| (shape.name, shape.size)).chain([("default", 2 * MIB), ("tight", 3 * MIB)])
    {
        assert_eq!(report.value(&format!("{name} size")), size.to_string(), "{name}");
        assert_eq!(format!("{} -", sum(&place.read(name))), report.value(&format!("{name} sum")), "{name}");
    }
}

/// `plain64` counts sectors in 64 bits; its predecessor `plain` began again after 2 TiB.
#[test]
fn both_agree_beyond_two_tebibytes() {
    const SIZE: u64 = 3 << 40;
    /// What sealdisk writes, and where the kernel puts a copy.
    const WRITTEN: u64 = (5 << 39) + 4096;
    const COPIED: u64 = WRITTEN + 2 * MIB;
    let place = Place::new();
    let content = random(1, MIB);
    let file = place.path("content");
    let mut machine = Machine::new(Debian::Bookworm).file("key", KEY);
    for (name, sector_size) in [("small", 512), ("large", 4096)] {
        let volume = place.format(name, &format!("--cipher aes-256-xts --size {SIZE} --sector-size {sector_size}"));
        fs::write(&file, &content).unwrap();
        place.attach(name, &[]).nbdsh(&format!("h.pwrite(open('{}', 'rb').read(), {WRITTEN})", file.display()));
        machine = machine.disk(name, &volume);
    }
    let report = machine.run(&format!(
        "for disk in /disks/*; do
            name=${{disk##*/}}
            cryptsetup open --key-file key $disk $name
            echo $name size: $(blockdev --getsize64 /dev/mapper/$name)
            dd if=/dev/mapper/$name of=copy bs=4096 skip={} count=256
            dd if=copy of=/dev/mapper/$name bs=4096 seek={}
            echo $name sum: $(sha256sum <copy)
            sync
            cryptsetup close $name
        done",
        WRITTEN / 4096,
        COPIED / 4096,
    ));
    for name in ["small", "large"] {
        assert_eq!(report.value(&format!("{name} size")), SIZE.to_string());
        assert_eq!(report.value(&format!("{name} sum")), format!("{} -", sum(&content)));
        let attached = place.attach(name, &["--read-only"]);
        attached.nbdsh(&format!("open('{}', 'wb').write(h.pread({MIB}, {COPIED}))", file.display()));
        assert!(fs::read(&file).unwrap() == content, "{name}: sealdisk reads other bytes than the kernel wrote");
    }
}

/// On a device with more room than was asked for, the header says where the data end. cryptsetup has known what to make
/// of that since 2.7, which came with support for OPAL drives; before, it maps all of the device.
#[test]
fn cryptsetup_keeps_to_the_size_of_a_volume_on_a_larger_device_since_2_7() {
    let place = Place::new();
    let device = place.blank("device", OFFSET + 8 * MIB);
    let content = random(2, 3 * MIB + 4096);
    {
        let attached = LoopDevice::on(&device);
        place.format(&attached.0, &format!("--cipher aes-256-xts --size {}", content.len()));
    }
    place.write("device", &content);
    for debian in Debian::ALL {
        let report = Machine::new(debian)
            .file("key", KEY)
            .disk("device", &device)
            .file("size", content.len().to_string().as_bytes())
            .run(
                "cryptsetup open --readonly --key-file key /disks/device device
            echo size: $(blockdev --getsize64 /dev/mapper/device)
            echo sum: $(head -c $(cat size) /dev/mapper/device | sha256sum)",
            );
        let size = match debian {
            Debian::Bookworm => 8 * MIB,
            Debian::Trixie => content.len() as u64,
        };
        assert_eq!(report.value("size"), size.to_string(), "{debian:?}");
        assert_eq!(report.value("sum"), format!("{} -", sum(&content)), "{debian:?}");
    }
}

#[test]
fn sealdisk_reads_an_ext4_that_the_kernel_made() {
    let place = Place::new();
    let volume = place.format("volume", &format!("--cipher aes-256-xts --size {}", 48 * MIB));
    let report = Machine::new(Debian::Bookworm).file("key", KEY).disk("volume", &volume).run(
        "cryptsetup open --key-file key --allow-discards /disks/volume volume
        mkfs.ext4 -q /dev/mapper/volume
        mkdir /mnt
        mount -o discard /dev/mapper/volume /mnt
        mkdir /mnt/files
        for number in $(seq 100); do
            head -c $((number * number * 7)) /dev/urandom >/mnt/files/$number
        done
        rm /mnt/files/50
        fstrim /mnt
        echo files: $(cd /mnt/files; sha256sum * | sha256sum)
        umount /mnt
        cryptsetup close volume",
    );
    let disk = place.read_file("volume");
    e2fsck(&disk);
    assert_eq!(report.value("files"), format!("{} -", sum(manifest(&files_of(&disk, &place)).as_bytes())));
}

#[test]
fn the_kernel_mounts_an_ext4_that_sealdisk_wrote_and_adds_to_it() {
    let place = Place::new();
    let volume = place.format("volume", &format!("--cipher aes-256-xts --size {} --key-size 256", 48 * MIB));
    let source = place.path("root");
    fs::create_dir_all(source.join("files")).unwrap();
    for number in 1..100 {
        fs::write(source.join(format!("files/{number}")), random(number, number * number * 7)).unwrap();
    }
    let disk = place.blank("disk", 48 * MIB);
    succeed(tool("mkfs.ext4", "e2fsprogs").args(["-q", "-b", "4096", "-d"]).args([&source, &disk]));
    place.write_file("volume", &disk);

    let report = Machine::new(Debian::Bookworm).file("key", KEY).disk("volume", &volume).run(
        "cryptsetup open --key-file key /disks/volume volume
        mkdir /mnt
        mount /dev/mapper/volume /mnt
        echo found: $(cd /mnt/files; sha256sum * | sha256sum)
        head -c 1000000 /dev/urandom >/mnt/files/more
        echo left: $(cd /mnt/files; sha256sum * | sha256sum)
        umount /mnt
        cryptsetup close volume",
    );
    let found = manifest(&source.join("files"));
    assert_eq!(report.value("found"), format!("{} -", sum(found.as_bytes())));
    let disk = place.read_file("volume");
    e2fsck(&disk);
    assert_eq!(report.value("left"), format!("{} -", sum(manifest(&files_of(&disk, &place)).as_bytes())));
}

#[test]
fn cryptsetup_refuses_a_sealed_volume_before_any_mapping_is_made() {
    let place = Place::new();
    let sealed = [
        ("aegis", "--cipher aegis-256"),
        ("folded", "--cipher aegis-256 --fold"),
        ("gcm", "--cipher aes-256-gcm"),
        ("chacha", "--cipher xchacha20-poly1305"),
        ("xts", "--cipher aes-256-xts-random"),
    ];
    for (name, options) in sealed {
        place.format(name, &format!("--size 4M {options}"));
        place.write(name, &random(3, 4 * MIB));
    }
    place.format("plain", "--size 4M --cipher aes-256-xts");
    let before = sealed.map(|(name, _)| sum(&fs::read(place.path(name)).unwrap()));

    let options = ["--readonly", "--allow-discards", "--type luks2"].map(|options| format!("aegis {options}"));
    let refused: Vec<String> = sealed.iter().map(|(name, _)| (*name).to_owned()).chain(options).collect();
    for debian in Debian::ALL {
        let mut machine = Machine::new(debian).file("key", KEY).disk("plain", &place.path("plain"));
        for (name, _) in sealed {
            machine = machine.disk(name, &place.path(name));
        }
        let report = machine.file("opens", format!("{}\nplain\n", refused.join("\n")).as_bytes()).run(
            "echo targets: $(dmsetup targets | cut -d ' ' -f 1)
            while read -r name options; do
                cryptsetup open --key-file key $options /disks/$name $name 2>said && code=0 || code=$?
                echo $name $options said: $code, $(cat said)
                echo $name $options mappings: $(dmsetup ls)
            done <opens",
        );
        let targets: Vec<&str> = report.value("targets").split(' ').collect();
        assert!(targets.contains(&"crypt") && targets.contains(&"integrity"), "{targets:?}");
        for open in &refused {
            // A wrong passphrase would be code 2.
            assert_eq!(
                report.value(&format!("{open} said")),
                "1, Unsupported device integrity configuration.",
                "{debian:?}: {open}"
            );
            assert_eq!(report.value(&format!("{open} mappings")), "No devices found", "{debian:?}: {open}");
        }
        // This kernel and this cryptsetup open what is not sealed.
        assert_eq!(report.value("plain said"), "0,", "{debian:?}");
        assert!(report.value("plain mappings").starts_with("plain"), "{debian:?}");
    }
    for ((name, _), before) in sealed.iter().zip(before) {
        assert_eq!(sum(&fs::read(place.path(name)).unwrap()), before, "{name} was changed");
    }
}

#[test]
fn the_kernels_nbd_client_keeps_an_ext4_on_a_sealed_volume() {
    let place = Place::new();
    let names = ["unfolded", "folded"];
    place.format("unfolded", &format!("--size {}", 48 * MIB));
    place.format("folded", &format!("--size {} --fold", 48 * MIB));
    let report = {
        let attached = names.map(|name| place.attach(name, &["--listen", "127.0.0.1:0"]));
        let disks: String = attached.iter().map(|attached| attached.uri.replace([':', '/'], " ") + "\n").collect();
        Machine::new(Debian::Bookworm).network().file("disks", disks.as_bytes()).run(
            "modprobe -a virtio_net nbd
            ip address add 10.0.2.15/24 dev eth0
            ip link set eth0 up
            while read -r nbd host port name; do
                nbd-client 10.0.2.2 $port /dev/nbd0 -name $name -block-size 4096 -connections 4
                echo $name size: $(blockdev --getsize64 /dev/nbd0)
                mkfs.ext4 -q /dev/nbd0
                mkdir -p /mnt
                mount -o discard /dev/nbd0 /mnt
                mkdir /mnt/files
                for number in $(seq 100); do
                    head -c $((number * number * 7)) /dev/urandom >/mnt/files/$number
                done
                dd if=/dev/urandom of=/mnt/files/synced bs=4096 count=100 conv=fsync
                rm /mnt/files/50
                fstrim /mnt
                echo $name before: $(cd /mnt/files; sha256sum * | sha256sum)
                umount /mnt
                echo 3 >/proc/sys/vm/drop_caches
                mount /dev/nbd0 /mnt
                echo $name after: $(cd /mnt/files; sha256sum * | sha256sum)
                umount /mnt
                nbd-client -d /dev/nbd0
            done <disks",
        )
    };
    for name in names {
        assert_eq!(report.value(&format!("{name} size")), (48 * MIB).to_string());
        let files = report.value(&format!("{name} after"));
        assert_eq!(files, report.value(&format!("{name} before")));
        place.ok(["check", name, "--key-file", "key"]);
        let disk = place.read_file(name);
        e2fsck(&disk);
        assert_eq!(files, format!("{} -", sum(manifest(&files_of(&disk, &place)).as_bytes())));
    }
}

/// A loop device, for what only a device can show. Gone when dropped.
struct LoopDevice(String);

impl LoopDevice {
    fn on(file: &Path) -> Self {
        let losetup = &mut tool("losetup", "mount");
        Self(succeed(losetup.args(["--find", "--show"]).arg(file)).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = tool("losetup", "mount").args(["--detach", &self.0]).output();
    }
}

/// Bytes that are the same for the same seed.
fn random(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// SHA-256 as `sha256sum` prints it.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `sha256sum *` prints in `folder`.
fn manifest(folder: &Path) -> String {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let line = |name: &std::ffi::OsString| {
        format!("{}  {}\n", sum(&fs::read(folder.join(name)).unwrap()), name.to_str().unwrap())
    };
    names.iter().map(line).collect()
}

/// Finds nothing wrong with the file system.
#[track_caller]
fn e2fsck(disk: &Path) {
    succeed(tool("e2fsck", "e2fsprogs").arg("-fn").arg(disk));
}

/// A copy of the folder `files` of an ext4.
fn files_of(disk: &Path, place: &Place) -> std::path::PathBuf {
    let target = place.path(&format!("{}.files", disk.file_name().and_then(|name| name.to_str()).unwrap()));
    fs::create_dir(&target).unwrap();
    let dump = format!("rdump /files {}", target.display());
    succeed(tool("debugfs", "e2fsprogs").args(["-R", &dump]).arg(disk));
    target.join("files")
}
