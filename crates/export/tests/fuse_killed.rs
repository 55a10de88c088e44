//! What is left when the serving process is killed, and how it is cleaned up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/hanging_disk.rs"]
mod hanging_disk;
#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "common/mounted.rs"]
mod mounted;
#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "common/observed_disk.rs"]
mod observed_disk;
#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "common/ram_disk.rs"]
mod ram_disk;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hanging_disk::{HangingDisk, Operation};
use mounted::{MIB, helper, run, text, unique_name};
use ram_disk::RamDisk;
use sealdisk_export::fuse::{FuseExport, FuseOptions, cleanup_stale};
use sealdisk_export::{Disk, Export, LoopOptions};
use tempfile::TempDir;

/// Tells the process that it is a server: where to mount, what to call the device, and which operation of the disk hangs,
/// if one does.
const MOUNTPOINT: &str = "SEALDISK_TEST_MOUNTPOINT";
const NAME: &str = "SEALDISK_TEST_NAME";
const HANGING: &str = "SEALDISK_TEST_HANGING";

/// A process that serves a RAM disk with a loop device on it.
struct Server {
    process: Child,
    mountpoint: PathBuf,
    device: PathBuf,
    directory: TempDir,
}

impl Server {
    /// A server that is ready.
    fn start() -> Self {
        let mut server = Self::begin(None);
        server.until_ready();
        server
    }

    /// A server that has been started.
    fn begin(hanging: Option<Operation>) -> Self {
        let directory = TempDir::new().unwrap();
        let mountpoint = directory.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let name = unique_name();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_server_that_other_tests_start", "--nocapture"])
            .env(MOUNTPOINT, &mountpoint)
            .env(NAME, &name)
            .env(HANGING, hanging.map_or("", Operation::name))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let device = Path::new("/dev/sealdisk").join(name);
        Self { process, mountpoint, device, directory }
    }

    fn until_ready(&mut self) {
        // The link to the device is the last thing that is made.
        while !self.device.exists() {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the server ended before it was ready: {status}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where the disk notes that an operation hangs.
    fn hangs(&self) -> PathBuf {
        self.directory.path().join("hangs")
    }

    /// Its threads.
    fn threads(&self) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        threads.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<u32> {
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let parent = self.process.id().to_string();
        pids.filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent)).collect()
    }

    fn file(&self) -> PathBuf {
        self.mountpoint.join("disk")
    }

    /// Kills it, which must end it.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        assert!(self.ends(), "a killed server does not end");
    }

    /// Whether it ends. Not a measurement: a killed process ends at once or never.
    fn ends(&mut self) -> bool {
        patiently(|| self.process.try_wait().unwrap().is_some())
    }

    fn is_in_mount_table(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(text(&self.mountpoint))
    }
}

impl Drop for Server {
    /// Leaves nothing on the machine even if the test failed.
    fn drop(&mut self) {
        let _ = self.process.kill();
        if !self.ends() {
            // It would stay until the machine is restarted. This breaks its connection.
            let _ = rustix::mount::unmount(&self.mountpoint, rustix::mount::UnmountFlags::FORCE);
            let _ = self.process.wait();
        }
        let _ = Command::new("umount").arg("-q").arg(self.directory.path().join("ext4")).status();
        let _ = cleanup_stale(&self.mountpoint);
    }
}

/// State, parent and so on of a process, as proc(5) lists them from the third on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// Waits for something that another process does. The limit only ends a test that has failed.
fn patiently(mut holds: impl FnMut() -> bool) -> bool {
    (0..600).any(|_| {
        let over = holds();
        if !over {
            std::thread::sleep(Duration::from_millis(50));
        }
        over
    })
}

/// Serves if another test started this process for it, until its standard input ends.
#[test]
fn the_server_that_other_tests_start() {
    let (Some(mountpoint), Ok(name)) = (std::env::var_os(MOUNTPOINT), std::env::var(NAME)) else {
        return;
    };
    let mountpoint = Path::new(&mountpoint);
    let ram = RamDisk::new(64 * MIB);
    let disk: Arc<dyn Disk> = match std::env::var(HANGING).ok().and_then(|name| Operation::called(&name)) {
        Some(operation) => Arc::new(HangingDisk { ram, operation, note: mountpoint.with_file_name("hangs") }),
        None => Arc::new(ram),
    };
    let mut export = FuseExport::mount(disk, mountpoint, &FuseOptions::default()).unwrap();
    export.attach_loop(&LoopOptions { name: Some(name), ..LoopOptions::default() }, &helper()).unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    Box::new(export).stop().unwrap();
}

