//! Layouts and clones from the command line.

use serde_json::Value;

use support::ceph::Pool;

use crate::Images;
use crate::harness::{CHEAP, nbd};

const LAYOUTS: [&str; 4] = ["packed", "object-end", "omap", "unaligned"];

#[test]
fn every_layout_is_a_disk_and_says_which_it_is() {
    let images = Images::new("layouts");
    for (layout, fold) in LAYOUTS.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let image = format!("{layout}-{fold}");
        let volume = images.name(&image);
        let mut format = vec!["format", &volume, "--size", "20M", "--layout", layout, "--key-file", "key"];
        format.extend(fold.then_some("--fold"));
        images.place.ok(&[&format[..], &CHEAP].concat());
        let uri = images.attach(&volume);
        nbd(&uri, "h.pwrite(b'page' * 2048, 4096)\nh.pwrite(b'odd', 9 << 20)\nh.flush()");
        images.place.ok(&["detach", &image]);
        images.place.ok(&["resize", &volume, "--size", "30M", "--key-file", "key"]);
        let uri = images.attach(&volume);
        let read =
            "print(bytes(h.pread(4, 8192)), bytes(h.pread(3, 9 << 20)), h.pread(1 << 20, 29 << 20) == bytes(1 << 20))";
        assert_eq!(nbd(&uri, read), "b'page' b'odd' True\n", "{image}");
        images.place.ok(&["detach", &image]);
        images.place.ok(&["check", &volume, "--key-file", "key"]);
        let info = images.place.info(&volume);
        assert_eq!((&info["layout"], &info["fold"]), (&Value::from(layout), &Value::from(fold)), "{info}");
    }
}

#[test]
fn layouts_are_refused_where_they_cannot_be() {
    let images = Images::new("layouts-refused");
    images.cluster.create_pool("layouts-parts", Pool::ErasureCoded);
    let volume = images.name("disk");
    let options = ["--size", "8M", "--layout", "omap", "--key-file", "key", "--data-pool", "layouts-parts"];
    let refused = images.place.fails(1, &[&["format", &volume], &options[..], &CHEAP].concat());
    assert!(refused.contains("an erasure-coded pool has none"), "{refused}");
    assert_eq!(images.rbd("ls"), "", "the image is removed again");
    for layout in &LAYOUTS[1..] {
        let options = ["--size", "8M", "--layout", layout, "--key-file", "key"];
        let refused = images.place.fails(1, &[&["format", "local.vol"], &options[..], &CHEAP].concat());
        assert!(refused.contains("images on Ceph"), "{refused}");
        let refused =
            images.place.fails(1, &[&["format", &volume, "--cipher", "aes-256-xts"], &options[..], &CHEAP].concat());
        assert!(refused.contains("no seals"), "{refused}");
    }
}

/// A clone has its parent's key slots until its own change, and its snapshots keep those of their time.
#[test]
fn a_clone_is_a_volume_of_its_own_with_the_same_key() {
    let images = Images::new("clones");
    let volume = images.volume("disk", "16M");
    let uri = images.attach(&volume);
    nbd(&uri, "h.pwrite(b'kept' * 1024, 0)\nh.flush()");
    images.place.ok(&["snapshot", "create", &format!("{volume}@s")]);
    let features = "--image-feature layering,exclusive-lock,deep-flatten";
    images.rbd(&format!("clone --rbd-default-clone-format 2 {features} disk@s clones/child"));
    let child = images.name("child");
    images.place.ok(&["snapshot", "create", &format!("{child}@before")]);
    let uri = images.attach(&child);
    assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 0)))"), "b'kept'\n");
    nbd(&uri, "h.pwrite(b'new!' * 1024, 4096)\nh.flush()");

    let change = ["key", "change", &child, "--key-file", "key", "--new-key-file", "other"];
    images.place.ok(&[&change[..], &CHEAP].concat());
    images.place.ok(&["detach", "child"]);
    images.rbd("flatten --no-progress child");
    images.place.ok(&["check", &child, "--key-file", "other"]);
    images.place.fails(2, &["check", &child, "--key-file", "key"]);
    images.place.ok(&["check", &format!("{child}@before"), "--key-file", "key"]);
    images.place.fails(2, &["check", &format!("{child}@before"), "--key-file", "other"]);
    images.place.ok(&["detach", "disk"]);
    images.place.ok(&["check", &volume, "--key-file", "key"]);
    images.place.fails(2, &["check", &volume, "--key-file", "other"]);
}
