//! The loop device on the file: file systems, discards, errors, and taking it down.

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
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mounted::{MIB, Mounted, helper, pattern, run, text, unique_name};
use ram_disk::RamDisk;
use sealdisk_export::{Export, LoopOptions};
use sealdisk_units::Lba;
use sealdisk_volume::Space;

/// A mounted file system, unmounted at the end even if the test fails.
struct FileSystem(PathBuf);

impl FileSystem {
    fn mount(device: &Path, at: PathBuf) -> Self {
        run("mount", "mount", &[text(device), text(&at)]);
        Self(at)
    }

    fn unmount(self) {
        run("mount", "umount", &[text(&self.0)]);
        std::mem::forget(self);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// Writes a tree of files of many sizes.
fn plant(root: &Path) {
    for index in 0..40u64 {
        let directory = root.join(format!("d{}", index % 7)).join("sub");
        fs::create_dir_all(&directory).unwrap();
        let len = [0, 1, 100, 4096, 5000, 70_000, 1 << 20][index as usize % 7];
        fs::write(directory.join(format!("f{index}")), pattern(index, len)).unwrap();
    }
}

fn compare(one: &Path, other: &Path) {
    run("diffutils", "diff", &["-r", text(one), text(other)]);
}

/// Random writes, reads, truncations and holes in a file, checked against a model in memory. The page cache is dropped
/// now and then, so that what is compared comes from the disk.
fn exercise(path: &Path) {
    const LEN: u64 = 4 * MIB;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    let mut model = Vec::new();
    let choices = pattern(77, 400 * 12);
    for (round, choice) in choices.chunks(12).enumerate() {
        let number = |at: usize| u64::from(u32::from_ne_bytes(choice[at..at + 4].try_into().unwrap()));
        let (offset, len) = (number(0) % LEN, (number(4) % 200_000) as usize);
        match number(8) % 8 {
            0 => {
                file.set_len(offset).unwrap();
                model.resize(offset as usize, 0);
            }
            1 if offset < model.len() as u64 => {
                use rustix::fs::FallocateFlags as Flags;
                rustix::fs::fallocate(&file, Flags::PUNCH_HOLE | Flags::KEEP_SIZE, offset, len as u64 + 1).unwrap();
                let end = model.len().min(offset as usize + len + 1);
                model[offset as usize..end].fill(0);
            }
            2 => {
                file.sync_data().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            3 => {
                let mut back = vec![0; model.len()];
                file.read_exact_at(&mut back, 0).unwrap();
                assert!(back == model, "after {round} operations");
            }
            _ => {
                let bytes = pattern(round as u64, len);
                file.write_all_at(&bytes, offset).unwrap();
                let end = offset as usize + len;
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
            }
        }
    }
    file.sync_all().unwrap();
    assert!(fs::read(path).unwrap() == model);
}

#[test]
fn ext4_keeps_a_tree_over_detach_and_attach() {
    let mut mounted = Mounted::with_loop(256 * MIB);
    run("e2fsprogs", "mkfs.ext4", &["-q", text(&mounted.device())]);
    let source = mounted.scratch("source");
    plant(&source);
    let at = mounted.scratch("ext4");
    let file_system = FileSystem::mount(&mounted.device(), at.clone());
    run("coreutils", "cp", &["-a", text(&source), text(&at)]);
    exercise(&at.join("exercise"));
    file_system.unmount();
    run("e2fsprogs", "e2fsck", &["-fn", text(&mounted.device())]);

    let directory = std::mem::replace(&mut mounted.directory, tempfile::TempDir::new().unwrap());
    let disk = mounted.stop();
    let mut again = Mounted::with(std::sync::Arc::into_inner(disk).expect("a stopped export holds no disk").ram);
    again.export.attach_loop(&LoopOptions::default(), &helper()).unwrap();
    let file_system = FileSystem::mount(&again.device(), at.clone());
    compare(&source, &at.join("source"));
    file_system.unmount();
    drop(directory);
    again.stop();
}

#[test]
fn xfs_survives_random_io() {
    let mounted = Mounted::with_loop(512 * MIB);
    run("xfsprogs", "mkfs.xfs", &["-q", text(&mounted.device())]);
    let at = mounted.scratch("xfs");
    let file_system = FileSystem::mount(&mounted.device(), at.clone());
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let path = at.join(name);
            scope.spawn(move || exercise(&path));
        }
        scope.spawn(|| plant(&at));
    });
    file_system.unmount();
    run("xfsprogs", "xfs_repair", &["-n", text(&mounted.device())]);
    mounted.stop();
}

