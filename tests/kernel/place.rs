//! Volumes on this machine, made, written and read with `sealdisk`, in a folder that no other test sees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::programs::{self, succeed, tool};

/// What opens every volume of these tests.
pub const KEY: &[u8] = b"the right passphrase";
/// Argon2 as cheap as LUKS2 allows, for `sealdisk` and `cryptsetup` alike.
pub const CHEAP: &str = "--pbkdf argon2id --pbkdf-memory 32 --pbkdf-force-iterations 4 --pbkdf-parallel 1";

/// The folder of one test. Volumes in it are named by their file.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(place.path("key"), KEY).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of zeros.
    pub fn blank(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        File::create_new(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Makes the volume `name` with these options.
    pub fn format(&self, name: &str, options: &str) -> PathBuf {
        let options = options.split_whitespace().chain(CHEAP.split_whitespace());
        self.ok(["format", name, "--key-file", "key"].into_iter().chain(options));
        self.path(name)
    }

    /// Writes to the whole disk in the volume `name`.
    pub fn write(&self, name: &str, content: &[u8]) {
        let source = self.path("source");
        fs::write(&source, content).unwrap();
        self.write_file(name, &source);
    }

    /// Writes a file of the disk's size to the disk in the volume `name`.
    pub fn write_file(&self, name: &str, source: &Path) {
        let attached = self.attach(name, &[]);
        succeed(tool("nbdcopy", "libnbd-bin").arg("--flush").arg(source).arg(&attached.uri));
    }

    /// Copies the disk in the volume `name` to a file.
    pub fn read_file(&self, name: &str) -> PathBuf {
        let attached = self.attach(name, &["--read-only"]);
        let target = self.path(&format!("{name}.disk"));
        succeed(tool("nbdcopy", "libnbd-bin").arg(&attached.uri).arg(&target));
        target
    }

    /// Reads the whole disk in the volume `name`.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.read_file(name)).unwrap()
    }

    /// Serves the volume `name` with NBD until what is returned is dropped.
    pub fn attach(&self, name: &str, options: &[&str]) -> Attached<'_> {
        let attach = ["attach", name, "--key-file", "key", "--as", "nbd"];
        let said = self.ok(attach.iter().chain(options));
        let uri = said.split_whitespace().find(|word| word.starts_with("nbd")).map(str::to_owned);
        let uri = uri.unwrap_or_else(|| panic!("no URI in {said:?}"));
        Attached { place: self, volume: name.to_owned(), uri }
    }

    /// Runs `sealdisk`, which must succeed, and returns what it printed.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        succeed(&mut self.sealdisk(arguments))
    }

    fn sealdisk<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = programs::sealdisk();
        command.args(arguments).current_dir(self.folder.path()).env("SEALDISK_RUNTIME_DIR", self.path("run"));
        command
    }
}

/// A volume that is served. Detached when dropped.
pub struct Attached<'a> {
    place: &'a Place,
    volume: String,
    pub uri: String,
}

impl Attached<'_> {
    /// Runs Python with the disk as the NBD connection `h`.
    pub fn nbdsh(&self, python: &str) {
        let mut nbdsh = tool("nbdsh", "python3-libnbd");
        // The module belongs to Debian's Python, whichever other one stands before it in the path.
        succeed(nbdsh.env("PATH", "/usr/bin:/bin").args(["--uri", &self.uri, "--command", python]));
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let mut detach = self.place.sealdisk(["detach", &self.volume]);
        if std::thread::panicking() {
            let _ = detach.output();
        } else {
            succeed(&mut detach);
        }
    }
}
