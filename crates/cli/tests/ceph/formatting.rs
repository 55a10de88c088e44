//! Making volumes on images, looking at them, and changing their size.

use std::fs;

use serde_json::json;
use support::ceph::Pool as PoolKind;
use support::programs::succeed;

use crate::Images;
use crate::harness::{CHEAP, nbd};

#[test]
fn an_image_is_made_with_what_a_volume_needs_and_no_more() {
    let images = Images::new("format-new");
    let volume = images.volume("disk", "64M");
    let made = images.cluster.ask("rbd info format-new/disk");
    assert_eq!(made["features"], json!(["layering", "exclusive-lock", "deep-flatten"]));
    assert_eq!(made["order"], 22);
    let info = images.place.info(&volume);
    assert_eq!((&info["size"], &info["kind"], &info["clean"]), (&json!(64 << 20), &json!("sealed"), &json!(true)));
    assert_eq!(info["image"]["id"], made["id"]);
    assert_eq!((&info["image"]["lock_owner"], &info["image"]["snapshots"]), (&json!(null), &json!([])));
    assert_eq!(info["image"]["cluster"], images.cluster.run("ceph fsid").trim());
    // Of the header's 16 MiB one object exists, and beside it superblock and map.
    let objects = images.cluster.run("rados --pool format-new ls");
    assert!(objects.matches("rbd_data").count() <= 3, "{objects}");
    assert!(images.place.ok(&["info", &volume]).contains("Locked by:  nobody"));

    // A file may be called like an image.
    images.place.ok(&[&["format", "./rbd:odd", "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat());
    assert!(images.place.path("rbd:odd").is_file());
}

#[test]
fn data_may_lie_in_an_erasure_coded_pool_and_images_in_namespaces() {
    let images = Images::new("format-pools");
    images.cluster.create_pool("format-parts", PoolKind::ErasureCoded);
    images.rbd("namespace create --namespace tenant");
    let volume = "rbd:format-pools/tenant/disk";
    let format = ["format", volume, "--size", "32M", "--data-pool", "format-parts", "--key-file", "key"];
    images.place.ok(&[&format[..], &CHEAP].concat());
    assert_eq!(images.cluster.ask("rbd info format-pools/tenant/disk")["data_pool"], "format-parts");
    let uri = images.attach(volume);
    nbd(&uri, "h.pwrite(b'in parts' * 512, 8192)\nh.flush()");
    images.place.ok(&["key", "list", volume]);
    images.place.ok(&["detach", volume]);
    images.place.ok(&["check", volume, "--key-file", "key"]);
    assert_eq!(images.place.info(volume)["image"]["namespace"], "tenant");
}

#[test]
fn what_an_image_holds_is_not_overwritten_unasked() {
    let images = Images::new("format-old");
    let file_system = images.place.path("ext4");
    fs::File::create(&file_system).unwrap().set_len(64 << 20).unwrap();
    succeed(support::programs::tool("mkfs.ext4", "e2fsprogs").arg("-q").arg(&file_system));
    let import = "import --no-progress --image-feature layering,exclusive-lock";
    images.rbd(&format!("{import} {} format-old/disk", file_system.display()));
    let volume = images.name("disk");
    let format = [&["format", &volume, "--key-file", "key"], &CHEAP[..]].concat();
    let complaint = images.place.fails(4, &format);
    assert!(complaint.contains("ext4") && complaint.contains("--force"), "{complaint}");
    images.place.ok(&[&format[..], &["--force"]].concat());
    // As much as fits, and nothing of the file system.
    let info = images.place.info(&volume);
    let size = info["size"].as_u64().unwrap();
    assert!(size > 32 << 20 && size < 48 << 20, "{size}");
    assert_eq!(images.cluster.ask("rbd info format-old/disk")["size"], 64 << 20);
    let again = images.place.fails(4, &format);
    assert!(again.contains("LUKS"), "{again}");
    images.place.ok(&["check", &volume, "--key-file", "key"]);

    let complaint = images.place.fails(4, &[&format[..], &["--force", "--size", "60M"]].concat());
    assert!(complaint.contains("it can hold a volume of"), "{complaint}");
}

#[test]
fn an_image_that_does_not_become_a_volume_is_removed_again() {
    let images = Images::new("format-fails");
    let volume = images.name("disk");
    let fails = |code: i32, more: &[&str]| {
        let format = [&["format", &volume, "--key-file", "key"], &CHEAP[..], more].concat();
        let complaint = images.place.fails(code, &format);
        assert_eq!(images.rbd("ls"), "", "{more:?}");
        complaint
    };
    assert!(fails(1, &[]).contains("--size"));
    assert!(fails(1, &["--size", "8M", "--label", ""]).contains("label"));
    assert!(fails(4, &["--size", "8M", "--data-pool", "nowhere"]).contains("nowhere"));
    // Its place is taken once there is an image: what was made is what is removed.
    images.cluster.declare_full("format-fails");
    let complaint = fails(1, &["--size", "64M"]);
    assert!(complaint.contains("full") || complaint.contains("uota"), "{complaint}");
    images.cluster.make_room("format-fails");
    images.volume("disk", "64M");
}

#[test]
fn images_that_cannot_be_volumes_are_refused_with_what_helps() {
    let images = Images::new("format-features");
    images.rbd("create --size 64M --image-feature layering,exclusive-lock,object-map,fast-diff mapped");
    images.rbd("create --size 64M --image-feature layering shared");
    for (image, advice) in
        [("mapped", "rbd feature disable format-features/mapped fast-diff object-map"), ("shared", "exclusive-lock")]
    {
        let volume = images.name(image);
        let format = [&["format", &volume, "--key-file", "key"], &CHEAP[..]].concat();
        let complaint = images.place.fails(4, &format);
        assert!(complaint.contains(advice), "{complaint}");
    }
}

#[test]
fn growing_and_shrinking_take_the_image_along() {
    let images = Images::new("resize");
    for (image, more) in [("sealed", &[][..]), ("plain", &["--cipher", "aes-256-xts"])] {
        let volume = images.name(image);
        let format = ["format", &volume, "--size", "32M", "--key-file", "key"];
        images.place.ok(&[&format[..], &CHEAP, more].concat());
        let uri = images.attach(&volume);
        nbd(&uri, "h.pwrite(b'kept' * 1024, 16 << 20)");
        let busy = images.place.fails(5, &["resize", &volume, "--size", "64M", "--key-file", "key"]);
        assert!(busy.contains(image), "{busy}");
        images.place.ok(&["detach", image]);
        let before = images.cluster.ask(&format!("rbd info resize/{image}"))["size"].as_u64().unwrap();

        images.place.ok(&["resize", &volume, "--size", "256M", "--key-file", "key"]);
        let grown = images.cluster.ask(&format!("rbd info resize/{image}"))["size"].as_u64().unwrap();
        assert!(grown >= before + (224 << 20));
        assert_eq!(images.place.info(&volume)["size"], 256 << 20);
        let uri = images.attach(&volume);
        assert_eq!(nbd(&uri, "print(h.get_size(), h.pread(4096, 16 << 20) == b'kept' * 1024)"), "268435456 True\n");
        nbd(&uri, "h.pwrite(b'lost' * 1024, 255 << 20)");
        images.place.ok(&["detach", image]);

        let shrink = ["resize", &volume, "--size", "24M", "--key-file", "key"];
        assert!(images.place.fails(1, &shrink).contains("--force"));
        images.place.ok(&[&shrink[..], &["--force"]].concat());
        let shrunk = images.cluster.ask(&format!("rbd info resize/{image}"))["size"].as_u64().unwrap();
        assert!(shrunk < before, "{shrunk}");
        let uri = images.attach(&volume);
        assert_eq!(nbd(&uri, "print(h.get_size(), h.pread(4096, 16 << 20) == b'kept' * 1024)"), "25165824 True\n");
        images.place.ok(&["detach", image]);
        images.place.ok(&["check", &volume, "--key-file", "key"]);
    }
}