#[test]
fn trimming_a_file_system_frees_space_on_the_disk() {
    let mounted = Mounted::with_loop(256 * MIB);
    run("e2fsprogs", "mkfs.ext4", &["-q", "-E", "nodiscard", text(&mounted.device())]);
    let at = mounted.scratch("ext4");
    let file_system = FileSystem::mount(&mounted.device(), at.clone());
    fs::write(at.join("big"), vec![0xa5; 32 << 20]).unwrap();
    let sync = || rustix::fs::syncfs(File::open(&at).unwrap()).unwrap();
    sync();
    let secrets = || mounted.disk.ram.bytes(0, 256 << 20).chunks(4096).filter(|sector| *sector == [0xa5; 4096]).count();
    assert_eq!(secrets(), 8192);
    fs::remove_file(at.join("big")).unwrap();
    sync();
    let before = mounted.disk.zeroed().len();
    run("util-linux", "fstrim", &[text(&at)]);
    assert_eq!(secrets(), 0);
    let zeroed = mounted.disk.zeroed().split_off(before);
    assert!(zeroed.iter().all(|(_, space)| *space == Space::Free));
    assert!(zeroed.iter().all(|(range, _)| range.is_sector_aligned()));
    file_system.unmount();
    mounted.stop();
}

#[test]
fn zeroing_the_device_keeps_its_space_unless_it_may_go() {
    let mounted = Mounted::with_loop(64 * MIB);
    let device = mounted.device();
    let mib = MIB.to_string();
    run("util-linux", "blkdiscard", &["--offset", &mib, "--length", &mib, text(&device)]);
    run(
        "util-linux",
        "blkdiscard",
        &["--zeroout", "--offset", &(8 * MIB).to_string(), "--length", &mib, text(&device)],
    );
    let zeroed: Vec<_> =
        mounted.disk.zeroed().iter().map(|(range, space)| (range.offset(), range.len(), *space)).collect();
    assert_eq!(zeroed, [(MIB, MIB, Space::Free), (8 * MIB, MIB, Space::Keep)]);
    mounted.stop();
}

#[test]
fn the_device_has_the_disks_size_and_sectors_and_bypasses_the_page_cache() {
    let mut mounted = Mounted::new(64 * MIB);
    let name = unique_name();
    let options = LoopOptions { name: Some(name.clone()), ..LoopOptions::default() };
    let device = mounted.export.attach_loop(&options, &helper()).unwrap();
    assert_eq!(device.path(), Path::new("/dev/sealdisk").join(&name));
    assert_eq!(fs::read_link(device.path()).unwrap(), device.kernel_path());
    let (path, kernel) = (device.path().to_owned(), device.kernel_path().to_owned());
    let show = |column: &str| run("mount", "losetup", &["-n", "--raw", "-O", column, text(&kernel)]).trim().to_owned();
    assert_eq!(
        (show("LOG-SEC"), show("DIO"), show("AUTOCLEAR"), show("RO")),
        ("4096".into(), "1".into(), "0".into(), "0".into())
    );
    assert_eq!(show("BACK-FILE"), text(mounted.file()));
    assert_eq!(run("util-linux", "blockdev", &["--getsize64", text(&path)]).trim(), (64 * MIB).to_string());
    assert_eq!(mounted.export.address(), text(&path));
    let second = mounted.export.attach_loop(&LoopOptions::default(), &helper()).unwrap_err();
    assert_eq!(second.source.kind(), ErrorKind::AlreadyExists);
    mounted.stop();
    assert!(path.symlink_metadata().is_err(), "the link stayed");
}

#[test]
fn a_device_of_512_byte_sectors_can_be_had_and_bad_wishes_are_refused() {
    let mut mounted = Mounted::new(MIB + 512);
    let refused = mounted.export.attach_loop(&LoopOptions::default(), &helper()).unwrap_err();
    assert_eq!(refused.source.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().ends_with("its size of 1049088 bytes is no multiple of 4096"), "{refused}");
    for name in ["", ".", "..", "a/b", "/etc"] {
        let options = LoopOptions { block_size: 512, name: Some(name.into()), ..LoopOptions::default() };
        let refused = mounted.export.attach_loop(&options, &helper()).unwrap_err();
        assert_eq!(refused.source.kind(), ErrorKind::InvalidInput, "{name:?}");
    }
    let options = LoopOptions { block_size: 512, ..LoopOptions::default() };
    mounted.export.attach_loop(&options, &helper()).unwrap();
    let mut last = vec![0; 512];
    let file = OpenOptions::new().read(true).write(true).open(mounted.device()).unwrap();
    file.write_all_at(&pattern(1, 512), MIB).unwrap();
    file.sync_all().unwrap();
    File::open(mounted.file()).unwrap().read_exact_at(&mut last, MIB).unwrap();
    assert_eq!(last, pattern(1, 512));
    drop(file);
    mounted.export.release().unwrap();
    mounted.export.release().unwrap(); // nothing left to do
    mounted.stop();
}

