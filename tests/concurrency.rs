//! Many threads on one volume: nobody sees what was never written, and nothing is lost.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{Payload, PlainPayload};
use sealdisk_store::{Choices, DeferredReads, MemoryStore, ReadExtent, ReadQueue, Store, StoreError, WriteExtent};
use sealdisk_units::{ByteRange, SECTOR_SIZE, StoreRange};
use sealdisk_volume::{OpenOptions, Space, Volume};
use support::{Fixture, Random, key, read, write};

const SECTOR: u64 = SECTOR_SIZE as u64;
/// As little memory as a volume takes: caches that are too small for anything.
const NO_MEMORY: OpenOptions = OpenOptions { read_only: false, memory: 0 };

/// A memory store that takes its time, so that threads meet in the middle of things, and counts syncs.
struct SlowStore {
    inner: MemoryStore,
    longest_nap: u64,
    naps: AtomicU64,
    syncs: AtomicU64,
}

impl SlowStore {
    fn new(inner: MemoryStore, longest_nap: u64) -> Arc<Self> {
        Arc::new(Self { inner, longest_nap, naps: AtomicU64::new(0), syncs: AtomicU64::new(0) })
    }

    fn nap(&self) {
        if self.longest_nap > 0 {
            let micros = Random::new(self.naps.fetch_add(1, Ordering::Relaxed)).below(self.longest_nap);
            std::thread::sleep(Duration::from_micros(micros));
        }
    }
}

impl Store for SlowStore {
    fn size(&self) -> Result<u64, StoreError> {
        self.inner.size()
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        self.inner.resize(size)
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        self.nap();
        extents.iter_mut().try_for_each(|extent| self.inner.read(std::slice::from_mut(extent)))?;
        self.nap();
        Ok(())
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        extents.iter().try_for_each(|extent| self.inner.write(std::slice::from_ref(extent)))?;
        self.nap();
        Ok(())
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        self.nap();
        self.inner.zero(range)
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.nap();
        Ok(())
    }

    fn read_queue(self: Arc<Self>) -> Option<Box<dyn ReadQueue>> {
        Some(Box::new(DeferredReads::new(self)))
    }

    fn write_atomicity(&self) -> u32 {
        self.inner.write_atomicity()
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        self.inner.is_allocated(range)
    }
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    let mut buf = vec![0; SECTOR_SIZE];
    let len = if version.is_multiple_of(2) { SECTOR_SIZE } else { 200 };
    Random::new(lba << 20 | version).fill(&mut buf[..len]);
    buf
}

/// Readers make the cache forget pages of seals while a writer is changing them.
#[test]
fn no_seal_is_lost_to_a_crowded_cache() {
    let size = 64 << 20;
    let fixture = Fixture { cipher: CipherName::Aegis256, fold: false, size, journal_len: 4 << 20, atomicity: 4096 };
    let store = SlowStore::new(MemoryStore::from_image(fixture.formatted(), 4096), 100);
    let payload = Payload::Sealed(fixture.payload());
    let volume = Volume::open(store.clone(), "test", &payload, &key(), NO_MEMORY).unwrap();
    let count = size / SECTOR;
    for lba in 0..count {
        write(&volume, lba * SECTOR, &content(lba, 0)).unwrap();
    }
    volume.flush().unwrap();
    while volume.tidy(true).unwrap() {}
    let stop = AtomicBool::new(false);
    let mut versions = BTreeMap::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut buf = vec![0; SECTOR_SIZE];
                while !stop.load(Ordering::SeqCst) {
                    read(volume, random.below(count) * SECTOR, &mut buf).unwrap();
                }
            });
        }
        let mut random = Random::new(99);
        for round in 1..400 {
            for _ in 0..20 {
                let lba = random.below(count);
                versions.insert(lba, round);
                write(&volume, lba * SECTOR, &content(lba, round)).unwrap();
            }
            volume.flush().unwrap();
            volume.tidy(true).unwrap();
            volume.tidy(true).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    volume.close().unwrap();
    let volume = fixture.open(store).unwrap();
    let mut buf = vec![0; SECTOR_SIZE];
    for lba in 0..count {
        read(&volume, lba * SECTOR, &mut buf).unwrap();
        assert!(buf == content(lba, versions.get(&lba).copied().unwrap_or(0)), "sector {lba}");
    }
}

