//! Snapshots from the command line.

use serde_json::Value;

use crate::Images;
use crate::harness::nbd;

#[test]
fn snapshots_are_made_while_attached_and_rolled_back_to_while_not() {
    let images = Images::new("snapshots");
    let volume = images.volume("disk", "32M");
    let uri = images.attach(&volume);
    nbd(&uri, "h.pwrite(b'old!' * 1024, 0)\nh.flush()");
    let snapshot = format!("{volume}@then");
    images.place.ok(&["snapshot", "create", &snapshot]);
    assert!(images.place.fails(5, &["snapshot", "create", &snapshot]).contains("exists"));
    nbd(&uri, "h.pwrite(b'new!' * 1024, 0)\nh.flush()");

    let list: Value = serde_json::from_str(&images.place.ok(&["snapshot", "list", &volume, "--json"])).unwrap();
    assert_eq!(list[0]["name"], "then");
    assert!(images.place.ok(&["snapshot", "list", &volume]).contains("then"));
    assert_eq!(images.place.info(&volume)["image"]["snapshots"][0]["name"], "then");

    // Beside the disk that it was made of, and on its own.
    let of_then = images.attach(&snapshot);
    assert_eq!(nbd(&of_then, "print(bytes(h.pread(4, 0)), h.is_read_only())"), "b'old!' True\n");
    let named: Vec<Value> = images.place.list().iter().map(|line| line["name"].clone()).collect();
    assert_eq!(named, ["disk", "disk-then"]);
    assert_eq!(images.place.list()[1]["volume"], snapshot);
    let taken = images.place.fails(5, &["snapshot", "remove", &snapshot]);
    assert!(taken.contains("'disk-then'"), "{taken}");
    images.place.ok(&["detach", "disk-then"]);

    let rollback = ["snapshot", "rollback", &snapshot, "--force"];
    assert!(images.place.fails(5, &rollback).contains("'disk'"));
    let elsewhere = crate::place_in(images.cluster);
    assert!(elsewhere.fails(5, &rollback).contains("is being written by"));
    images.place.ok(&["detach", "disk"]);
    assert!(images.place.fails(1, &rollback[..3]).contains("--force"));
    let progress = images.place.ok(&[&rollback[..], &["--progress-json"]].concat());
    let last: Value = serde_json::from_str(progress.lines().last().unwrap()).unwrap();
    assert_eq!(last["device_bytes"], last["device_size"]);

    images.place.ok(&["check", &volume, "--key-file", "key"]);
    let uri = images.attach(&volume);
    assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 0)))"), "b'old!'\n");
    images.place.ok(&["snapshot", "remove", &snapshot]);
    assert_eq!(images.place.ok(&["snapshot", "list", &volume]), "");
    images.place.ok(&["detach", "disk"]);
    images.place.fails(4, &["snapshot", "remove", &snapshot]);
    images.place.fails(4, &["snapshot", "rollback", &snapshot, "--force"]);
}

#[test]
fn what_has_no_snapshots_says_why_and_what_is_none_is_refused() {
    let images = Images::new("snapshots-none");
    let volume = images.volume("disk", "8M");
    images.place.volume("local.vol");
    for command in ["create", "list", "remove", "rollback"] {
        let complaint = images.place.fails(1, &["snapshot", command, "local.vol"]);
        assert!(complaint.contains("only images on Ceph"), "{complaint}");
    }
    assert!(images.place.fails(1, &["snapshot", "create", &volume]).contains("@SNAPSHOT"));
    images.rbd("snap create --no-progress disk@kept");
    images.rbd("snap protect disk@kept");
    let kept = format!("{volume}@kept");
    assert!(images.place.fails(5, &["snapshot", "remove", &kept]).contains("protected"));
    for command in [
        &["resize", &kept, "--size", "16M", "--key-file", "key"][..],
        &["erase", &kept, "--force"],
        &["format", &kept, "--size", "8M", "--key-file", "key"],
    ] {
        let output = images.place.sealdisk(command).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains("snapshot"), "{complaint}");
    }
    images.rbd("snap unprotect disk@kept");
}
