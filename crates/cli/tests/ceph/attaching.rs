//! The life of an attached image.

use std::os::unix::process::ExitStatusExt;

use support::ceph::Cluster;

use crate::harness::typing::Typist;
use crate::harness::{Place, nbd, peak_memory};
use crate::{Images, kill, place_in};

#[test]
fn an_attached_image_is_a_disk_that_nobody_else_writes() {
    let images = Images::new("attach");
    let volume = images.volume("disk", "32M");
    let uri = images.attach(&volume);
    nbd(&uri, "h.pwrite(b'x' * 4096, 8192)\nh.flush()");
    let list = images.place.list();
    assert_eq!(list[0]["volume"], volume);
    assert_eq!(list[0]["state"], "healthy");
    let owner = images.place.info(&volume)["image"]["lock_owner"].as_str().unwrap().to_owned();
    let locks = images.cluster.ask("rbd lock ls attach/disk");
    assert!(locks.to_string().contains(&owner), "{locks} {owner}");

    for more in [&["--name", "second"][..], &["--name", "second", "--read-only"]] {
        let attach = [&["attach", &volume, "--as", "nbd", "--key-file", "key"], more].concat();
        let complaint = images.place.fails(5, &attach);
        assert!(complaint.contains("'disk'") && complaint.contains("process"), "{complaint}");
    }
    // Under another name it is the same image; elsewhere there is another registry, and the lock.
    let elsewhere = place_in(images.cluster);
    elsewhere.file("key", b"secret");
    for more in [&[][..], &["--read-only"]] {
        let attach = [&["attach", &volume, "--as", "nbd", "--key-file", "key"], more].concat();
        let complaint = elsewhere.fails(5, &attach);
        assert!(complaint.contains(&owner), "{complaint}");
    }
    assert_eq!(elsewhere.info(&volume)["image"]["lock_owner"], owner);
    images.rbd("rename disk renamed");
    let complaint = images.place.fails(5, &["attach", "rbd:attach/renamed", "--as", "nbd", "--key-file", "key"]);
    assert!(complaint.contains("'disk'"), "{complaint}");
    images.place.ok(&["detach", &volume]);
    assert!(images.place.list().is_empty());

    let uri = images.place.ok(&["attach", "rbd:attach/renamed", "--as", "nbd", "--key-file", "key", "--read-only"]);
    assert_eq!(nbd(&uri, "print(h.pread(4096, 8192) == b'x' * 4096, h.is_read_only())"), "True True\n");
    // Readers may be many.
    let uri = elsewhere.ok(&["attach", "rbd:attach/renamed", "--as", "nbd", "--key-file", "key", "--read-only"]);
    assert_eq!(nbd(&uri, "print(h.pread(4096, 8192) == b'x' * 4096)"), "True\n");
}

/// The cluster would notice after half a minute. We know at once, of our own daemons.
#[test]
fn a_killed_daemons_lock_is_in_nobodys_way() {
    let images = Images::new("attach-killed");
    let volume = images.volume("disk", "32M");
    let owner = || images.place.info(&volume)["image"]["lock_owner"].clone();
    for clear in [&["attach", &volume, "--as", "nbd", "--key-file", "key"][..], &["detach", "disk"]] {
        let uri = images.attach(&volume);
        nbd(&uri, "h.pwrite(b'kept' * 1024, 4096)\nh.flush()");
        let dead = owner();
        kill(&images.place, "disk");
        assert_eq!(owner(), dead);
        images.place.ok(clear);
        // Not by waiting: whoever is dead is shut out, and that is not so of a lock that the cluster let go.
        let blocked = images.cluster.run("ceph osd blocklist ls");
        assert!(blocked.contains(dead.as_str().unwrap()), "{dead}: {blocked}");
        assert_ne!(owner(), dead);
        if clear[0] == "detach" {
            images.attach(&volume);
        }
        let uri = images.place.list()[0]["address"].as_str().unwrap().to_owned();
        assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 4096)))"), "b'kept'\n");
        images.place.ok(&["detach", "disk"]);
    }
}

