//! What every store promises: one body of tests, and only the constructor differs.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealdisk_store::{AlignedBuf, ReadExtent, Store, WriteExtent};
use sealdisk_units::StoreRange;

/// The size of a store that is to be tested. It holds zeros.
pub const SIZE: u64 = 8 << 20;

/// Writes some bytes.
pub fn write(store: &dyn Store, offset: u64, buf: &[u8]) {
    store.write(&[WriteExtent { offset, buf }]).unwrap();
}

/// Reads some bytes.
pub fn read(store: &dyn Store, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = AlignedBuf::new(len);
    store.read(&mut [ReadExtent { offset, buf: &mut buf }]).unwrap();
    buf.to_vec()
}

/// Bytes that differ with `seed`.
pub fn pattern(seed: u64, len: usize) -> AlignedBuf {
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

/// Everything that a store promises, including its queue of reads if it has one.
pub fn keeps_every_promise(store: Arc<dyn Store>) {
    keeps_the_contract(&*store);
    reads_in_any_order(store);
}

/// Reads in a queue, in pieces of many sizes and more than are in flight together, beside one that is beyond the end.
fn reads_in_any_order(store: Arc<dyn Store>) {
    let content = pattern(9, 2 << 20);
    write(&*store, 0, &content);
    let Some(mut queue) = Arc::clone(&store).read_queue() else { return };
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
