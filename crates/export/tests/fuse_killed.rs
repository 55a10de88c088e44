//! What is left when the serving process is killed, and how it is cleaned up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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

use mounted::{MIB, run, text, unique_name};
use ram_disk::RamDisk;
use sealdisk_export::fuse::{FuseExport, FuseOptions, cleanup_stale};
use sealdisk_export::{Export, LoopOptions};
use tempfile::TempDir;

/// Tells the process that it is a server: where to mount, and what to call the device.
const MOUNTPOINT: &str = "SEALDISK_TEST_MOUNTPOINT";
const NAME: &str = "SEALDISK_TEST_NAME";

/// A process that serves a RAM disk with a loop device on it.
struct Server {
    process: Child,
    mountpoint: PathBuf,
    device: PathBuf,
    directory: TempDir,
}

impl Server {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let mountpoint = directory.path().join("mnt");
        fs::create_dir(&mountpoint).unwrap();
        let name = unique_name();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_server_that_other_tests_start", "--nocapture"])
            .env(MOUNTPOINT, &mountpoint)
            .env(NAME, &name)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The link to the device is the last thing the server makes.
        let device = Path::new("/dev/sealdisk").join(name);
        while !device.exists() {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("the server ended before it was ready: {status}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { process, mountpoint, device, directory }
    }

    fn file(&self) -> PathBuf {
        self.mountpoint.join("disk")
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn is_in_mount_table(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(text(&self.mountpoint))
    }
}

impl Drop for Server {
    /// Leaves nothing on the machine even if the test failed.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-q").arg(self.directory.path().join("ext4")).status();
        let _ = cleanup_stale(&self.mountpoint);
    }
}

/// Serves if another test started this process for it, until its standard input ends.
#[test]
fn the_server_that_other_tests_start() {
    let (Some(mountpoint), Ok(name)) = (std::env::var_os(MOUNTPOINT), std::env::var(NAME)) else {
        return;
    };
    let disk = Arc::new(RamDisk::new(64 * MIB));
    let mut export = FuseExport::mount(disk, mountpoint.as_ref(), &FuseOptions::default()).unwrap();
    export.attach_loop(&LoopOptions { name: Some(name), ..LoopOptions::default() }).unwrap();
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

/// Right after the device has appeared, the server is still closing the file that it opened for it.
#[test]
fn a_server_killed_as_soon_as_it_is_ready_ends() {
    for _ in 0..20 {
        let mut server = Server::start();
        server.kill();
        assert!(cleanup_stale(&server.mountpoint).unwrap());
    }
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
