//! What goes wrong on the way to an image is said in words that help.

use std::fs;

use support::ceph::{Cluster, Pool};
use support::programs::{succeed, tool};

use crate::harness::{CHEAP, Place, nbd};
use crate::{Images, kill, place_in};

#[test]
fn what_is_not_there_is_named() {
    let images = Images::new("refusals");
    let place = &images.place;
    for (arguments, code, words) in [
        (&["info", "rbd:nowhere/disk"][..], 4, "no pool nowhere"),
        (&["info", "rbd:refusals/none"], 4, "rbd ls refusals"),
        (&["info", "rbd:refusals/tenant/none"], 4, "none"),
        (&["attach", "rbd:refusals/none@s", "--key-file", "key"], 4, "none"),
        (&["info", "rbd:refusals/none", "--conf", "nowhere.conf"], 4, "nowhere.conf"),
        (&["info", "rbd:refusals/none", "--keyring", "nowhere.keyring"], 4, "nowhere.keyring"),
        (&["detach", "rbd:refusals/none"], 4, "not attached"),
        (&["format", "rbd:nowhere/disk", "--size", "8M", "--key-file", "key"], 4, "no pool nowhere"),
    ] {
        let complaint = place.fails(code, arguments);
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
        assert!(!complaint.contains("os error"), "{complaint}");
    }
    for name in ["rbd:", "rbd:disk", "rbd:a/b/c/d", "rbd:a/b@"] {
        let output = place.sealdisk(&["info", name]).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint.contains("rbd:POOL/IMAGE") && complaint.contains(&format!("./{name}")), "{complaint}");
    }
    images.rbd("create --size 64M --image-feature exclusive-lock empty");
    let complaint = place.fails(4, &["attach", "rbd:refusals/empty", "--key-file", "key"]);
    assert!(complaint.contains("rbd:refusals/empty") && complaint.contains("no intact LUKS header"), "{complaint}");
    let odd = place_in(images.cluster).with("CEPH_CONF", "/nonexistent/ceph.conf");
    let complaint = odd.fails(4, &["info", "rbd:refusals/empty"]);
    assert!(complaint.contains("CEPH_CONF"), "{complaint}");
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    let cluster = Cluster::shared();
    let images = Images::new("rights");
    let volume = images.volume("disk", "8M");
    cluster.create_user("looker", &[("mon", "profile rbd"), ("osd", "profile rbd-read-only pool=rights")]);
    cluster.create_user("stranger", &[("mon", "profile rbd")]);
    let place = &images.place;
    let attach = ["attach", &volume, "--as", "nbd", "--key-file", "key", "--id"];
    // Who may only read, reads.
    let uri = place.ok(&[&attach[..], &["looker", "--read-only"]].concat());
    assert_eq!(nbd(&uri, "print(len(h.pread(4096, 0)))"), "4096\n");
    place.ok(&["detach", "disk"]);
    place.ok(&["check", &volume, "--key-file", "key", "--id", "looker"]);
    place.ok(&["info", &volume, "--id", "looker"]);
    for (command, user) in [
        (&attach[..], "looker"),
        (&attach, "stranger"),
        (&["info", &volume, "--id"], "stranger"),
        (
            &[&["key", "add", &volume, "--key-file", "key", "--new-key-file", "other"], &CHEAP[..], &["--id"]].concat(),
            "looker",
        ),
        (&["snapshot", "create", "rbd:rights/disk@s", "--id"], "looker"),
    ] {
        let complaint = place.fails(2, &[command, &[user]].concat());
        assert!(complaint.contains(&format!("ceph auth caps client.{user}")), "{command:?}: {complaint}");
    }
    assert!(place.list().is_empty());

    let complaint = place.fails(2, &["info", &volume, "--id", "nobody"]);
    assert!(complaint.contains("client.nobody"), "{complaint}");
    let wrong = place.file("wrong.keyring", b"[client.looker]\n\tkey = AQBSdFhnAAAAABAAZJ8VGGyMOVsUc1Y8JuIfCw==\n");
    let complaint = place.fails(2, &["info", &volume, "--id", "looker", "--keyring", wrong.to_str().unwrap()]);
    assert!(complaint.contains("client.looker") && complaint.contains("ceph auth get"), "{complaint}");
}

