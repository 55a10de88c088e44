//! A RAM disk mounted at a directory of its own, and the tools of the system that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sealdisk_export::fuse::{FuseExport, FuseOptions};
use sealdisk_export::{Export, Helper, LoopOptions};
use tempfile::TempDir;

use crate::observed_disk::ObservedDisk;
use crate::ram_disk::RamDisk;

pub const MIB: u64 = 1 << 20;

/// A mounted RAM disk. Fields are dropped in this order: the mount before its directory.
pub struct Mounted {
    pub disk: Arc<ObservedDisk>,
    pub export: FuseExport,
    pub directory: TempDir,
}

impl Mounted {
    pub fn new(size: u64) -> Self {
        Self::with(RamDisk::new(size))
    }

    pub fn with(disk: RamDisk) -> Self {
        let disk = Arc::new(ObservedDisk::new(disk));
        let directory = TempDir::new().unwrap();
        let mountpoint = directory.path().join("mnt");
        std::fs::create_dir(&mountpoint).unwrap();
        let export = FuseExport::mount(disk.clone(), &mountpoint, &FuseOptions::default())
            .expect("mounting needs root and the fuse module");
        Self { disk, export, directory }
    }

    /// With a loop device on the file, under a name that no other test has.
    pub fn with_loop(size: u64) -> Self {
        let mut mounted = Self::new(size);
        let options = LoopOptions { name: Some(unique_name()), ..LoopOptions::default() };
        mounted.export.attach_loop(&options, &helper()).unwrap();
        mounted
    }

    pub fn file(&self) -> &Path {
        self.export.file()
    }

    /// The loop device.
    pub fn device(&self) -> PathBuf {
        self.export.address().into()
    }

    /// A new directory beside the mount.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// Takes everything down and gives the disk back.
    pub fn stop(self) -> Arc<ObservedDisk> {
        Box::new(self.export).stop().unwrap();
        self.disk
    }
}

/// Who puts loop devices on the files of exports.
pub fn helper() -> Helper {
    Helper::new(env!("CARGO_BIN_EXE_loop-helper-for-tests"), [] as [&str; 0])
}

/// A name for `/dev/sealdisk` that no other test has.
pub fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a tool that comes with a Debian package and returns what it printed; the test fails if the tool does or is not
/// there.
pub fn run(package: &str, tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{tool} does not start ({error}): install the Debian package {package}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?} failed ({}):\n{said}", output.status);
    said
}

/// As text, for a command line.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}
