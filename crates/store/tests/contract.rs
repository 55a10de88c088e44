//! One body of tests, every store: only the constructor differs.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use sealdisk_store::{AlignedBuf, FaultStore, FileStore, Image, MemoryStore, OpenMode, ReadExtent, Store, WriteExtent};
use sealdisk_units::StoreRange;

const SIZE: u64 = 8 << 20;

fn write(store: &dyn Store, offset: u64, buf: &[u8]) {
    store.write(&[WriteExtent { offset, buf }]).unwrap();
}

fn read(store: &dyn Store, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = AlignedBuf::new(len);
    store.read(&mut [ReadExtent { offset, buf: &mut buf }]).unwrap();
    buf.to_vec()
}

fn pattern(seed: u64, len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len);
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = (seed.wrapping_mul(31).wrapping_add(i as u64).wrapping_mul(2_654_435_761) >> 16) as u8;
    }
    buf
}

fn keeps_the_contract(store: &dyn Store) {
    assert_eq!(store.size().unwrap(), SIZE);
    assert!(store.write_atomicity().is_power_of_two() && store.write_atomicity() >= 512);
    assert!(read(store, 0, SIZE as usize).iter().all(|&b| b == 0), "never written reads as zero");

    // Aligned and unaligned, small and large.
    let (a, b, c) = (pattern(1, 4096), pattern(2, 3 << 20), pattern(3, 1));
    write(store, 4096, &a);
    write(store, 1 << 20, &b);
    write(store, 5, &c);
    write(store, 777, &a[..1000]);
    assert_eq!(read(store, 4096, 4096), a.to_vec());
    assert_eq!(read(store, 1 << 20, b.len()), b.to_vec());
    assert_eq!(read(store, 5, 1), c.to_vec());
    assert_eq!(read(store, 777, 1000), a[..1000]);
    assert_eq!(read(store, 4, 3), [0, c[0], 0]);

    // Hundreds of extents at once: more than are in flight together.
    let pages: Vec<AlignedBuf> = (0..300).map(|i| pattern(100 + i, 4096)).collect();
    let extents: Vec<_> = pages
        .iter()
        .enumerate()
        .map(|(i, page)| WriteExtent { offset: (5 << 20) + i as u64 * 8192, buf: page })
        .collect();
    store.write(&extents).unwrap();
    let mut back: Vec<AlignedBuf> = (0..300).map(|_| AlignedBuf::new(4096)).collect();
    let mut reads: Vec<_> = back
        .iter_mut()
        .enumerate()
        .rev()
        .map(|(i, buf)| ReadExtent { offset: (5 << 20) + i as u64 * 8192, buf: &mut buf[..] })
        .collect();
    store.read(&mut reads).unwrap();
    assert!(pages.iter().zip(&back).all(|(page, back)| page[..] == back[..]));

    // Nothing beyond the end, and nothing by half.
    for offset in [SIZE, SIZE - 1, u64::MAX - 4096] {
        assert!(store.write(&[WriteExtent { offset, buf: &a }]).is_err());
        assert!(store.read(&mut [ReadExtent { offset, buf: &mut AlignedBuf::new(4096) }]).is_err());
    }
    assert_eq!(store.size().unwrap(), SIZE, "a write beyond the end does not lengthen the store");

    // Zeroing, whole pages and ragged ends.
    store.zero(StoreRange::new((1 << 20) + 100, (1 << 20) + 1)).unwrap();
    let after = read(store, 1 << 20, b.len());
    assert_eq!(after[..100], b[..100]);
    assert!(after[100..(1 << 20) + 101].iter().all(|&byte| byte == 0));
    assert_eq!(after[(1 << 20) + 101..], b[(1 << 20) + 101..]);
    store.sync().unwrap();
    assert!(store.is_allocated(StoreRange::new(1 << 20, 4096)).unwrap());

    // Shrinking forgets, growing adds zeros.
    store.resize(1 << 20).unwrap();
    assert!(store.read(&mut [ReadExtent { offset: 1 << 20, buf: &mut AlignedBuf::new(1) }]).is_err());
    store.resize(SIZE).unwrap();
    assert!(read(store, 1 << 20, 4 << 20).iter().all(|&byte| byte == 0));

    // Many threads at once.
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for round in 0..50 {
                    let page = pattern(thread * 1000 + round, 8192);
                    let offset = (1 << 20) * thread + round * 8192;
                    write(store, offset, &page);
                    assert!(read(store, offset, 8192) == page.to_vec());
                }
            });
        }
    });
}

fn keeps_every_promise(store: impl Store + 'static) {
    let store: Arc<dyn Store> = Arc::new(store);
    keeps_the_contract(&*store);
    reads_in_any_order(store);
}

/// Reads in a queue, in pieces of many sizes and more than are in flight together, beside one that is beyond the end.
fn reads_in_any_order(store: Arc<dyn Store>) {
    let content = pattern(9, 2 << 20);
    write(&*store, 0, &content);
    let mut queue = Arc::clone(&store).read_queue().unwrap();
    let mut wanted: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for token in 0..300u64 {
        let len = [4096, 65536, 1, 5000, 0][token as usize % 5];
        let offset = (token as usize * 7919 * [4096, 1][token as usize % 2]) % (content.len() - len);
        wanted.insert(token, (offset, len));
        queue.start(token, offset as u64, AlignedBuf::new(len));
    }
    queue.start(1000, SIZE, AlignedBuf::new(4096));
    queue.start(1001, SIZE - 4096, AlignedBuf::new(8192));
    let mut refused = 0;
    while !wanted.is_empty() || refused < 2 {
        queue.wait(None);
        while let Some(read) = queue.finished() {
            match wanted.remove(&read.token) {
                Some((offset, len)) => {
                    read.result.unwrap();
                    assert_eq!(read.buf[..], content[offset..offset + len]);
                }
                None => {
                    assert!(read.token >= 1000 && read.result.is_err(), "read {} twice, or beyond the end", read.token);
                    refused += 1;
                }
            }
        }
    }
    // Dropped with reads in flight: whoever looks for memory that was freed too early finds it here.
    for token in 0..300 {
        queue.start(token, token * 4096, AlignedBuf::new(4096));
    }
    queue.submit();
}

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
    keeps_every_promise(MemoryStore::new(SIZE));
}

#[test]
fn fault_store_without_faults() {
    keeps_every_promise(FaultStore::new(Image::new(SIZE), 512));
}

fn sparse_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    file
}

#[test]
fn file() {
    let file = sparse_file();
    keeps_every_promise(FileStore::open(file.path(), OpenMode::ReadWrite).unwrap());
}

#[test]
fn file_in_memory_file_system() {
    // No direct I/O there on older kernels, and another way to be sparse.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    keeps_every_promise(FileStore::open(file.path(), OpenMode::ReadWrite).unwrap());
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