/// Threads with sectors of their own, side by side in the same seal pages, while a fourth does background work.
fn stress(cipher: CipherName, fold: bool, atomicity: u32, longest_nap: u64) {
    const THREADS: u64 = 3;
    const OPS: u64 = 3000;
    let fixture = Fixture { cipher, fold, size: 3 * 1008 * SECTOR, journal_len: 1 << 20, atomicity };
    let store = SlowStore::new(MemoryStore::from_image(fixture.formatted(), atomicity), longest_nap);
    let payload = Payload::Sealed(fixture.payload());
    let volume = Volume::open(store.clone(), "test", &payload, &key(), NO_MEMORY).unwrap();
    let per_object = fixture.layout().sectors_per_object();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u64.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                volume.tidy(n % 7 == 0).unwrap();
            }
        });
        let worker = |thread: u64| {
            let volume = &volume;
            move || {
                let mut random = Random::new(thread);
                let mut state: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
                let mut buf = vec![0; SECTOR_SIZE];
                let mut queue = volume.read_queue().unwrap();
                for n in 0..OPS {
                    let lba = random.below(per_object / THREADS) * THREADS + thread;
                    let newest = state.entry(lba).or_insert_with(|| vec![0; SECTOR_SIZE]);
                    match random.below(12) {
                        0..=4 => {
                            *newest = content(lba, n);
                            write(volume, lba * SECTOR, newest).unwrap();
                        }
                        5 => {
                            newest[10..20].fill(n as u8);
                            write(volume, lba * SECTOR + 10, &[n as u8; 10]).unwrap();
                        }
                        6 => {
                            newest.fill(0);
                            let range = ByteRange::checked(lba * SECTOR, SECTOR, volume.size()).unwrap();
                            volume.zero(range, Space::Free).unwrap();
                        }
                        7 => volume.flush().unwrap(),
                        // The second object belongs to one thread, which discards it as a whole.
                        8 if thread == 0 => {
                            let base = per_object;
                            let count = random.below(100);
                            for lba in base..base + count {
                                write(volume, lba * SECTOR, &content(lba, 7)).unwrap();
                            }
                            if count > 0 {
                                read(volume, base * SECTOR, &mut buf).unwrap();
                                assert!(buf == content(base, 7));
                            }
                            let range = ByteRange::checked(base * SECTOR, per_object * SECTOR, volume.size()).unwrap();
                            volume.zero(range, Space::Free).unwrap();
                            read(volume, base * SECTOR, &mut buf).unwrap();
                            assert!(buf.iter().all(|byte| *byte == 0), "a discarded object reads as zeros");
                        }
                        // Read while it is being overwritten: it is what it was, or what it becomes.
                        9 => {
                            let range = ByteRange::checked(lba * SECTOR, SECTOR, volume.size()).unwrap();
                            queue.start(n, range);
                            let before = std::mem::replace(newest, content(lba, n));
                            write(volume, lba * SECTOR, newest).unwrap();
                            if random.one_in(2) {
                                volume.flush().unwrap();
                            }
                            queue.start(n + OPS, range);
                            while queue.in_flight() > 0 {
                                queue.wait(None);
                                let found = queue.finished().unwrap();
                                found.result.unwrap();
                                let is_new = found.buf[..] == newest[..];
                                let may_be_old = found.token == n;
                                let is_right = is_new || may_be_old && found.buf[..] == before[..];
                                assert!(is_right, "sector {lba}, thread {thread}, operation {n}");
                            }
                        }
                        _ => {
                            read(volume, lba * SECTOR, &mut buf).unwrap();
                            assert!(&buf == newest, "sector {lba}, thread {thread}, operation {n}");
                        }
                    }
                }
                state
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(worker(thread))).collect();
        let states: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::SeqCst);
        let mut buf = vec![0; SECTOR_SIZE];
        for (lba, newest) in states.into_iter().flat_map(|state| state.unwrap()) {
            read(&volume, lba * SECTOR, &mut buf).unwrap();
            assert!(buf == newest, "sector {lba} at the end");
        }
    });
    volume.close().unwrap();
    let volume = fixture.open(store).unwrap();
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().not_authentic, []);
}

#[test]
fn threads_side_by_side() {
    stress(CipherName::Aegis256, true, 4096, 0);
    stress(CipherName::Aegis256, false, 512, 50);
}

#[test]
fn threads_side_by_side_without_tags() {
    stress(CipherName::Aes256XtsRandom, true, 4096, 0);
    stress(CipherName::Aes256XtsRandom, false, 512, 50);
}

#[test]
fn flushes_that_meet_share_a_sync() {
    let fixture = Fixture {
        cipher: CipherName::Aegis256,
        fold: false,
        size: 3000 * SECTOR,
        journal_len: 4 << 20,
        atomicity: 4096,
    };
    let store = SlowStore::new(MemoryStore::from_image(fixture.formatted(), 4096), 3000);
    let volume = fixture.open(store.clone()).unwrap();
    let before = store.syncs.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let volume = &volume;
            scope.spawn(move || {
                for n in 0..50 {
                    write(volume, thread * SECTOR, &content(thread, n)).unwrap();
                    volume.flush().unwrap();
                }
            });
        }
    });
    let syncs = store.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs < 400, "{syncs} syncs for 400 flushes of 8 threads");
}

#[test]
fn a_partial_write_undoes_nothing_of_a_large_one_beside_it() {
    let store = SlowStore::new(MemoryStore::new(1 << 20), 200);
    let payload = PlainPayload { offset: 0, size: None, sector_size: 4096, iv_tweak: 0 };
    let volume = Volume::open(store, "test", &Payload::Plain(payload), &key(), OpenOptions::default()).unwrap();
    let small = 5 * SECTOR_SIZE + 100..5 * SECTOR_SIZE + 110;
    for round in 1..100u8 {
        std::thread::scope(|scope| {
            scope.spawn(|| write(&volume, 0, &[round; 65536]).unwrap());
            scope.spawn(|| write(&volume, small.start as u64, &[255; 10]).unwrap());
        });
        let mut buf = vec![0; 65536];
        read(&volume, 0, &mut buf).unwrap();
        let undone = buf.iter().enumerate().find(|(i, byte)| **byte != round && !small.contains(i));
        assert_eq!(undone, None, "round {round}");
    }
}
