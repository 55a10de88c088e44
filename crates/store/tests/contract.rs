//! Every local store keeps the contract, and what a file does beyond it.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use sealdisk_store::{AlignedBuf, FaultStore, FileStore, Image, MemoryStore, OpenMode, ReadExtent, Store};
use sealdisk_units::StoreRange;
use support::store_contract::{SIZE, keeps_every_promise, pattern, read, write};

#[test]
fn a_queue_of_reads_wakes_for_a_descriptor_too() {
    let file = sparse_file();
    let store = Arc::new(FileStore::open(file.path(), OpenMode::ReadWrite).unwrap());
    let mut queue = Arc::clone(&store).read_queue().unwrap();
    let (mut there, here) = std::os::unix::net::UnixStream::pair().unwrap();
    queue.start(1, 0, AlignedBuf::new(4096));
    assert!(!queue.wait(Some(here.as_fd())), "only the read is there");
    assert_eq!(queue.finished().unwrap().token, 1);
    there.write_all(b"x").unwrap();
    assert!(queue.wait(Some(here.as_fd())));
    assert!(queue.finished().is_none());
    // The end of the stream counts as well.
    (&here).read_exact(&mut [0]).unwrap();
    drop(there);
    assert!(queue.wait(Some(here.as_fd())));
}

#[test]
fn memory() {
    keeps_every_promise(Arc::new(MemoryStore::new(SIZE)));
}

#[test]
fn fault_store_without_faults() {
    keeps_every_promise(Arc::new(FaultStore::new(Image::new(SIZE), 512)));
}

fn sparse_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file
}

#[test]
fn file() {
    let file = sparse_file();
    keeps_every_promise(Arc::new(FileStore::open(file.path(), OpenMode::ReadWrite).unwrap()));
}

#[test]
fn file_in_memory_file_system() {
    // No direct I/O there on older kernels, and another way to be sparse.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    keeps_every_promise(Arc::new(FileStore::open(file.path(), OpenMode::ReadWrite).unwrap()));
}

#[test]
fn zeroing_gives_a_files_space_back() {
    use std::os::unix::fs::MetadataExt;
    let file = sparse_file();
    let store = FileStore::open(file.path(), OpenMode::ReadWrite).unwrap();
    write(&store, 0, &pattern(1, SIZE as usize));
    store.sync().unwrap();
    let full = file.as_file().metadata().unwrap().blocks() * 512;
    assert!(full >= SIZE);
    store.zero(StoreRange::new(0, SIZE)).unwrap();
    store.sync().unwrap();
    assert!(file.as_file().metadata().unwrap().blocks() * 512 < SIZE / 8);
    assert!(!store.is_allocated(StoreRange::new(0, SIZE)).unwrap());
}

#[test]
fn a_reserved_range_takes_space_and_is_what_it_was() {
    use std::os::unix::fs::MetadataExt;
    let file = sparse_file();
    let store = FileStore::open(file.path(), OpenMode::ReadWrite).unwrap();
    write(&store, 4096, &pattern(1, 100));
    let before = read(&store, 0, SIZE as usize);
    store.reserve(StoreRange::new(0, SIZE)).unwrap();
    assert_eq!(read(&store, 0, SIZE as usize), before);
    let metadata = file.as_file().metadata().unwrap();
    assert!(metadata.blocks() * 512 >= SIZE && metadata.len() == SIZE);
    assert!(store.reserve(StoreRange::new(SIZE - 4096, 8192)).is_err());
    assert_eq!(file.as_file().metadata().unwrap().len(), SIZE);
}

#[test]
fn a_second_writer_is_refused_and_readers_share() {
    let file = sparse_file();
    let writer = FileStore::open(file.path(), OpenMode::ReadWrite).unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let refused = FileStore::open(file.path(), mode).err().unwrap();
        assert_eq!(refused.source.kind(), std::io::ErrorKind::ResourceBusy);
    }
    drop(writer);
    let _reader = FileStore::open(file.path(), OpenMode::ReadOnly).unwrap();
    let _another = FileStore::open(file.path(), OpenMode::ReadOnly).unwrap();
    assert!(FileStore::open(file.path(), OpenMode::ReadWrite).is_err());
}

#[test]
fn what_is_not_a_disk_is_refused() {
    assert!(FileStore::open("/dev/null".as_ref(), OpenMode::ReadWrite).is_err());
    assert!(FileStore::open(".".as_ref(), OpenMode::ReadOnly).is_err());
    let missing = FileStore::open("no such file".as_ref(), OpenMode::ReadOnly).err().unwrap();
    assert_eq!(missing.source.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_file_cut_off_while_open_is_an_error_that_says_so() {
    let file = sparse_file();
    let store = FileStore::open(file.path(), OpenMode::ReadWrite).unwrap();
    File::options().write(true).open(file.path()).unwrap().set_len(4096).unwrap();
    let error = store.read(&mut [ReadExtent { offset: 8192, buf: &mut AlignedBuf::new(4096) }]).err().unwrap();
    assert!(error.to_string().contains("cut off"), "{error}");
}
