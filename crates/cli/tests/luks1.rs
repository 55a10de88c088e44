//! LUKS1 volumes in files: QEMU makes them, and both read and write the same bytes.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use harness::{CHEAP, Place, cryptsetup, nbd};
use support::programs::{succeed, tool};

#[test]
fn a_volume_of_qemus_is_attached_checked_and_its_keys_are_managed() {
    let place = Place::new();
    let key = place.file("key", b"secret");
    place.file("other", b"another secret");
    let volume = place.path("old.img");
    let secret = format!("secret,id=key,file={}", key.display());
    succeed(
        tool("qemu-img", "qemu-utils")
            .args(["create", "-q", "--object", &secret, "-f", "luks"])
            .args(["-o", "key-secret=key,cipher-alg=aes-256,cipher-mode=xts,ivgen-alg=plain64,iter-time=10"])
            .arg(&volume)
            .arg("8704K"),
    );
    let qemu = |command: &str| {
        let options = format!("driver=luks,key-secret=key,file.filename={}", volume.display());
        let said =
            succeed(tool("qemu-io", "qemu-utils").args(["--object", &secret, "-c", command, "--image-opts", &options]));
        assert!(!said.contains("failed"), "{said}");
    };
    qemu("write -P 0x5a 512 3072");
    let info = place.info("old.img");
    assert_eq!((&info["kind"], &info["sector_size"], &info["size"]), (&"luks1".into(), &512.into(), &8_912_896.into()));
    let uri = place.ok(&["attach", "old.img", "--as", "nbd", "--key-file", "key"]);
    assert_eq!(nbd(&uri, "print(h.pread(3072, 512) == b'Z' * 3072)"), "True\n");
    nbd(&uri, "h.pwrite(b'\\xa5' * 1536, 8912896 - 1536)\nh.flush()");
    place.ok(&["detach", "old"]);
    qemu("read -P 0xa5 8911360 1536");
    place.ok(&["check", "old.img", "--key-file", "key"]);

    assert_eq!(
        place.ok(&[&["key", "add", "old.img", "--key-file", "key", "--new-key-file", "other"], &CHEAP[..]].concat()),
        "Added in key slot 1.\n"
    );
    succeed(cryptsetup(&["open", "--test-passphrase", "--key-file"]).arg(place.path("other")).arg(&volume));
    place.ok(&["key", "remove", "old.img", "--key-file", "key"]);
    place.fails(2, &["check", "old.img", "--key-file", "key"]);
    assert!(place.ok(&["key", "list", "old.img"]).contains("pbkdf2"));
    assert!(place.fails(1, &["key", "remove", "old.img", "--slot", "1"]).contains("last"));
    place.ok(&["header", "backup", "old.img", "saved"]);
    place.ok(&["erase", "old.img", "--force"]);
    place.ok(&["header", "restore", "old.img", "saved", "--force"]);
    place.ok(&["check", "old.img", "--key-file", "other"]);
}