#[test]
fn a_read_only_disk_is_a_read_only_device() {
    let mut mounted = Mounted::with(RamDisk::new(4 * MIB).read_only());
    let device = mounted.export.attach_loop(&LoopOptions::default(), &helper()).unwrap().path().to_owned();
    assert_eq!(run("util-linux", "blockdev", &["--getro", text(&device)]).trim(), "1");
    mounted.stop();
}

#[test]
fn a_bad_sector_is_an_error_of_the_device_and_the_rest_works() {
    let mounted = Mounted::with_loop(16 * MIB);
    let bytes = pattern(4, 16 << 20);
    fs::OpenOptions::new().write(true).open(mounted.device()).unwrap().write_all_at(&bytes, 0).unwrap();
    run("util-linux", "blockdev", &["--flushbufs", text(&mounted.device())]);
    mounted.disk.ram.break_sector(Lba(1000));
    let device = File::open(mounted.device()).unwrap();
    rustix::fs::fadvise(&device, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut sector = [0; 4096];
    assert_eq!(device.read_exact_at(&mut sector, 1000 * 4096).unwrap_err().raw_os_error(), Some(libc::EIO));
    for lba in [0, 999, 1001, 4095] {
        device.read_exact_at(&mut sector, lba * 4096).unwrap();
        assert_eq!(sector, bytes[lba as usize * 4096..][..4096]);
    }
    drop(device);
    mounted.stop();
}

#[test]
fn a_flush_of_the_device_is_a_flush_of_the_disk_and_its_failure_is_seen() {
    let mounted = Mounted::with_loop(16 * MIB);
    let device = OpenOptions::new().write(true).open(mounted.device()).unwrap();
    device.write_all_at(&[1; 4096], 0).unwrap();
    let before = mounted.disk.ram.flushes();
    device.sync_all().unwrap();
    assert!(mounted.disk.ram.flushes() > before);
    mounted.disk.fail_flushes(true);
    device.write_all_at(&[2; 4096], 0).unwrap();
    assert_eq!(device.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    mounted.disk.fail_flushes(false);
    drop(device);
    mounted.stop();
}

#[test]
fn concurrent_direct_writes_are_found_again() {
    let mounted = Mounted::with_loop(128 * MIB);
    run(
        "fio",
        "fio",
        &[
            "--name=verify",
            &format!("--filename={}", text(&mounted.device())),
            "--ioengine=libaio",
            "--direct=1",
            "--rw=randwrite",
            "--bsrange=4k-256k",
            "--iodepth=32",
            "--size=32m",
            "--offset_increment=32m",
            "--numjobs=4",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--fsync=64",
        ],
    );
    assert!(mounted.disk.largest_batch() > 1, "requests never shared a batch");
    mounted.stop();
}

#[test]
fn a_mounted_or_open_device_is_not_torn_away() {
    let mut mounted = Mounted::with_loop(64 * MIB);
    let device = mounted.device();
    run("e2fsprogs", "mkfs.ext4", &["-q", text(&device)]);
    let at = mounted.scratch("ext4");
    let file_system = FileSystem::mount(&device, at.clone());
    let busy = mounted.export.release().unwrap_err();
    assert_eq!(busy.source.kind(), ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("unmount it"), "{busy}");
    fs::write(at.join("still"), "works").unwrap();
    file_system.unmount();

    let open = File::open(&device).unwrap();
    let busy = mounted.export.release().unwrap_err();
    assert_eq!(busy.source.kind(), ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("has it open"), "{busy}");
    drop(open);
    run("e2fsprogs", "e2fsck", &["-fn", text(&device)]); // closing it did not take it down
    mounted.stop();
}

#[test]
fn what_the_kernel_had_cached_reaches_the_disk_before_the_device_goes() {
    let mounted = Mounted::with_loop(64 * MIB);
    let bytes = pattern(6, 8 << 20);
    OpenOptions::new().write(true).open(mounted.device()).unwrap().write_all_at(&bytes, MIB).unwrap();
    let disk = mounted.stop();
    assert!(disk.ram.bytes(MIB, bytes.len()) == bytes);
}