#[test]
fn a_killed_server_leaves_a_dead_mount_and_device_which_the_next_one_replaces() {
    let mut server = Server::start();
    let reader = File::open(server.file()).unwrap();
    let kernel_device = fs::read_link(&server.device).unwrap();
    assert_eq!(cleanup_stale(&server.mountpoint).unwrap_err().source.kind(), ErrorKind::ResourceBusy);
    server.kill();

    assert_eq!(reader.read_at(&mut [0; 10], 0).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    let device = File::open(&server.device).unwrap();
    assert_eq!(device.read_at(&mut [0; 4096], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(device);

    assert!(cleanup_stale(&server.mountpoint).unwrap());
    assert!(server.device.symlink_metadata().is_err(), "the link stayed");
    let backing = Path::new("/sys/block").join(kernel_device.file_name().unwrap()).join("loop/backing_file");
    assert!(!backing.exists() || !fs::read_to_string(backing).unwrap().contains(text(&server.mountpoint)));
    assert!(!server.is_in_mount_table());
    assert!(!cleanup_stale(&server.mountpoint).unwrap());

    let disk = Arc::new(RamDisk::new(MIB));
    let again = FuseExport::mount(disk, &server.mountpoint, &FuseOptions::default()).unwrap();
    assert_eq!(fs::read(again.file()).unwrap().len(), MIB as usize);
    Box::new(again).stop().unwrap();
}

/// Right after the device has appeared, the helper is still closing the file, and the server waits for it.
#[test]
fn a_server_killed_as_soon_as_it_is_ready_ends() {
    for _ in 0..20 {
        let mut server = Server::start();
        server.kill();
        assert!(cleanup_stale(&server.mountpoint).unwrap());
    }
}

/// The narrow moments are made wide by a disk that does not answer: whoever waits for it waits for ever, unless the server
/// ends.
#[test]
fn a_server_killed_while_its_own_file_is_being_opened_ends() {
    let mut server = Server::begin(Some(Operation::Open));
    assert!(patiently(|| server.hangs().exists()), "nobody opened the file");
    let helpers = server.children();
    server.kill();
    assert!(patiently(|| helpers.iter().all(|&pid| stat(pid).is_none())), "a helper outlives its server");
    assert!(cleanup_stale(&server.mountpoint).unwrap());
    assert!(server.device.symlink_metadata().is_err(), "there is a device");
}

#[test]
fn a_server_killed_while_its_own_device_is_being_taken_down_ends() {
    let mut server = Server::begin(Some(Operation::Write));
    server.until_ready();
    let mut writer = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=1", "oflag=direct", "conv=nocreat"])
        .arg(format!("of={}", text(&server.device)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(patiently(|| server.hangs().exists()), "nothing was written");
    drop(server.process.stdin.take()); // it ends, and takes the device down first
    // The device is in use, so the kernel is told to keep it after all, which it notes between two requests.
    let waits = |pid: &u32| stat(*pid).is_some_and(|stat| stat[0] == "D");
    assert!(patiently(|| server.threads().iter().chain(&server.children()).any(waits)), "nothing hangs");
    let helpers = server.children();
    server.kill();
    assert!(patiently(|| helpers.iter().all(|&pid| stat(pid).is_none())), "a helper outlives its server");
    assert!(!writer.wait().unwrap().success());
    assert!(cleanup_stale(&server.mountpoint).unwrap());
    assert!(server.device.symlink_metadata().is_err(), "the link stayed");
}

#[test]
fn mounting_again_cleans_up_by_itself() {
    let mut server = Server::start();
    server.kill();
    assert!(server.is_in_mount_table());
    let disk = Arc::new(RamDisk::new(MIB));
    let again = FuseExport::mount(disk, &server.mountpoint, &FuseOptions::default()).unwrap();
    assert!(server.device.symlink_metadata().is_err(), "the old link stayed");
    Box::new(again).stop().unwrap();
}

#[test]
fn a_server_dies_at_once_under_a_mounted_file_system_which_must_be_unmounted_first() {
    let mut server = Server::start();
    run("e2fsprogs", "mkfs.ext4", &["-q", text(&server.device)]);
    let at = server.directory.path().join("ext4");
    fs::create_dir(&at).unwrap();
    run("mount", "mount", &[text(&server.device), text(&at)]);
    // Dirty pages that nobody can write back any more must not keep the server alive.
    fs::write(at.join("dirty"), vec![1; 20 << 20]).unwrap();
    server.kill();

    let busy = cleanup_stale(&server.mountpoint).unwrap_err();
    assert_eq!(busy.source.kind(), ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("unmount it"), "{busy}");
    assert!(File::create(at.join("sync")).and_then(|file| file.sync_all()).is_err());
    run("mount", "umount", &[text(&at)]);
    assert!(cleanup_stale(&server.mountpoint).unwrap());
}

#[test]
fn a_server_dies_at_once_with_requests_in_progress_and_writes_in_the_cache() {
    let mut server = Server::start();
    let mut device = OpenOptions::new().write(true).open(&server.device).unwrap();
    let mut load = Command::new("fio")
        .args(["--name=load", "--ioengine=libaio", "--direct=1", "--rw=randrw", "--iodepth=32", "--size=64m"])
        .args(["--time_based", "--runtime=60", "--output=/dev/null"])
        .arg(format!("--filename={}", text(&server.device)))
        .stderr(Stdio::null())
        .spawn()
        .expect("fio does not start: install the Debian package fio");
    std::thread::sleep(Duration::from_millis(500));
    device.write_all(&[1; 8 << 20]).unwrap();
    server.kill();
    assert!(!load.wait().unwrap().success(), "fio saw no errors");
    drop(device);
    assert!(cleanup_stale(&server.mountpoint).unwrap());
}
