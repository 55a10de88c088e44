//! The file in a FUSE mount, as a client sees it.

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
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::Arc;

use mounted::{MIB, Mounted, pattern};
use ram_disk::RamDisk;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstatvfs, seek};
use rustix::io::Errno;
use sealdisk_export::fuse::{FuseExport, FuseOptions};
use sealdisk_export::{Disk, Export, become_io_flusher};
use sealdisk_units::{ByteRange, Lba};
use sealdisk_volume::Space;

fn open(mounted: &Mounted) -> File {
    OpenOptions::new().read(true).write(true).open(mounted.file()).unwrap()
}

fn range(offset: u64, len: u64) -> ByteRange {
    ByteRange::checked(offset, len, u64::MAX).unwrap()
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap()
}

#[test]
fn the_mount_is_one_private_file_of_the_disks_size() {
    let mounted = Mounted::new(5 * MIB);
    let directory = mounted.file().parent().unwrap();
    let names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    let metadata = fs::metadata(mounted.file()).unwrap();
    assert_eq!((metadata.len(), metadata.uid()), (5 * MIB, rustix::process::geteuid().as_raw()));
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    let statistics = fstatvfs(File::open(directory).unwrap()).unwrap();
    assert_eq!((statistics.f_bsize, statistics.f_blocks, statistics.f_bfree), (4096, 5 * MIB / 4096, 0));
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(mounted::text(directory))).unwrap();
    assert!(line.contains(" - fuse.sealdisk sealdisk "), "{line}");
    mounted.stop();
}

#[test]
fn bytes_go_to_the_disk_and_come_back_at_every_alignment() {
    let mounted = Mounted::new(8 * MIB);
    let file = open(&mounted);
    let mut expected = vec![0; 8 * MIB as usize];
    let mut cases = Vec::new();
    for offset in [0, 1, 511, 512, 4095, 4096, 4097, MIB - 1, MIB] {
        for len in [1, 2, 511, 4095, 4096, 4097, 65_536, MIB as usize - 1, MIB as usize, MIB as usize + 1, 3 << 20] {
            cases.push((offset, len));
        }
    }
    for (case, &(offset, len)) in cases.iter().enumerate() {
        let bytes = pattern(case as u64, len);
        file.write_all_at(&bytes, offset).unwrap();
        expected[offset as usize..offset as usize + len].copy_from_slice(&bytes);
        let mut back = vec![0; len];
        file.read_exact_at(&mut back, offset).unwrap();
        assert!(back == bytes, "{len} bytes at {offset}");
        assert!(mounted.disk.ram.bytes(0, expected.len()) == expected, "beside {len} bytes at {offset}");
    }
    assert!(fs::read(mounted.file()).unwrap() == expected);
}

