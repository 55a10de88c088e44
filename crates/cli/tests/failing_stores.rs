//! A store that fails, and one that has lost something: what the volume's owner hears of it. Needs root.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use harness::{CHEAP, Place};
use support::programs::{eventually, succeed, tool};

/// Runs nbdsh code on the disk `h`.
fn nbd(uri: &str, program: &str) -> String {
    succeed(tool("python3", "python3-libnbd").args(["-m", "nbd", "--uri", uri.trim(), "--command", program]))
}

/// A file system whose disk can lose its end. Gone when dropped, whatever has become of it.
struct FailingDisk {
    folder: tempfile::TempDir,
    device: String,
}

impl FailingDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let device = succeed(tool("losetup", "mount").args(["--find", "--show"]).arg(&image)).trim().to_owned();
        let disk = Self { folder, device };
        fs::create_dir(disk.mount_point()).unwrap();
        succeed(tool("mkfs.ext4", "e2fsprogs").args(["-q", &disk.device]));
        // Data goes through the file system's journal, so that writes succeed in memory and the sync is what fails.
        let mut mount = tool("mount", "mount");
        succeed(mount.args(["-o", "data=journal", &disk.device]).arg(disk.mount_point()));
        disk
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Cuts the disk off before the file system's own journal, which lies in the middle. What comes behind is EIO.
    fn fail(&self) {
        File::options().write(true).open(self.folder.path().join("image")).unwrap().set_len(64 << 20).unwrap();
        succeed(tool("losetup", "mount").args(["--set-capacity", &self.device]));
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let _ = tool("umount", "mount").arg(self.mount_point()).output();
        let _ = tool("losetup", "mount").args(["--detach", &self.device]).output();
    }
}

#[test]
fn a_volume_whose_flush_failed_is_listed_as_failed_takes_no_writes_and_can_be_read() {
    let disk = FailingDisk::new();
    let place = Place::new();
    place.file("key", b"secret");
    let volume = disk.mount_point().join("v");
    let volume = volume.to_str().unwrap();
    place.ok(&[&["format", volume, "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat());
    let uri = place.ok(&["attach", volume, "--as", "nbd", "--key-file", "key"]);
    nbd(&uri, "h.pwrite(b'kept' * 1024, 0)\nh.flush()");
    assert_eq!(place.list()[0]["state"], "healthy");

    disk.fail();
    let attempt = "
def attempt(what, *arguments):
    try:
        what(*arguments)
        print('ok')
    except nbd.Error as error:
        print(error.errno)
";
    let lost = format!("{attempt}h.pwrite(b'lost' * 1024, 65536)\nattempt(h.flush)");
    assert_eq!(nbd(&uri, &lost), "EIO\n");

    let attached = &place.list()[0];
    assert_eq!((&attached["state"], &attached["read_only"]), (&"failed".into(), &true.into()));
    let reason = attached["reason"].as_str().unwrap();
    assert!(reason.starts_with("flushing failed: "), "{reason}");
    let table = place.ok(&["list"]);
    assert!(table.contains("v     failed  8 MiB") && table.contains(&format!("v: {reason}")), "{table}");
    assert!(place.ok(&["info", volume]).contains(&format!("failed: {reason}")));
    let log = fs::read_to_string(attached["log"].as_str().unwrap()).unwrap();
    assert!(log.contains(reason), "{log}");

    // Nothing is taken any more; what is there is read.
    let after = format!(
        "{attempt}attempt(h.pwrite, b'x' * 4096, 0)\nattempt(h.zero, 4096, 0)\nattempt(h.trim, 4096, 0)\nattempt(h.flush)
print(bytes(h.pread(4, 0)), bytes(h.pread(4, 65536)))"
    );
    assert_eq!(nbd(&uri, &after), "EIO\nEIO\nEIO\nEIO\nb'kept' b'lost'\n");

    let complaint = place.fails(1, &["detach", "v"]);
    assert!(complaint.contains("since the last good flush is lost") && complaint.contains(reason), "{complaint}");
    assert!(place.list().is_empty(), "it is detached all the same");
}

/// A small file system in memory. Gone when dropped.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        succeed(tool("mount", "mount").args(["-t", "tmpfs", "-o", "size=48M", "tmpfs"]).arg(folder.path()));
        Self(folder)
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = tool("umount", "mount").arg(self.0.path()).output();
    }
}

#[test]
fn a_volume_whose_journal_finds_no_room_is_not_made() {
    let place = Place::new();
    place.file("key", b"secret");
    let disk = SmallFileSystem::new();
    let volume = disk.0.path().join("v");
    let format =
        |size| [&["format", volume.to_str().unwrap(), "--size", size, "--key-file", "key"], &CHEAP[..]].concat();
    let complaint = place.fails(1, &format("1T"));
    assert!(complaint.contains("reserving room") && complaint.contains("No space left on device"), "{complaint}");
    assert!(!volume.exists());
    // A shorter journal fits.
    place.ok(&format("8M"));
}

#[test]
fn a_volume_with_a_damaged_journal_is_attached_read_only_with_a_warning() {
    let place = Place::new();
    let volume = place.volume("v");
    let attach = ["attach", "v", "--as", "nbd", "--key-file", "key"];
    let uri = place.ok(&attach);
    nbd(&uri, "h.pwrite(b'kept' * 1024, 0)");
    place.ok(&["detach", "v"]);
    // A crash, after which the newest writes are in the journal alone.
    let uri = place.ok(&attach);
    nbd(&uri, "h.pwrite(b'lost' * 1024, 65536)\nh.flush()");
    succeed(Command::new("kill").args(["-KILL", &place.pid().to_string()]));
    eventually("the daemon is dead", || place.list()[0]["state"] == "dead");
    place.ok(&["detach", "v"]);
    // The journal of 4 MiB lies behind 16 MiB of header and an object of superblocks.
    File::options().write(true).open(&volume).unwrap().write_all_at(&[0; 4 << 20], 20 << 20).unwrap();

    let complaint = place.fails(4, &attach);
    assert!(complaint.contains("the journal is damaged") && complaint.contains("--read-only"), "{complaint}");
    assert!(place.list().is_empty());

    let output = place.sealdisk(&[&attach[..], &["--read-only"]].concat()).output().unwrap();
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{warning}");
    assert!(warning.starts_with("sealdisk: warning: the journal is damaged: "), "{warning}");
    let attached = &place.list()[0];
    assert_eq!((&attached["state"], &attached["read_only"]), (&"read-only".into(), &true.into()));
    let damage = attached["damage"].as_str().unwrap();
    assert_eq!(warning, format!("sealdisk: warning: {damage}\n"));
    assert_eq!(fs::read_to_string(attached["log"].as_str().unwrap()).unwrap(), warning);
    assert!(place.ok(&["list"]).contains(&format!("v: {damage}")));
    assert_eq!(place.info("v")["attached"]["damage"], damage);
    let uri = String::from_utf8(output.stdout).unwrap();
    assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 0)), h.is_read_only())"), "b'kept' True\n");
    place.ok(&["detach", "v"]);

    // Every sector is authentic, and yet not everything is there.
    let output = place.sealdisk(&["check", "v", "--key-file", "key", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bad"], &report["damage"]), (&serde_json::json!([]), &damage.into()));
}
