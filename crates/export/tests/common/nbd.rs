//! A memory disk served over NBD for one test, and the programs that judge it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export};
use tempfile::TempDir;

use super::ram_disk::RamDisk;

/// An export on a unix socket in a directory of its own. Both end with the value.
pub struct Served {
    pub disk: Arc<RamDisk>,
    pub uri: String,
    pub directory: TempDir,
    export: Option<NbdExport>,
}

impl Served {
    /// `disk` under the default options.
    pub fn new(disk: RamDisk) -> Self {
        Self::with(disk, NbdOptions::default())
    }

    /// `disk` under `options`.
    pub fn with(disk: RamDisk, options: NbdOptions) -> Self {
        let disk = Arc::new(disk);
        let directory = tempfile::tempdir().unwrap();
        let address = ListenAddress::Unix(directory.path().join("socket"));
        let export = NbdExport::start(Arc::clone(&disk) as Arc<dyn Disk>, &address, options).unwrap();
        Self { disk, uri: export.address(), directory, export: Some(export) }
    }

    /// The socket's path.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// A path for a file of the test's own.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the export.
    pub fn stop(&mut self) {
        Box::new(self.export.take().unwrap()).stop().unwrap();
    }

    /// Runs Python statements with `h` connected to the export and `nbd` and `errno` imported.
    pub fn nbdsh(&self, script: &str) {
        let prelude = "import errno, nbd, os\nuri = os.environ['SEALDISK_URI']\nh.connect_uri(uri)\n";
        self.nbdsh_unconnected(&format!("h.add_meta_context('base:allocation')\n{prelude}{script}"));
    }

    /// Runs Python statements with `h` not yet connected.
    pub fn nbdsh_unconnected(&self, script: &str) {
        let mut nbdsh = tool("nbdsh", "python3-libnbd");
        // The module belongs to Debian's Python, whichever other one stands before it in the path.
        nbdsh.env("PATH", "/usr/bin:/bin");
        succeed(nbdsh.env("SEALDISK_URI", &self.uri).args(["-c", script]));
    }
}

/// A program that a test cannot do without.
pub fn tool(name: &str, package: &str) -> Command {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(name).is_file()));
    assert!(found, "this test needs {name}: install the Debian package {package}");
    Command::new(name)
}

/// Runs a command that must succeed, and returns what it printed.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Runs a command that must fail, and returns what it complained.
pub fn fail(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!status.success(), "{command:?} succeeded\n{stdout}{stderr}");
    format!("{stdout}{stderr}")
}

/// A file of bytes that do not repeat, with a stretch of zeros.
pub fn write_sample(path: &Path, len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    })
    .flatten()
    .take(len)
    .collect();
    bytes[len / 3..len / 2].fill(0);
    std::fs::write(path, &bytes).unwrap();
    bytes
}
