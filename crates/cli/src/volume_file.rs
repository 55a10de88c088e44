//! The file or device that a volume lies in: found, opened and locked.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use sealdisk_store::{FileStore, OpenMode};

use crate::failure::{Failure, Kind};
use crate::registry::attached_at;

/// An existing file or block device, locked against everyone else on this machine until it is dropped.
pub struct VolumeFile {
    /// Absolute, without symbolic links: the daemon has another working folder.
    pub path: PathBuf,
    /// The locked store.
    pub store: FileStore,
}

impl VolumeFile {
    /// Opens and locks what `path` leads to. Fails as busy, naming the holder where it is known, if somebody has it.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, Failure> {
        let path = locate(path)?;
        if let Some(holder) = attached_at(&path).filter(|holder| holder.alive) {
            return Err(holder.in_the_way());
        }
        match FileStore::open(&path, mode) {
            Ok(store) => Ok(Self { path, store }),
            Err(error) if error.source.kind() == io::ErrorKind::ResourceBusy => Err(in_use(&path)),
            Err(error) => Err(Failure::path(&path, &error.source)),
        }
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| metadata.file_type().is_block_device())
    }
}

/// The absolute path of an existing file or block device.
pub fn locate(path: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    if path.to_str().is_some_and(|path| path.starts_with("rbd:")) && !path.exists() {
        return Err(Failure::device(format_args!(
            "{shown}: this version does not know Ceph images, only files and devices"
        )));
    }
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
    let advice = match fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        true => "it is mounted, part of another device, or attached by another user",
        false => "another user has attached it, or another sealdisk command is working on it",
    };
    Failure::new(Kind::Busy, format_args!("{} is in use: {advice}", path.display()))
}

/// Loop devices that lie on this file. The kernel does not lock what lies under a loop device.
pub fn loop_devices_on(path: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let lies_on_it = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
    };
    devices.filter_map(Result::ok).filter(lies_on_it).map(|d| d.file_name().to_string_lossy().into_owned()).collect()
}
