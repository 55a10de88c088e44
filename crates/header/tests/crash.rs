//! A crash at any moment of a header's change leaves a header that opens.
//!
//! Each operation runs once, in a process of its own under strace, which gives the sequence of its writes and syncs. From
//! that, states that a crash may leave are made: everything that was synced, and any subset of the 512-byte pieces of
//! what was not, in any order. In each of them the header is loaded and opened.
//!
//! `SEALDISK_CRASH_STATES` sets the number of states for each operation, `SEALDISK_CRASH_SEED` repeats a run.
#![allow(clippy::unwrap_used, reason = "a failed expectation in a test is a failed test")]

mod common;
#[path = "crash/states.rs"]
mod states;
#[path = "crash/trace.rs"]
mod trace;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{Header, HeaderErrorKind, LastSlot, Payload, Pbkdf};
use sealdisk_layout::{LayoutName, SealedPayload};
use sealdisk_units::Lineage;
use trace::Epoch;
use zeroize::Zeroizing;

const OPERATION: &str = "SEALDISK_TRACED_OPERATION";
const DEVICE: &str = "SEALDISK_TRACED_DEVICE";
const OFFSET: u64 = 4 << 20;

fn payload() -> Payload {
    Payload::Sealed(SealedPayload {
        cipher: CipherName::Aegis256,
        layout: LayoutName::Packed,
        fold: false,
        lineage: Lineage([7; 16]),
        offset: OFFSET,
    })
}

fn key() -> VolumeKey {
    VolumeKey::new(Zeroizing::new((0..64).collect())).unwrap()
}

fn format(device: &Path) {
    Header::format(device, &options(payload()), &key(), &passphrase("old")).unwrap();
}

/// Not a test: what the tests below run under strace, as `--exact operation_under_trace` of this very program.
#[test]
fn operation_under_trace() {
    let (Ok(operation), Some(device)) = (std::env::var(OPERATION), std::env::var_os(DEVICE)) else {
        return;
    };
    let device = Path::new(&device);
    let (old, new) = (passphrase("old"), passphrase("new"));
    match operation.as_str() {
        "format" => format(device),
        "change" => drop(Header::load(device).unwrap().change_key(&old, &new, None, Pbkdf::CHEAPEST).unwrap()),
        "add" => drop(Header::load(device).unwrap().add_key(&old, &new, None, Pbkdf::CHEAPEST).unwrap()),
        "remove" => drop(Header::load(device).unwrap().remove_key(&new, LastSlot::Keep).unwrap()),
        other => panic!("no operation {other}"),
    }
}

struct Recording {
    before: Vec<u8>,
    epochs: Vec<Epoch>,
}

/// Runs `operation` on a file that `prepare` has made.
fn record(operation: &str, prepare: impl FnOnce(&Path)) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("volume");
    File::create(&device).unwrap().set_len(OFFSET + (1 << 20)).unwrap();
    prepare(&device);
    let before = std::fs::read(&device).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "operation_under_trace"]).env(OPERATION, operation).env(DEVICE, &device);
    let epochs = trace::record(command, &device, &folder.path().join("log"));

    // The recording explains every byte of the outcome, and nothing was left without a sync.
    let mut replayed = before.clone();
    for write in epochs.iter().flatten() {
        replayed[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
    }
    assert!(replayed == std::fs::read(&device).unwrap(), "the recording of {operation} is not what happened");
    assert!(epochs.last().unwrap().is_empty(), "{operation} returned with unsynced writes");
    Recording { before, epochs }
}

/// An anonymous file: libcryptsetup's syncs cost nothing on it.
struct Image(File);

impl Image {
    fn new(bytes: &[u8]) -> Self {
        let file: OwnedFd = rustix::fs::memfd_create("state", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.write_all_at(bytes, 0).unwrap();
        Self(file)
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// What is true of a state; panics with the reason where it must not be.
fn enumerate(operation: &str, prepare: impl FnOnce(&Path), check: impl Fn(&Path)) {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse::<u64>().unwrap());
    let states = number("SEALDISK_CRASH_STATES", 1500);
    let seed = number("SEALDISK_CRASH_SEED", rand::random());
    println!("{operation}: {states} states, SEALDISK_CRASH_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);

    let recording = record(operation, prepare);
    let moments: Vec<usize> =
        (0..recording.epochs.len()).filter(|&epoch| !recording.epochs[epoch].is_empty()).collect();
    assert!(!moments.is_empty(), "{operation} wrote nothing");
    // What was synced before each epoch.
    let mut synced = vec![recording.before.clone()];
    for epoch in &recording.epochs {
        let mut next = synced.last().unwrap().clone();
        for piece in states::pieces(epoch) {
            next[piece.offset..piece.offset + piece.bytes.len()].copy_from_slice(piece.bytes);
        }
        synced.push(next);
    }
    for state in 0..states {
        let moment = moments[random.random_range(0..moments.len())];
        let image = Image::new(&synced[moment]);
        let survivors = states::survivors(&recording.epochs[moment], &mut random);
        for piece in &survivors {
            image.0.write_all_at(piece.bytes, piece.offset as u64).unwrap();
        }
        let told = format!("{operation}, seed {seed}, state {state}: {} pieces of epoch {moment}", survivors.len());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&image.path())));
        assert!(outcome.is_ok(), "{told}");
    }
    // Once everything is durable, only the outcome is left.
    check(&Image::new(synced.last().unwrap()).path());
}

/// Whether the passphrase opens the volume, with the right key.
fn opens(device: &Path, text: &str) -> bool {
    let header = Header::load(device).unwrap();
    assert_eq!(*header.payload(), payload());
    match header.unlock(&passphrase(text), None) {
        Ok(opened) => {
            assert!(opened.expose() == key().expose(), "another volume key");
            true
        }
        Err(error) => {
            assert_eq!(*error.kind(), HeaderErrorKind::WrongPassphrase, "{error}");
            false
        }
    }
}

#[test]
fn a_changed_key_is_the_old_or_the_new_one() {
    enumerate("change", format, |device| assert!(opens(device, "old") || opens(device, "new"), "neither key opens"));
}

#[test]
fn adding_a_key_never_loses_the_existing_one() {
    enumerate("add", format, |device| assert!(opens(device, "old"), "the existing key does not open"));
}

#[test]
fn removing_a_key_never_loses_another_one() {
    let prepare = |device: &Path| {
        format(device);
        Header::load(device).unwrap().add_key(&passphrase("old"), &passphrase("new"), None, Pbkdf::CHEAPEST).unwrap();
    };
    enumerate("remove", prepare, |device| assert!(opens(device, "old"), "the other key does not open"));
}

/// Half a format opens with nothing, and above all not as an ordinary LUKS2 volume.
#[test]
fn a_format_is_whole_or_opens_with_nothing() {
    enumerate(
        "format",
        |_| (),
        |device| {
            let Ok(header) = Header::load(device) else { return };
            match header.unlock(&passphrase("old"), None) {
                Ok(opened) => {
                    assert_eq!(*header.payload(), payload());
                    assert!(opened.expose() == key().expose(), "another volume key");
                }
                Err(error) => assert!(
                    matches!(error.kind(), HeaderErrorKind::Erased | HeaderErrorKind::WrongPassphrase),
                    "{error}"
                ),
            }
        },
    );
}
