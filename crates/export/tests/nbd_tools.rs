//! Programs that people use with NBD, each against a memory disk.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

#[path = "common/nbd.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod nbd;
#[path = "common/ram_disk.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod ram_disk;

use std::sync::Arc;

use nbd::{Served, fail, succeed, tool, write_sample};
use ram_disk::RamDisk;
use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export};
use sealdisk_units::Lba;

const MIB: usize = 1 << 20;

#[test]
fn nbdinfo_sees_everything_that_is_offered() {
    let options = NbdOptions { name: "pg data".into(), description: "a test".into(), ..NbdOptions::default() };
    let served = Served::with(RamDisk::new(64 << 20), options);
    assert!(served.uri.starts_with("nbd+unix:///pg%20data?socket="), "{}", served.uri);
    let info = succeed(tool("nbdinfo", "libnbd-bin").args(["--json", &served.uri]));
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"pg data\"",
        "\"description\": \"a test\"",
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"export-size\": 67108864",
    ] {
        assert!(info.contains(expected), "{expected} is missing from\n{info}");
    }
    let list = succeed(tool("nbdinfo", "libnbd-bin").args(["--list", &served.uri]));
    assert!(list.contains("export=\"pg data\""), "{list}");
    let wrong_name = served.uri.replace("pg%20data", "other");
    fail(tool("nbdinfo", "libnbd-bin").arg(wrong_name));
}

#[test]
fn nbdinfo_sees_a_read_only_disk_and_nbdcopy_cannot_write_to_it() {
    let served = Served::new(RamDisk::new(1 << 20).read_only());
    succeed(tool("nbdinfo", "libnbd-bin").args(["--is", "read-only", &served.uri]));
    let sample = served.file("sample");
    write_sample(&sample, MIB);
    fail(tool("nbdcopy", "libnbd-bin").arg(sample).arg(&served.uri));
}

#[test]
fn nbdcopy_brings_back_what_it_took_over_tcp_and_unix() {
    let disk = Arc::new(RamDisk::new(40 << 20));
    let address: ListenAddress = "127.0.0.1:0".parse().unwrap();
    let tcp = NbdExport::start(Arc::clone(&disk) as Arc<dyn Disk>, &address, NbdOptions::default()).unwrap();
    let unix = Served::new(RamDisk::new(40 << 20));
    for uri in [&tcp.address(), &unix.uri] {
        let (sample, back) = (unix.file("sample"), unix.file("back"));
        let bytes = write_sample(&sample, 40 * MIB);
        succeed(tool("nbdcopy", "libnbd-bin").arg("--flush").arg(&sample).arg(uri));
        succeed(tool("nbdcopy", "libnbd-bin").arg(uri).arg(&back));
        assert!(std::fs::read(back).unwrap() == bytes, "{uri}");
        succeed(tool("nbdcopy", "libnbd-bin").args(["--request-size=33554432", "--requests=4"]).arg(&sample).arg(uri));
        succeed(tool("qemu-img", "qemu-utils").args(["compare", "-f", "raw", "-F", "raw"]).arg(&sample).arg(uri));
    }
    let map = succeed(tool("nbdinfo", "libnbd-bin").args(["--map", &unix.uri]));
    assert!(map.contains("hole,zero"), "nbdcopy left the zeros of its source as holes: {map}");
    Box::new(tcp).stop().unwrap();
    assert!(unix.disk.flushes() > 0);
}

#[test]
fn qemu_img_converts_compares_maps_and_benches() {
    let served = Served::new(RamDisk::new(64 << 20));
    let (sample, back) = (served.file("sample"), served.file("back.qcow2"));
    write_sample(&sample, 64 * MIB);
    let qemu_img = || tool("qemu-img", "qemu-utils");
    succeed(qemu_img().args(["convert", "-n", "-W", "-f", "raw", "-O", "raw"]).arg(&sample).arg(&served.uri));
    succeed(qemu_img().args(["compare", "-f", "raw", "-F", "raw"]).arg(&sample).arg(&served.uri));
    succeed(qemu_img().args(["convert", "-f", "raw", "-O", "qcow2", &served.uri]).arg(&back));
    succeed(qemu_img().args(["compare", "-f", "raw", "-F", "qcow2"]).arg(&sample).arg(&back));
    let map = succeed(qemu_img().args(["map", "--output=json", "-f", "raw", &served.uri]));
    assert!(map.contains("\"zero\": true, \"data\": false"), "{map}");
    for arguments in [&["-c", "2000", "-d", "32"][..], &["-c", "2000", "-d", "32", "-w", "--flush-interval=50"]] {
        succeed(qemu_img().arg("bench").args(arguments).args(["-f", "raw", &served.uri]));
    }
}

#[test]
fn qemu_io_verifies_patterns_across_every_boundary() {
    let served = Served::new(RamDisk::new(64 << 20));
    let mut qemu_io = tool("qemu-io", "qemu-utils");
    qemu_io.args(["-f", "raw", &served.uri]);
    for (pattern, offset, len) in [
        (1, 0, "512"),
        (2, 511, "2"),
        (3, 4095, "1"),
        (4, 8191, "8194"),
        (5, 100_000, "1048576"),
        (6, 1_300_000, "1048577"),
        (7, 4_000_001, "20M"),
    ] {
        qemu_io.args(["-c", &format!("write -P {pattern} {offset} {len}")]);
        qemu_io.args(["-c", &format!("read -P {pattern} {offset} {len}")]);
    }
    for command in [
        "read -P 1 0 511",
        "write -z 1M 3M",
        "read -P 0 1M 2800k",
        "write -z -u 8M 1M",
        "read -P 0 8M 1M",
        "read -P 7 9M 1M",
        "write -f -P 8 8M 4k",
        "discard 20M 1M",
        "flush",
        "read -P 8 8M 4k",
    ] {
        qemu_io.args(["-c", command]);
    }
    let said = succeed(&mut qemu_io);
    assert!(!said.contains("Pattern verification failed") && !said.contains("failed:"), "{said}");
}

#[test]
fn an_inauthentic_sector_is_an_error_for_its_readers_only() {
    let served = Served::new(RamDisk::new(8 << 20));
    served.disk.break_sector(Lba(300));
    let read = |offset: u64, len: u64| {
        let mut qemu_io = tool("qemu-io", "qemu-utils");
        qemu_io.args(["-f", "raw", &served.uri, "-c", &format!("read {offset} {len}")]);
        qemu_io.output().unwrap()
    };
    assert!(read(0, 300 * 4096).status.success());
    assert!(read(301 * 4096, MIB as u64).status.success());
    for (offset, len) in [(300 * 4096, 4096), (0, 8 * MIB as u64)] {
        let said = String::from_utf8(read(offset, len).stdout).unwrap();
        assert!(said.contains("Input/output error"), "{said}");
    }
}

#[test]
fn fio_finds_no_difference() {
    let served = Served::new(RamDisk::new(256 << 20));
    let mut fio = tool("fio", "fio");
    fio.args([
        "--ioengine=nbd",
        "--verify=crc32c",
        // Or fio leaves a file behind where the test was started.
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--size=128M",
        "--iodepth=32",
        "--group_reporting",
    ]);
    fio.arg(format!("--uri={}", served.uri));
    fio.arg(format!("--output={}", served.file("fio.log").display()));
    fio.args(["--name=small", "--rw=randwrite", "--bs=4k", "--fsync=100"]);
    fio.args(["--name=mixed", "--rw=randwrite", "--bsrange=512-2M", "--offset=128M", "--size=100M", "--stonewall"]);
    succeed(&mut fio);
}
