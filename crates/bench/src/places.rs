//! Where a benchmark keeps its things while it runs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate};
use tempfile::TempDir;

use crate::BenchError;
use crate::programs::as_typed;

/// Where files can lie in memory.
const MEMORY: &str = "/dev/shm";

/// Folders that go when this is dropped.
pub(crate) struct Places {
    /// On the file system that is measured: volumes, images.
    data: TempDir,
    /// Sockets, logs, mount points. Elsewhere, because the path of a socket must be short.
    run: TempDir,
    /// In memory, where that can be had.
    memory: Option<TempDir>,
}

impl Places {
    /// Makes them; the one for data in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self, BenchError> {
        let data = tempfile::Builder::new().prefix("sealdisk-bench-").tempdir_in(folder);
        let data = data.map_err(BenchError::path(folder))?;
        let run = tempfile::Builder::new().prefix("sealdisk-bench-").tempdir();
        let run = run.map_err(BenchError::io("making a temporary folder"))?;
        let memory = tempfile::Builder::new().prefix("sealdisk-bench-").tempdir_in(MEMORY).ok();
        // The database's user passes through.
        for place in [&data, &run] {
            let passable = fs::Permissions::from_mode(0o711);
            fs::set_permissions(place.path(), passable).map_err(BenchError::path(place.path()))?;
        }
        let places = Self { data, run, memory };
        places.write_key()?;
        Ok(places)
    }

    /// A file on the file system that is measured.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    /// A file that is not measured.
    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.run.path().join(name)
    }

    /// The folder of what is not measured.
    pub(crate) fn run_folder(&self) -> &Path {
        self.run.path()
    }

    /// Makes a file of `len` bytes, in memory if there is room: nobody writes that back while something is measured.
    pub(crate) fn make_in_memory(&self, name: &str, len: u64) -> Result<PathBuf, BenchError> {
        if let Some(memory) = &self.memory {
            let path = memory.path().join(name);
            // Whoever touches a page of a mapped file for which there is no room is killed: room is taken now.
            let made = File::create(&path).and_then(|file| Ok(fallocate(file, FallocateFlags::empty(), 0, len)?));
            if made.is_ok() {
                return Ok(path);
            }
            let _ = fs::remove_file(&path);
        }
        let path = self.run(name);
        File::create(&path).and_then(|file| file.set_len(len)).map_err(BenchError::path(&path))?;
        Ok(path)
    }

    /// A key file that every program reads alike: letters and no newline.
    pub(crate) fn key(&self) -> PathBuf {
        self.run("key")
    }

    /// The volumes hold nothing of worth; the key is random all the same, and goes with the folder.
    fn write_key(&self) -> Result<(), BenchError> {
        let path = self.key();
        let mut random = [0; 32];
        std::io::Read::read_exact(
            &mut File::open("/dev/urandom").map_err(BenchError::io("/dev/urandom"))?,
            &mut random,
        )
        .map_err(BenchError::io("/dev/urandom"))?;
        let letters: Vec<u8> = random.iter().map(|byte| b'a' + byte % 26).collect();
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(BenchError::path(&path))?;
        file.write_all(&letters).map_err(BenchError::path(&path))
    }

    /// A command for the report: without the folders of this run.
    pub(crate) fn shown(&self, command: &Command) -> String {
        let [data, run] = [&self.data, &self.run].map(|place| place.path().display().to_string());
        as_typed(command).replace(&data, "DIR").replace(&run, "RUN")
    }
}

/// Makes an empty file of `size` bytes that takes no space.
pub(crate) fn sparse_file(path: &Path, size: u64) -> Result<(), BenchError> {
    File::create(path).and_then(|file| file.set_len(size)).map_err(BenchError::path(path))
}

/// Writes back what is in the page cache and empties it. Only root may; says whether it was done.
pub(crate) fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_into_memory_is_made_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(folder.path()).unwrap();
        let made = places.make_in_memory("a", 8192).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().len(), 8192);
        let too_large = 1 << 42;
        let elsewhere = places.make_in_memory("b", too_large).unwrap();
        assert!(elsewhere.starts_with(places.run_folder()) && fs::metadata(elsewhere).unwrap().len() == too_large);
        drop(places);
        assert!(!made.exists());
    }

    #[test]
    fn commands_are_shown_without_the_folders_of_a_run_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::new(folder.path()).unwrap();
        let mut command = Command::new("/usr/bin/some-server");
        command.arg(places.data("disk")).arg(places.run("socket"));
        assert_eq!(places.shown(&command), "some-server DIR/disk RUN/socket");
        let key = fs::read(places.key()).unwrap();
        assert!(key.len() == 32 && key.iter().all(u8::is_ascii_lowercase));
        let run = places.run_folder().to_owned();
        drop(places);
        assert!(!run.exists() && fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}
