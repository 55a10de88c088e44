//! Files and block devices: found, opened and locked.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use sealdisk_store::{FileStore, OpenMode};

use crate::failure::{Failure, Kind};

/// Opens and locks a file or block device.
pub fn open(path: &Path, mode: OpenMode) -> Result<FileStore, Failure> {
    FileStore::open(path, mode).map_err(|error| match error.source.kind() {
        io::ErrorKind::ResourceBusy => in_use(path),
        _ => Failure::path(path, &error.source),
    })
}

/// Whether it is a block device.
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// The absolute path of an existing file or block device.
pub fn locate(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let path = path.canonicalize().map_err(|e| Failure::path(path, &e))?;
    let kind = fs::metadata(&path).map_err(|e| Failure::path(&path, &e))?.file_type();
    if kind.is_file() || kind.is_block_device() {
        Ok(path)
    } else {
        Err(Failure::device(format_args!("{shown} is neither a regular file nor a block device")))
    }
}

/// What to say when the lock is taken and the registry of this user does not know by whom.
fn in_use(path: &Path) -> Failure {
    let advice = match is_device(path) {
        true => "it is mounted, part of another device, or attached by another user",
        false => "another user has attached it, or another sealdisk command is working on it",
    };
    Failure::new(Kind::Busy, format_args!("{} is in use: {advice}", path.display()))
}

/// Refuses a file that lies under a loop device: the kernel does not lock it.
pub fn refuse_under_loop_device(path: &Path) -> Result<(), Failure> {
    match loop_devices_on(path).first() {
        Some(device) => {
            Err(Failure::busy(format_args!("{} lies under /dev/{device}; detach that first", path.display())))
        }
        None => Ok(()),
    }
}

fn loop_devices_on(path: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let lies_on_it = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
    };
    devices.filter_map(Result::ok).filter(lies_on_it).map(|d| d.file_name().to_string_lossy().into_owned()).collect()
}
