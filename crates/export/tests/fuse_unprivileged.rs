//! Mounting without root, by `fusermount3`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "common/ram_disk.rs"]
mod ram_disk;

use std::fs::{self, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ram_disk::RamDisk;
use sealdisk_export::Export;
use sealdisk_export::fuse::{FuseExport, FuseOptions, cleanup_stale};
use tempfile::TempDir;

/// Tells the process that it is the user, and where to mount.
const MOUNTPOINT: &str = "SEALDISK_TEST_USER_MOUNTPOINT";
/// `nobody`.
const USER: u32 = 65_534;

/// What a user without privileges does, if another test started this process as one.
#[test]
fn the_part_of_the_user() {
    let Some(mountpoint) = std::env::var_os(MOUNTPOINT) else { return };
    let mountpoint = mountpoint.as_ref();
    assert!(!rustix::process::geteuid().is_root());
    let disk = Arc::new(RamDisk::new(4 << 20));
    let mut export = FuseExport::mount(disk.clone(), mountpoint, &FuseOptions::default()).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(export.file()).unwrap();
    file.write_all_at(b"mine", 1 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!((disk.bytes(1 << 20, 4), disk.flushes()), (b"mine".to_vec(), 1));
    assert_eq!(cleanup_stale(mountpoint).unwrap_err().source.kind(), ErrorKind::ResourceBusy);
    assert_eq!(export.release().unwrap_err().source.kind(), ErrorKind::ResourceBusy);
    drop(file);
    Box::new(export).stop().unwrap();
    assert!(!cleanup_stale(mountpoint).unwrap());
}

#[test]
fn a_user_without_privileges_mounts_and_unmounts_by_fusermount3() {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    chown(&mountpoint, Some(USER), Some(USER)).unwrap();
    // The user may not be able to reach the directory that this program was built in.
    let program = directory.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    // udev lets everybody open the device; a machine without udev may not.
    let device = Path::new("/dev/fuse");
    let permissions = fs::metadata(device).unwrap().permissions();
    fs::set_permissions(device, Permissions::from_mode(0o666)).unwrap();
    let output = Command::new(program)
        .args(["--exact", "the_part_of_the_user", "--nocapture"])
        .env(MOUNTPOINT, &mountpoint)
        .current_dir(directory.path())
        .uid(USER)
        .gid(USER)
        .output();
    fs::set_permissions(device, permissions).unwrap();
    let output = output.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