/// A lock that somebody else took over since is not broken, whoever died before.
#[test]
fn a_dead_daemon_is_no_reason_to_break_anothers_lock() {
    let images = Images::new("attach-taken");
    let volume = images.volume("disk", "8M");
    images.attach(&volume);
    let dead = images.place.info(&volume)["image"]["lock_owner"].as_str().unwrap().to_owned();
    kill(&images.place, "disk");
    images.cluster.block(&dead);
    let elsewhere = place_in(images.cluster);
    elsewhere.file("key", b"secret");
    // The one who died is shut out, so that the lock can be had at once or after the cluster noticed.
    let uri = elsewhere.ok(&["attach", &volume, "--as", "nbd", "--key-file", "key"]);
    images.place.fails(5, &["attach", &volume, "--as", "nbd", "--key-file", "key"]);
    nbd(&uri, "h.pwrite(b'y' * 4096, 0)\nh.flush()");
}

#[test]
fn passphrases_are_asked_for_at_the_terminal_and_a_wrong_one_leaves_nothing() {
    let images = Images::new("attach-typed");
    let volume = images.volume("disk", "8M");
    let mut typist = Typist::start(images.place.sealdisk(&["attach", &volume, "--as", "nbd"]));
    typist.sees(&format!("Passphrase for {volume}: "));
    typist.types(b"wrong\n");
    typist.sees("No key slot opens");
    typist.sees(&format!("Passphrase for {volume}: "));
    typist.types(b"secret\n");
    let (screen, status) = typist.ends();
    assert!(status.success() && screen.contains("nbd+unix"), "{screen}");
    images.place.ok(&["detach", "disk"]);

    let mut typist = Typist::start(images.place.sealdisk(&["attach", &volume, "--as", "nbd"]));
    typist.sees("Passphrase");
    typist.types(b"\x03");
    let (_, status) = typist.ends();
    assert!(status.signal() == Some(2) || status.code().is_some_and(|code| code != 0), "{status}");
    images.place.fails(2, &["attach", &volume, "--as", "nbd", "--key-file", "other"]);
    assert!(images.place.list().is_empty());
    assert!(images.place.info(&volume)["image"]["lock_owner"].is_null());
}

#[test]
fn an_attached_image_keeps_to_its_memory() {
    let images = Images::new("attach-memory");
    let volume = images.volume("disk", "512M");
    let least = images.place.fails(1, &["attach", &volume, "--as", "nbd", "--key-file", "key", "--memory", "100M"]);
    assert!(least.contains("208 MiB is the least"), "{least}");
    let uri = images.place.ok(&["attach", &volume, "--as", "nbd", "--key-file", "key", "--memory", "208M"]);
    nbd(&uri, "import os\nb = os.urandom(4 << 20)\nfor i in range(120): h.pwrite(b, i << 22)\nh.flush()");
    nbd(&uri, "for i in range(480): h.pread(1 << 20, i << 20)");
    let peak = peak_memory(images.place.pid());
    assert!(peak < 208, "{peak} MiB");
}

#[test]
fn credentials_are_given_as_ceph_people_give_them() {
    let cluster = Cluster::shared();
    let images = Images::new("attach-guest");
    let volume = images.volume("disk", "8M");
    let keyring = cluster.create_user("tenant", &[("mon", "profile rbd"), ("osd", "profile rbd pool=attach-guest")]);
    let (conf, keyring) = (cluster.conf(), keyring);
    let options = ["--conf", conf.to_str().unwrap(), "--id", "tenant", "--keyring", keyring.to_str().unwrap()];
    // Without any help from the environment.
    let place = Place::new().with("CEPH_CONF", "/nonexistent");
    place.file("key", b"secret");
    for command in [
        &["attach", &volume, "--as", "nbd", "--key-file", "key"][..],
        &["info", &volume],
        &["key", "list", &volume],
        &["detach", &volume],
        &["check", &volume, "--key-file", "key"],
    ] {
        place.ok(&[command, &options].concat());
    }
    let place = place_in(cluster).with("CEPH_ARGS", "--id tenant");
    place.ok(&["info", &volume]);
    cluster.create_pool("attach-not-theirs", support::ceph::Pool::Replicated(2));
    let refused = place.fails(2, &["info", "rbd:attach-not-theirs/disk"]);
    assert!(refused.contains("attach-not-theirs"), "{refused}");
}