#[test]
fn requests_across_the_end_are_short_and_beyond_it_find_nothing() {
    let mounted = Mounted::new(MIB + 512);
    let file = open(&mounted);
    let end = MIB + 512;
    let mut buf = vec![0; 8192];
    assert_eq!(file.write_at(&pattern(1, 8192), end - 100).unwrap(), 100);
    assert_eq!(file.read_at(&mut buf, end - 100).unwrap(), 100);
    assert_eq!(buf[..100], pattern(1, 8192)[..100]);
    assert_eq!(file.read_at(&mut buf, end).unwrap(), 0);
    assert_eq!(file.read_at(&mut buf, end + MIB).unwrap(), 0);
    assert_eq!(file.write_at(b"x", end).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(mounted.disk.size(), end);
    assert_eq!(file.metadata().unwrap().len(), end);
}

#[test]
fn many_threads_read_and_write_at_once() {
    let mounted = Mounted::new(64 * MIB);
    let file = Arc::new(open(&mounted));
    let threads: Vec<_> = (0..32)
        .map(|index| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                for round in 0..50 {
                    let offset = index * 2 * MIB + round * 4096;
                    let bytes = pattern(index * 100 + round, 4096 * (1 + round as usize % 7));
                    file.write_all_at(&bytes, offset).unwrap();
                    let mut back = vec![0; bytes.len()];
                    file.read_exact_at(&mut back, offset).unwrap();
                    assert!(back == bytes);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn every_kind_of_sync_flushes_the_disk_and_hears_of_its_failure() {
    let mounted = Mounted::new(MIB);
    let file = open(&mounted);
    file.write_all_at(b"x", 0).unwrap();
    let before = mounted.disk.ram.flushes();
    file.sync_all().unwrap();
    assert_eq!(mounted.disk.ram.flushes(), before + 1);
    file.sync_data().unwrap();
    assert_eq!(mounted.disk.ram.flushes(), before + 2);
    let synchronous = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(mounted.file()).unwrap();
    synchronous.write_all_at(b"y", 0).unwrap();
    assert_eq!(mounted.disk.ram.flushes(), before + 3);
    mounted.disk.fail_flushes(true);
    assert_eq!(errno(&synchronous.write_at(b"z", 0).unwrap_err()), libc::EIO);
    file.write_all_at(b"z", 0).unwrap();
    assert_eq!(errno(&file.sync_all().unwrap_err()), libc::EIO);
    mounted.disk.fail_flushes(false);
}

#[test]
fn a_panic_of_the_disk_is_an_error_of_one_request() {
    let mounted = Mounted::new(MIB);
    let file = open(&mounted);
    for _ in 0..10 {
        mounted.disk.panic_in_flush();
        assert_eq!(errno(&file.sync_all().unwrap_err()), libc::EIO);
    }
    file.sync_all().unwrap();
    assert!(mounted.export.is_serving());
}

#[test]
fn the_serving_threads_do_not_wait_for_writeback_to_get_memory_where_that_is_allowed() {
    /// `PF_MEMALLOC_NOIO` and `PF_LOCAL_THROTTLE` of Linux `include/linux/sched.h`, which PR_SET_IO_FLUSHER sets.
    const FLUSHER: u64 = 0x0008_0000 | 0x0010_0000;
    let mounted = Mounted::new(MIB);
    fs::read(mounted.file()).unwrap();
    let mut serving = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // Threads of other tests may end meanwhile.
        let Ok(stat) = fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        let flags: u64 = fields.split(' ').nth(6).unwrap().parse().unwrap();
        if name.contains("(fuse-") && flags & FLUSHER == FLUSHER {
            serving += 1;
        }
    }
    match become_io_flusher() {
        Ok(()) => assert!(serving >= FuseOptions::default().threads.get(), "{serving} threads"),
        // Root in a container may lack CAP_SYS_RESOURCE: then the threads do, too, and served nevertheless.
        Err(error) => assert_eq!((error.kind(), serving), (ErrorKind::PermissionDenied, 0)),
    }
    mounted.stop();
}

#[test]
fn fallocate_zeroes_and_frees_but_never_grows() {
    let mounted = Mounted::new(4 * MIB);
    let file = open(&mounted);
    file.write_all_at(&pattern(3, 4 << 20), 0).unwrap();

    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, MIB).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, 2 * MIB + 100, 5000).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4 * MIB - 4096, MIB).unwrap();
    let expected = [
        (range(4096, MIB), Space::Free),
        (range(2 * MIB + 100, 5000), Space::Keep),
        (range(4 * MIB - 4096, 4096), Space::Free),
    ];
    assert_eq!(mounted.disk.zeroed(), expected);
    let mut bytes = pattern(3, 4 << 20);
    for (zeroed, _) in expected {
        bytes[zeroed.offset() as usize..zeroed.end() as usize].fill(0);
    }
    assert!(fs::read(mounted.file()).unwrap() == bytes);

    assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 4 * MIB - 1, 2), Err(Errno::PERM));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(mounted.disk.zeroed().len(), 3);
}

#[test]
fn holes_are_found_by_seeking() {
    let mounted = Mounted::new(64 * MIB);
    let file = open(&mounted);
    file.write_all_at(&[1; 4096], 40 * MIB).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(40 * MIB));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Data(40 * MIB + 7)), Ok(40 * MIB + 7));
    assert_eq!(seek(&file, SeekFrom::Hole(40 * MIB + 7)), Ok(40 * MIB + 4096));
    assert_eq!(seek(&file, SeekFrom::Data(41 * MIB)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(64 * MIB)), Err(Errno::NXIO));
    file.write_all_at(&[1; 4096], 64 * MIB - 4096).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(64 * MIB - 1)), Ok(64 * MIB));
}

