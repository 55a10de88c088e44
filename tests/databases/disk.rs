//! A file system on a sealed volume that loses its server: the disk under the databases.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::ceph::{Cluster, Daemon, OSDS, Pool};
use support::programs::{eventually, sealdisk, succeed, tool};
use tempfile::TempDir;

/// Argon2 as cheap as LUKS2 allows.
const CHEAP: [&str; 6] = ["--pbkdf-force-iterations", "4", "--pbkdf-memory", "32", "--pbkdf-parallel", "1"];

/// Where images are made.
const POOL: &str = "databases";

/// What lies between the database and the disk.
#[derive(Clone, Copy, Debug)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

/// Where the volume lies.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    File,
    /// An image on a cluster of its own, whose daemons are killed with everything else.
    Image,
}

/// How the volume is made.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub place: Place,
    pub cipher: &'static str,
    pub fold: bool,
    pub file_system: FileSystem,
}

/// A mounted file system on an attached volume. Whatever a test does, nothing of it is left when this is dropped.
pub struct SealedDisk {
    folder: TempDir,
    name: String,
    file_system: FileSystem,
    cluster: Option<RefCell<Cluster>>,
}

impl SealedDisk {
    /// Makes a volume, attaches it, makes a file system on it, and mounts that.
    pub fn new(kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        // Databases run as users of their own and must get to their files.
        open_to_all(folder.path());
        let cluster = match kind.place {
            Place::File => None,
            Place::Image => Some(Cluster::start()),
        };
        cluster.iter().for_each(|cluster| cluster.create_pool(POOL, Pool::Replicated(2)));
        let disk = Self { folder, name, file_system: kind.file_system, cluster: cluster.map(RefCell::new) };
        fs::write(disk.path("key"), b"the key of a test").unwrap();
        fs::create_dir(disk.mount_point()).unwrap();

        let mut format = disk.sealdisk("format");
        format.args(["--size", "512M", "--cipher", kind.cipher]).args(CHEAP);
        if kind.fold {
            format.arg("--fold");
        }
        succeed(&mut format);
        disk.attach();
        match disk.file_system {
            FileSystem::Ext4 => succeed(tool("mkfs.ext4", "e2fsprogs").arg("-q").arg(disk.device())),
            FileSystem::Xfs => succeed(tool("mkfs.xfs", "xfsprogs").arg("-q").arg(disk.device())),
        };
        disk.mount();
        disk
    }

    /// Where files go that must survive.
    pub fn mount_point(&self) -> PathBuf {
        self.path("mount")
    }

    /// A path outside the volume.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Kills the process that serves the disk, in the middle of whatever it is doing, and whatever that needs.
    pub fn kill_server(&self) {
        if let Some(cluster) = &self.cluster {
            let mut cluster = cluster.borrow_mut();
            let daemons = (0..OSDS).map(Daemon::Osd).chain([Daemon::Monitor]);
            daemons.for_each(|daemon| cluster.server(daemon).kill());
        }
        let pid = self.attached().expect("the volume is attached")["pid"].as_i64().unwrap();
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        eventually("the killed server is dead", || self.attached().is_some_and(|entry| entry["state"] == "dead"));
    }

    /// After [`kill_server`](Self::kill_server), when the database is gone too: attaches and mounts again, as an
    /// administrator or a service manager would.
    pub fn come_back(&self) {
        if let Some(cluster) = &self.cluster {
            let mut cluster = cluster.borrow_mut();
            let daemons = [Daemon::Monitor].into_iter().chain((0..OSDS).map(Daemon::Osd));
            daemons.for_each(|daemon| cluster.restart(daemon));
            cluster.wait_until_healthy();
        }
        // A process that was killed closes its files some time later.
        eventually("the dead disk can be unmounted", || self.unmount().output().unwrap().status.success());
        self.attach();
        self.mount();
    }

    /// Takes everything down in good order, and holds the file system and the volume against their checkers.
    pub fn check(self) {
        succeed(&mut self.unmount());
        match self.file_system {
            FileSystem::Ext4 => succeed(tool("e2fsck", "e2fsprogs").arg("-fn").arg(self.device())),
            FileSystem::Xfs => succeed(tool("xfs_repair", "xfsprogs").arg("-n").arg(self.device())),
        };
        self.detach();
        succeed(&mut self.sealdisk("check"));
    }

    fn attach(&self) {
        let mut attach = self.sealdisk("attach");
        let device = succeed(attach.args(["--as", "fuse", "--name", &self.name]));
        assert_eq!(Path::new(device.trim()), self.device());
    }

    fn mount(&self) {
        succeed(tool("mount", "mount").arg(self.device()).arg(self.mount_point()));
        open_to_all(&self.mount_point());
    }

    fn unmount(&self) -> Command {
        let mut umount = tool("umount", "mount");
        umount.arg(self.mount_point());
        umount
    }

    fn detach(&self) {
        succeed(sealdisk().args(["detach", &self.name]).env("SEALDISK_RUNTIME_DIR", self.path("run")));
    }

    /// What `sealdisk list` says of the volume, if anything.
    fn attached(&self) -> Option<Value> {
        let list = succeed(sealdisk().args(["list", "--json"]).env("SEALDISK_RUNTIME_DIR", self.path("run")));
        serde_json::from_str::<Vec<Value>>(&list).unwrap().pop()
    }

    fn device(&self) -> PathBuf {
        Path::new("/dev/sealdisk").join(&self.name)
    }

    /// A command about the volume that needs its key. Names of attached volumes are noted in the test's own folder.
    fn sealdisk(&self, verb: &str) -> Command {
        let mut command = sealdisk();
        match &self.cluster {
            None => command.arg("--quiet").arg(verb).arg(self.path("volume")),
            Some(cluster) => {
                command.env("CEPH_CONF", cluster.borrow().conf());
                command.arg("--quiet").arg(verb).arg(format!("rbd:{POOL}/{}", self.name))
            }
        };
        command.arg("--key-file").arg(self.path("key")).env("SEALDISK_RUNTIME_DIR", self.path("run"));
        command
    }
}

impl Drop for SealedDisk {
    fn drop(&mut self) {
        // Only after a failure is there anything left to do. Processes that were killed close their files some time later.
        let gone = || !is_mounted(&self.mount_point()) || self.unmount().output().is_ok_and(|o| o.status.success());
        for _ in 0..200 {
            if gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let _ = sealdisk().args(["detach", &self.name]).env("SEALDISK_RUNTIME_DIR", self.path("run")).output();
    }
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(folder))
}

fn open_to_all(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}