/// What the documentation says a client needs is enough, for everything.
#[test]
fn the_documented_capabilities_are_enough() {
    let documentation = include_str!("../../../../docs/ceph.md");
    let cluster = Cluster::shared();
    cluster.create_pool("documented", Pool::Replicated(2));
    let line = documentation.lines().find(|line| line.contains("ceph auth get-or-create client.sealdisk")).unwrap();
    let capabilities: Vec<&str> = line.split('\'').collect();
    let [_, mon, _, osd, ..] = capabilities[..] else { panic!("{line}") };
    let osd = osd.replace("pool=volumes", "pool=documented");
    cluster.create_user("sealdisk", &[("mon", mon), ("osd", &osd)]);
    let place = place_in(cluster).with("CEPH_ARGS", "--id sealdisk");
    place.file("key", b"secret");
    place.file("other", b"another");
    let volume = "rbd:documented/disk";
    place.ok(&[&["format", volume, "--size", "32M", "--key-file", "key"], &CHEAP[..]].concat());
    place.ok(&["attach", volume, "--as", "nbd", "--key-file", "key"]);
    place.ok(&["snapshot", "create", "rbd:documented/disk@s"]);
    place.ok(&[&["key", "add", volume, "--key-file", "key", "--new-key-file", "other"], &CHEAP[..]].concat());
    // A lock of a daemon that died is broken, which is the monitor's business.
    kill(&place, "disk");
    place.ok(&["detach", "disk"]);
    place.ok(&["resize", volume, "--size", "64M", "--key-file", "other"]);
    place.ok(&["snapshot", "rollback", "rbd:documented/disk@s", "--force"]);
    place.ok(&["snapshot", "remove", "rbd:documented/disk@s"]);
    place.ok(&["check", volume, "--key-file", "key"]);
    place.ok(&["erase", volume, "--force"]);
}

/// Where Ceph's libraries cannot be found, everything else goes on.
#[test]
fn a_machine_without_ceph_does_the_rest_and_is_told_what_to_install() {
    let place = Place::new();
    let hide = |arguments: &[&str]| {
        // In a mount namespace of its own, nothing is where the libraries were.
        let libraries: Vec<String> = ["librados.so.2", "librbd.so.1"].iter().map(|name| library(name)).collect();
        let hide = libraries.iter().map(|library| format!("mount --bind /dev/null {library} && "));
        let script = format!("{}exec \"$@\"", hide.collect::<String>());
        let sealdisk = place.sealdisk(arguments);
        let mut command = tool("unshare", "util-linux");
        command.args(["--mount", "--map-root-user", "--", "sh", "-c", &script, "sh"]).arg(sealdisk.get_program());
        command.args(arguments).current_dir(place.path(""));
        command.envs(sealdisk.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    };
    place.file("key", b"secret");
    succeed(&mut hide(&[&["format", "local.vol", "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat()));
    succeed(&mut hide(&["check", "local.vol", "--key-file", "key"]));
    succeed(&mut hide(&["attach", "local.vol", "--as", "nbd", "--key-file", "key"]));
    succeed(&mut hide(&["detach", "local"]));
    for arguments in [
        &["info", "rbd:pool/image"][..],
        &["attach", "rbd:pool/image", "--key-file", "key"],
        &["format", "rbd:pool/image", "--size", "8M", "--key-file", "key"],
        &["snapshot", "list", "rbd:pool/image"],
    ] {
        let output = hide(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{complaint}");
        assert!(complaint.contains("install the Debian package librados2"), "{complaint}");
    }
}

/// Where the loader finds a library: a path without symbolic links.
fn library(name: &str) -> String {
    let known = succeed(tool("ldconfig", "libc-bin").arg("-p"));
    let line = known.lines().find(|line| line.trim_start().starts_with(name)).expect("it is installed");
    let path = line.rsplit("=> ").next().unwrap();
    fs::canonicalize(path).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn an_image_removed_under_a_reader_is_an_error_and_no_harm() {
    let images = Images::new("removed");
    let volume = images.volume("disk", "32M");
    let uri = images.attach(&volume);
    nbd(&uri, "h.pwrite(b'x' * (8 << 20), 0)\nh.flush()");
    // While it is attached for writing it cannot be removed.
    let refused = support::programs::run(images.cluster.program("rbd").args(["rm", "--no-progress", "removed/disk"]));
    assert!(!refused.status.success(), "{refused:?}");
    images.place.ok(&["detach", "disk"]);
    let uri = images.place.ok(&["attach", &volume, "--as", "nbd", "--key-file", "key", "--read-only"]);
    images.rbd("rm --no-progress disk");
    // What is gone is not zeros.
    let read = "try:\n    h.pread(4096, 4 << 20)\n    print('read')\nexcept nbd.Error as error:\n    print('refused')";
    assert_eq!(nbd(&uri, read), "refused\n");
    assert_ne!(images.place.list()[0]["state"], "dead");
    images.place.ok(&["detach", "disk"]);
    images.place.fails(4, &["attach", &volume, "--as", "nbd", "--key-file", "key", "--read-only"]);
}
