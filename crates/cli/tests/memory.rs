//! An attached volume keeps to its limit, whatever its clients do.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use harness::{CHEAP, Place, peak_memory};
use support::programs::{succeed, tool};

/// As many clients as are let in, each with as many requests as it likes, on a volume whose seals do not all fit.
#[test]
fn sixteen_greedy_clients_stay_within_the_limit() {
    let place = Place::new();
    place.file("key", b"secret");
    place.ok(&[&["format", "v", "--size", "8G", "--key-file", "key"], &CHEAP[..]].concat());
    let uri = place.ok(&["attach", "v", "--as", "nbd", "--key-file", "key"]);
    let run = |arguments: &[&str]| {
        let mut fio = tool("fio", "fio");
        fio.args(["--name=greedy", "--ioengine=nbd", "--numjobs=16", "--iodepth=64", "--size=8G", "--randrepeat=0"]);
        succeed(fio.arg(format!("--uri={}", uri.trim())).args(arguments));
    };
    run(&["--rw=randwrite", "--bs=4k", "--io_size=4M"]);
    for _ in 0..2 {
        run(&["--rw=randrw", "--bs=64k", "--io_size=40M"]);
        run(&["--rw=randread", "--bs=64k", "--io_size=100M"]);
        run(&["--rw=randrw", "--bs=1M", "--io_size=60M"]);
    }
    let peak = peak_memory(place.pid());
    assert!(peak < 256, "{peak} MiB");
    assert!(peak > 64, "{peak} MiB: the clients were not greedy");
}
