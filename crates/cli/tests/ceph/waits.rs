//! A cluster that does not answer: the wait is seen, nothing is lost, and it ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use support::ceph::{Cluster, Daemon, OSDS, Pool};
use support::programs::{eventually, tool};

use crate::harness::{CHEAP, nbd};
use crate::place_in;

#[test]
fn waits_are_seen_and_end() {
    let mut cluster = Cluster::start();
    cluster.create_pool("slow", Pool::Replicated(2));
    let place = place_in(&cluster);
    place.file("key", b"secret");
    let volume = "rbd:slow/disk";
    place.ok(&[&["format", volume, "--size", "32M", "--key-file", "key"], &CHEAP[..]].concat());
    let uri = place.ok(&["attach", volume, "--as", "nbd", "--key-file", "key"]);
    let state = || place.list()[0]["state"].clone();
    assert_eq!(state(), "healthy");

    (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).pause());
    // The detaching below ends its connection; what it wrote stays written.
    let mut client = tool("python3", "python3-libnbd");
    client.args(["-m", "nbd", "--uri", uri.trim(), "--command", "h.pwrite(b'x' * 4096, 0)\nh.flush()"]);
    let mut client = client.stderr(Stdio::null()).spawn().unwrap();
    eventually("the wait is seen", || state() == "waiting for Ceph");
    let line = &place.list()[0];
    assert!(line["waiting_since"].as_u64().unwrap() >= line["since"].as_u64().unwrap(), "{line}");
    let table = place.ok(&["list"]);
    assert!(table.contains("waiting for Ceph") && table.contains("ceph status"), "{table}");

    // Whoever wants it gone is told why it takes so long, and sees it through.
    let mut detach = place.sealdisk(&["detach", "disk"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(detach.stderr.take().unwrap()).lines();
    let story = said.next().unwrap().unwrap();
    assert!(story.contains("Ceph has not taken everything yet") && story.contains("process"), "{story}");
    assert_eq!(state(), "waiting for Ceph");
    // So is whoever only wants to look.
    let mut info = place.sealdisk(&["info", volume]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(info.stderr.take().unwrap()).lines();
    let story = told.next().unwrap().unwrap();
    assert!(story.contains("waiting for Ceph"), "{story}");

    (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).resume());
    client.wait().unwrap();
    assert!(info.wait().unwrap().success());
    assert!(detach.wait().unwrap().success());
    assert!(place.list().is_empty());
    let uri = place.ok(&["attach", volume, "--as", "nbd", "--key-file", "key"]);
    assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 0)))"), "b'xxxx'\n");
    assert_eq!(place.list()[0]["state"], "healthy");
    assert!(place.list()[0]["waiting_since"].is_null());
}
