//! An attached image keeps to its limit of memory, whatever its clients do.

use support::programs::{succeed, tool};

use crate::Images;
use crate::harness::{CHEAP, peak_memory};

/// As many clients as are let in, each with as many requests of all lengths as it likes.
#[test]
fn sixteen_greedy_clients_of_an_image_stay_within_the_limit() {
    let images = Images::new("greedy");
    for (layout, cipher) in [("packed", "aegis-256"), ("unaligned", "aegis-256"), ("length-preserving", "aes-256-xts")]
    {
        let volume = images.name(layout);
        let format = ["format", &volume, "--layout", layout, "--cipher", cipher, "--size", "16G", "--key-file", "key"];
        images.place.ok(&[&format[..], &CHEAP].concat());
        let uri = images.attach(&volume);
        let pid = images.place.pid();
        let run = |arguments: &[&str]| {
            let mut fio = tool("fio", "fio");
            fio.args(["--name=greedy", "--ioengine=nbd", "--randrepeat=0", &format!("--uri={}", uri.trim())]);
            succeed(fio.args(arguments));
        };
        if layout == "packed" {
            // A sector here and there: more seals than fit.
            run(&["--rw=randwrite", "--bs=4k", "--iodepth=64", "--size=16G", "--io_size=8M"]);
        }
        let parts = ["--numjobs=16", "--iodepth=16", "--size=16M", "--offset_increment=16M"];
        for load in [
            "--rw=randwrite --bs=4k --io_size=1M",
            "--rw=randwrite --bs=4M",
            "--rw=randrw --bs=1M",
            "--rw=randrw --bs=4M",
        ] {
            run(&[&parts[..], &load.split(' ').collect::<Vec<_>>()].concat());
        }
        let peak = peak_memory(pid);
        println!("{layout}: {peak} MiB");
        assert!(peak < 256, "{layout}: {peak} MiB");
        assert!(peak > 100, "{layout}: {peak} MiB: the clients were not greedy");
        images.place.ok(&["detach", &volume]);
    }
}