#[test]
fn neither_names_nor_size_nor_permissions_change() {
    let mounted = Mounted::new(MIB);
    let (path, other) = (mounted.file(), mounted.file().with_file_name("other"));
    let refused = |result: io::Result<()>| assert_eq!(errno(&result.unwrap_err()), libc::EPERM);
    refused(fs::write(&other, "x"));
    refused(fs::create_dir(&other));
    refused(fs::remove_file(path));
    refused(fs::rename(path, &other));
    refused(fs::hard_link(path, &other));
    refused(std::os::unix::fs::symlink("x", &other));
    refused(File::create(path).map(drop)); // O_TRUNC
    refused(open(&mounted).set_len(0));
    refused(open(&mounted).set_len(2 * MIB));
    refused(fs::set_permissions(path, fs::Permissions::from_mode(0o644)));
    refused(open(&mounted).set_modified(std::time::SystemTime::UNIX_EPOCH));
    open(&mounted).set_len(MIB).unwrap(); // changes nothing
    assert_eq!(fs::metadata(&other).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_read_only_disk_is_a_read_only_file() {
    let mounted = Mounted::with(RamDisk::new(MIB).read_only());
    let error = OpenOptions::new().write(true).open(mounted.file()).unwrap_err();
    assert_eq!(errno(&error), libc::EROFS);
    assert_eq!(fs::metadata(mounted.file()).unwrap().mode() & 0o777, 0o400);
    assert_eq!(fs::read(mounted.file()).unwrap().len(), MIB as usize);
}

#[test]
fn a_bad_sector_is_eio_and_its_neighbours_are_not() {
    let mounted = Mounted::new(8 * MIB);
    let file = open(&mounted);
    file.write_all_at(&pattern(9, 8 << 20), 0).unwrap();
    mounted.disk.ram.break_sector(Lba(100));
    let mut sector = [0; 4096];
    for lba in [98, 99, 101, 102] {
        file.read_exact_at(&mut sector, lba * 4096).unwrap();
        assert_eq!(sector, mounted.disk.ram.bytes(lba * 4096, 4096)[..]);
    }
    assert_eq!(errno(&file.read_at(&mut sector, 100 * 4096).unwrap_err()), libc::EIO);
    // Many at once, so that good and bad ones share batches.
    let file = Arc::new(file);
    let threads: Vec<_> = (0..64u64)
        .map(|lba| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                let mut sector = [0; 4096];
                for _ in 0..20 {
                    assert_eq!(file.read_at(&mut sector, (lba + 68) * 4096).is_err(), lba + 68 == 100);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn shared_mappings_are_refused_and_private_ones_show_the_disk() {
    let mounted = Mounted::new(MIB);
    let file = open(&mounted);
    file.write_all_at(&pattern(5, 4096), 0).unwrap();
    let map = |flags| {
        // SAFETY: a new mapping at an address of the kernel's choice replaces none.
        unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd(), 0)
        }
    };
    assert_eq!(map(libc::MAP_SHARED), libc::MAP_FAILED);
    assert_eq!(errno(&io::Error::last_os_error()), libc::ENODEV);
    let private = map(libc::MAP_PRIVATE);
    assert_ne!(private, libc::MAP_FAILED);
    // SAFETY: the mapping is 4096 bytes long, private to this test, and ends after the last use.
    unsafe {
        assert_eq!(std::slice::from_raw_parts(private.cast::<u8>(), 4096), pattern(5, 4096));
        assert_eq!(libc::munmap(private, 4096), 0);
    }
}

#[test]
fn calls_that_the_file_does_not_know_are_refused_and_do_no_harm() {
    let mounted = Mounted::new(MIB);
    let file = open(&mounted);
    // SAFETY: an ioctl that no driver knows touches no memory.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), 0x1234, 0) }, -1);
    assert_eq!(errno(&io::Error::last_os_error()), libc::ENOTTY);
    assert!(rustix::fs::fgetxattr(&file, "user.x", &mut [0u8; 8]).is_err());
    assert!(rustix::fs::fsetxattr(&file, "user.x", b"y", rustix::fs::XattrFlags::empty()).is_err());
    let target = mounted.scratch("copy").join("file");
    assert_eq!(fs::copy(mounted.file(), target).unwrap(), MIB); // copy_file_range, sendfile or read
    assert!(mounted.export.is_serving());
}

#[test]
fn an_open_file_keeps_the_mount_and_closing_it_lets_it_go() {
    let mut mounted = Mounted::new(MIB);
    let mut file = open(&mounted);
    let error = mounted.export.release().unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("is in use"), "{error}");
    file.read_exact(&mut [0; 4096]).unwrap();
    assert!(mounted.export.is_serving());
    drop(file);
    mounted.export.release().unwrap();
    let path = mounted.file().to_owned();
    mounted.stop();
    assert!(!path.exists());
}

#[test]
fn someone_else_may_unmount_it() {
    let mounted = Mounted::new(MIB);
    mounted::run("mount", "umount", &[mounted::text(mounted.file().parent().unwrap())]);
    while mounted.export.is_serving() {
        std::thread::yield_now();
    }
    mounted.stop();
}

#[test]
fn a_mountpoint_that_is_being_served_is_not_taken_over() {
    let mounted = Mounted::new(MIB);
    let mountpoint = mounted.file().parent().unwrap();
    let second = FuseExport::mount(Arc::new(RamDisk::new(MIB)), mountpoint, &FuseOptions::default());
    assert_eq!(second.err().unwrap().source.kind(), ErrorKind::ResourceBusy);
    let options = FuseOptions { file_name: "../x".into(), ..FuseOptions::default() };
    let bad_name = FuseExport::mount(Arc::new(RamDisk::new(MIB)), mountpoint, &options);
    assert_eq!(bad_name.err().unwrap().source.kind(), ErrorKind::InvalidInput);
    mounted.stop();
}
