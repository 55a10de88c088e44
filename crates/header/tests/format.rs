//! What can be formatted, and where.
#![allow(clippy::unwrap_used, reason = "a failed expectation in a test is a failed test")]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{Header, HeaderErrorKind, LastSlot, Passphrase, Payload, Pbkdf};
use sealdisk_layout::{LayoutName, PlainPayload, SealedPayload};
use sealdisk_units::Lineage;
use zeroize::Zeroizing;

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_written() {
    let volume = Volume::empty();
    let device = volume.path();
    let short = VolumeKey::new(Zeroizing::new([1; 32].into())).unwrap();
    let with = |change: &dyn Fn(&mut SealedPayload)| {
        let Payload::Sealed(mut payload) = sealed() else { unreachable!() };
        change(&mut payload);
        options(Payload::Sealed(payload))
    };
    let plain =
        |offset, size, sector_size| options(Payload::Plain(PlainPayload { offset, size, sector_size, iv_tweak: 0 }));
    let label = |label: &str| sealdisk_header::FormatOptions { label: Some(label.to_owned()), ..options(sealed()) };
    let refused = [
        (options(sealed()), &short),
        (with(&|p| p.offset = 0), &volume.key),
        (with(&|p| p.offset += 4096), &volume.key),
        (with(&|p| p.layout = LayoutName::LengthPreserving), &volume.key),
        (with(&|p| (p.cipher, p.layout) = (CipherName::Aes256Xts, LayoutName::LengthPreserving)), &volume.key),
        (plain(OFFSET + 512, None, 4096), &volume.key),
        (plain(OFFSET, None, 8192), &volume.key),
        (plain(OFFSET, Some(0), 512), &volume.key),
        (plain(OFFSET, Some(4096 + 512), 4096), &volume.key),
        (label(""), &volume.key),
        (label(&"x".repeat(48)), &volume.key),
    ];
    for (options, key) in refused {
        let error = Header::format(&device, &options, key, &passphrase("first")).unwrap_err();
        assert_eq!(*error.kind(), HeaderErrorKind::Options, "{options:?}: {error}");
    }
    assert!(std::fs::read(&device).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn every_sealed_cipher_has_a_header() {
    for cipher in CipherName::ALL.into_iter().filter(|cipher| cipher.seal_len() > 0) {
        for (fold, offset) in [(false, OFFSET), (true, 4 << 20)] {
            let lineage = Lineage([offset.to_le_bytes()[2]; 16]);
            let payload = SealedPayload { cipher, layout: LayoutName::Packed, fold, lineage, offset };
            let volume = Volume::formatted(Payload::Sealed(payload));
            assert_eq!(*volume.header().payload(), Payload::Sealed(payload));
            volume.assert_opens("first");
        }
    }
}

#[test]
fn a_file_grows_to_hold_its_header_and_no_further() {
    for len in [0, 4096, OFFSET - 4096] {
        let volume = Volume::empty();
        File::create(volume.path()).unwrap().set_len(len).unwrap();
        Header::format(&volume.path(), &options(sealed()), &volume.key, &passphrase("first")).unwrap();
        assert_eq!(std::fs::metadata(volume.path()).unwrap().len(), OFFSET);
        volume.assert_opens("first");
    }
}

#[test]
fn what_is_neither_file_nor_block_device_is_refused() {
    let volume = Volume::empty();
    for device in [volume.file("nowhere"), volume.path().parent().unwrap().to_owned(), "/dev/null".into()] {
        let error = Header::format(&device, &options(sealed()), &volume.key, &passphrase("first")).unwrap_err();
        assert_eq!(*error.kind(), HeaderErrorKind::Device, "{error}");
    }
    assert!(!volume.file("nowhere").exists());
}

#[test]
fn formatting_again_leaves_no_way_in_for_the_old_passphrase() {
    let volume = Volume::formatted(sealed());
    let before = volume.header();
    let other = VolumeKey::generate().unwrap();
    Header::format(&volume.path(), &options(plain()), &other, &passphrase("second")).unwrap();
    volume.assert_refuses("first");
    assert_eq!(*before.unlock(&passphrase("second"), None).unwrap_err().kind(), HeaderErrorKind::Changed);
    assert!(volume.header().unlock(&passphrase("second"), None).unwrap().expose() == other.expose());
}

#[test]
fn a_wrong_passphrase_changes_nothing() {
    let volume = Volume::formatted(sealed());
    let before = std::fs::read(volume.path()).unwrap();
    let (wrong, new) = (passphrase("wrong"), passphrase("new"));
    let mut header = volume.header();
    let errors = [
        header.unlock(&wrong, None).unwrap_err(),
        header.unlock(&wrong, Some(0)).unwrap_err(),
        header.add_key(&wrong, &new, None, Pbkdf::CHEAPEST).unwrap_err(),
        header.change_key(&wrong, &new, None, Pbkdf::CHEAPEST).unwrap_err(),
        header.change_key(&wrong, &new, Some(0), Pbkdf::CHEAPEST).unwrap_err(),
        header.remove_key(&wrong, LastSlot::Remove).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(*error.kind(), HeaderErrorKind::WrongPassphrase, "{error}");
        assert!(!error.to_string().contains("wrong"), "the passphrase is in the message");
    }
    let missing = header.change_key(&passphrase("first"), &new, Some(3), Pbkdf::CHEAPEST).unwrap_err();
    assert_eq!(*missing.kind(), HeaderErrorKind::NoSuchSlot);
    assert!(std::fs::read(volume.path()).unwrap() == before);
}

/// A passphrase is bytes, as in `cryptsetup --key-file`: zeros and line ends are part of it, and it may be long.
#[test]
fn any_bytes_are_a_passphrase() {
    for bytes in [b"\0".to_vec(), b"line\n".to_vec(), (0..=255).cycle().take(100_000).collect()] {
        let volume = Volume::empty();
        let key_file = volume.file("key");
        std::fs::write(&key_file, &bytes).unwrap();
        let given = Passphrase::new(Zeroizing::new(bytes));
        let header = Header::format(&volume.path(), &options(sealed()), &volume.key, &given).unwrap();
        assert!(header.unlock(&given, None).is_ok());
        cryptsetup(&["open", "--test-passphrase", text(&volume.path()), "--key-file", text(&key_file)]);
    }
}

/// For a volume on Ceph the header is worked on in an anonymous file.
#[test]
fn an_anonymous_file_holds_a_header() {
    let file: File = rustix::fs::memfd_create("header", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let key = VolumeKey::generate().unwrap();
    let mut header = Header::format(&path, &options(sealed()), &key, &passphrase("first")).unwrap();
    header.change_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST).unwrap();
    assert!(Header::load(&path).unwrap().unlock(&passphrase("second"), None).unwrap().expose() == key.expose());
}

struct Loop(String);

impl Loop {
    fn on(file: &Path) -> Self {
        let losetup = Command::new("losetup").args(["--find", "--show", "--sector-size", "4096", text(file)]).output();
        let output = losetup.expect("losetup must be installed: Debian package mount");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "a loop device is needed for this test, and root to make it: {said}");
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_holds_a_header() {
    let volume = Volume::empty();
    let device = Loop::on(&volume.path());
    let path = Path::new(&device.0);
    let mut header = Header::format(path, &options(sealed()), &volume.key, &passphrase("first")).unwrap();
    header.change_key(&passphrase("first"), &passphrase("second"), None, Pbkdf::CHEAPEST).unwrap();
    assert_eq!(header.add_key(&passphrase("second"), &passphrase("third"), None, Pbkdf::CHEAPEST).unwrap(), 1);
    cryptsetup(&["luksKillSlot", "--batch-mode", &device.0, "1"]);
    assert!(Header::load(path).unwrap().unlock(&passphrase("second"), None).unwrap().expose() == volume.key.expose());
    drop(device);
    volume.assert_opens("second");
}

/// Who waits for whom is libcryptsetup's own lock; nobody sees half a header.
#[test]
fn threads_and_processes_take_turns() {
    let volume = Volume::formatted(sealed());
    let device = volume.path();
    let (first, second) = (volume.key_file("first"), volume.key_file("second"));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..5).for_each(|_| volume.assert_opens("first")));
        }
        scope.spawn(|| {
            for _ in 0..3 {
                let mut add = vec!["luksAddKey", text(&device), &second, "--key-file", &first];
                add.extend(CHEAP);
                cryptsetup(&add);
                cryptsetup(&["luksRemoveKey", text(&device), &second]);
            }
        });
    });
    assert_eq!(volume.header().key_slots().len(), 1);
}
