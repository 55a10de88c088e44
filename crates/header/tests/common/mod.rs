//! Volumes to try things on, and Debian's `cryptsetup` as the judge.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{FormatOptions, Header, Passphrase, Payload, Pbkdf};
use sealdisk_layout::{LayoutName, PlainPayload, SealedPayload};
use sealdisk_units::Lineage;
use tempfile::TempDir;
use zeroize::Zeroizing;

pub const OFFSET: u64 = 16 << 20;

pub fn passphrase(text: &str) -> Passphrase {
    Passphrase::new(Zeroizing::new(text.as_bytes().to_vec()))
}

pub fn sealed() -> Payload {
    Payload::Sealed(SealedPayload {
        cipher: CipherName::Aegis256,
        layout: LayoutName::Packed,
        fold: false,
        lineage: Lineage(*b"0123456789abcdef"),
        offset: OFFSET,
    })
}

pub fn plain() -> Payload {
    Payload::Plain(PlainPayload { offset: OFFSET, size: None, sector_size: 4096, iv_tweak: 0 })
}

pub fn options(payload: Payload) -> FormatOptions {
    FormatOptions { payload, label: None, pbkdf: Pbkdf::CHEAPEST }
}

/// A file with a header on it, gone when dropped.
pub struct Volume {
    folder: TempDir,
    pub key: VolumeKey,
}

impl Volume {
    /// An empty file of 20 MiB.
    pub fn empty() -> Self {
        let volume = Self { folder: tempfile::tempdir().unwrap(), key: VolumeKey::generate().unwrap() };
        std::fs::File::create(volume.path()).unwrap().set_len(20 << 20).unwrap();
        volume
    }

    /// A header for `payload` that the passphrase "first" opens.
    pub fn formatted(payload: Payload) -> Self {
        let volume = Self::empty();
        Header::format(&volume.path(), &options(payload), &volume.key, &passphrase("first")).unwrap();
        volume
    }

    pub fn path(&self) -> PathBuf {
        self.file("volume")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn header(&self) -> Header {
        Header::load(&self.path()).unwrap()
    }

    /// A key file with `text` in it, for cryptsetup.
    pub fn key_file(&self, text: &str) -> String {
        let path = self.file(&format!("key-{text}"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn assert_opens(&self, text: &str) {
        let key = self.header().unlock(&passphrase(text), None).unwrap();
        assert!(key.expose() == self.key.expose(), "another volume key came out");
    }

    pub fn assert_refuses(&self, text: &str) {
        let error = self.header().unlock(&passphrase(text), None).unwrap_err();
        assert_eq!(*error.kind(), sealdisk_header::HeaderErrorKind::WrongPassphrase, "{error}");
    }
}

/// Runs Debian's cryptsetup with `input` on its standard input.
pub fn cryptsetup_with(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new("cryptsetup")
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cryptsetup must be installed: Debian package cryptsetup-bin");
    // A command that asks for nothing may be gone before it has read anything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs cryptsetup, which must succeed; returns its output.
pub fn cryptsetup(arguments: &[&str]) -> String {
    let output = cryptsetup_with(arguments, "");
    assert!(output.status.success(), "cryptsetup {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs cryptsetup, which must fail; returns its exit code and what it said.
pub fn cryptsetup_refuses(arguments: &[&str]) -> (i32, String) {
    let output = cryptsetup_with(arguments, "");
    assert!(
        !output.status.success(),
        "cryptsetup {arguments:?} succeeded: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Arguments that make cryptsetup's new key slots cheap.
pub const CHEAP: [&str; 3] = ["--pbkdf-memory=32", "--pbkdf-parallel=1", "--pbkdf-force-iterations=4"];

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
