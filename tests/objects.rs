//! Volumes on a store that changes objects as a whole, in every layout: what was answered survives a crash at any point,
//! what was changed behind the volume's back is noticed, and an operation that fails takes nothing else with it.
//!
//! `SEALDISK_CRASH_STATES=10000000` runs longer; `SEALDISK_SEED=…` repeats a run.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, ObjectLayout, ObjectNumber, Payload, SealPlace, SealedPayload, ZoneNumber};
use sealdisk_store::{
    Choices, MemoryObjects, MemoryStore, ObjectImage, ObjectStore, ObjectWrite, Step, Store, WriteExtent,
};
use sealdisk_units::{ByteRange, Lba, Lineage, OBJECT_SIZE, SECTOR_SIZE};
use sealdisk_volume::{OpenError, OpenOptions, Space, State, Volume, VolumeErrorKind};
use support::{Contents, Model, Op, Random, authenticated_ciphers, key, read, write};

const LAYOUTS: [LayoutName; 4] = [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];
const SECTOR: u64 = SECTOR_SIZE as u64;
/// States per run of the suite.
const STATES: u64 = 20_000;
const OPS: usize = 60;

/// What a test's volume is like.
#[derive(Debug, Clone, Copy)]
struct Fixture {
    payload: SealedPayload,
    size: u64,
    /// Bytes for caches; with little, slots are not in memory.
    memory: usize,
}

impl Fixture {
    fn new(cipher: CipherName, layout: LayoutName, fold: bool, size: u64) -> Self {
        let payload = SealedPayload { cipher, layout, fold, lineage: Lineage([9; 16]), offset: 4 * OBJECT_SIZE };
        Self { payload, size, memory: 64 << 20 }
    }

    fn random(random: &mut Random) -> Self {
        let cipher = match random.below(8) {
            0 => CipherName::Aes256XtsRandom,
            n => authenticated_ciphers().cycle().nth(n as usize).unwrap(),
        };
        let layout = LAYOUTS[random.below(4) as usize];
        // Two objects and some, the last sector ragged or not.
        let size = (2 * 1024 + 300) * SECTOR + [0, 512, 4095][random.below(3) as usize];
        let memory = if random.one_in(2) { 0 } else { 64 << 20 };
        Self { memory, ..Self::new(cipher, layout, random.one_in(2), size) }
    }

    fn layout(&self) -> ObjectLayout {
        ObjectLayout::new(self.payload.layout, self.payload.offset, self.payload.cipher.seal_len()).unwrap()
    }

    /// The store's object with the first map page.
    fn object_of_map(&self) -> u64 {
        self.layout().rows().map_page(ZoneNumber(0)).offset / self.payload.layout.object_size()
    }

    fn store_size(&self) -> u64 {
        Volume::object_store_size(&Payload::Sealed(self.payload), self.size)
    }

    fn keys(&self) -> bool {
        self.payload.layout == LayoutName::Omap
    }

    fn formatted(&self) -> ObjectImage {
        let store = MemoryObjects::new(self.store_size(), self.payload.layout.object_size(), self.keys());
        Volume::format(&store, &Payload::Sealed(self.payload), &key(), self.size).unwrap();
        store.image()
    }

    fn store(&self, image: ObjectImage) -> Arc<MemoryObjects> {
        Arc::new(MemoryObjects::from_image(image, self.store_size(), self.payload.layout.object_size(), self.keys()))
    }

    fn try_open(&self, store: Arc<MemoryObjects>, read_only: bool) -> Result<Volume, OpenError> {
        let options = OpenOptions { read_only, memory: self.memory };
        Volume::open(store, "test", &Payload::Sealed(self.payload), &key(), options)
    }

    fn open(&self, store: Arc<MemoryObjects>) -> Volume {
        self.try_open(store, false).unwrap()
    }
}

/// One workload and its crashes. Returns how many states were checked.
fn run(seed: u64) -> u64 {
    let random = &mut Random::new(seed);
    let fixture = Fixture::random(random);
    let store = fixture.store(fixture.formatted());
    let mut model = Model::new(fixture.size);
    let volume = fixture.open(store.clone());
    let per_object = fixture.layout().rows().sectors_per_object();
    for _ in 0..OPS {
        let op = Model::random_op(fixture.size, per_object, random);
        model.apply(&volume, &op, random, || store.call_count());
        // What was answered is durable without a flush: the model is told of one that nobody asked for.
        model.apply(&volume, &Op::Flush, random, || store.call_count());
    }
    model.check_now(&volume).unwrap_or_else(|e| panic!("seed {seed}, before any crash: {e} ({fixture:?})"));
    if random.one_in(2) {
        volume.close().unwrap();
    }
    let mut checked = 0;
    let mut crashes = store.crashes();
    for at in 0..=store.call_count() {
        for _ in 0..2 {
            let told = |what: &str, error: &dyn std::fmt::Display| -> ! {
                panic!("seed {seed}, crash at call {at} of {}, {what}: {error} ({fixture:?})", store.call_count())
            };
            let read_only = random.one_in(3);
            let after = fixture.store(crashes.at(at, random));
            let volume = fixture.try_open(after.clone(), read_only).unwrap_or_else(|e| told("opening", &e));
            model.check_after_crash(&volume, at).unwrap_or_else(|e| told("reading", &e));
            checked += 1;
            // Go on, crash again at once, and look again.
            if !read_only && random.one_in(4) {
                let mut model = Model::new(fixture.size);
                let all = ByteRange::checked(0, fixture.size, fixture.size).unwrap();
                volume.zero(all, Space::Free).unwrap_or_else(|e| told("discarding", &e));
                for _ in 0..3 {
                    let op = Model::random_op(fixture.size, per_object, random);
                    model.apply(&volume, &op, random, || after.call_count());
                    model.apply(&volume, &Op::Flush, random, || after.call_count());
                }
                let again = after.call_count() - random.below(4).min(after.call_count() as u64) as usize;
                let again_image = fixture.store(after.crash(again, random));
                let volume = fixture.try_open(again_image, false).unwrap_or_else(|e| told("second opening", &e));
                if again == after.call_count() {
                    model.check_now(&volume).unwrap_or_else(|e| told("after a second crash", &e));
                } else {
                    let report = volume.check(&mut |_, _| {}).unwrap();
                    assert!(report.not_authentic.is_empty(), "seed {seed}, call {at}, {report:?} ({fixture:?})");
                }
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn what_was_answered_survives_a_crash_at_any_point() {
    let wanted = std::env::var("SEALDISK_CRASH_STATES").map_or(STATES, |text| text.parse().unwrap());
    let first = Random::seed_from_environment("objects");
    let (next, checked) = (AtomicU64::new(first), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while checked.load(Ordering::Relaxed) < wanted {
                    checked.fetch_add(run(next.fetch_add(1, Ordering::Relaxed)), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} states of {} workloads", checked.load(Ordering::Relaxed), next.load(Ordering::Relaxed) - first);
}

/// All layouts, a folding and a plain volume each, with something in them.
fn every(test: impl Fn(Fixture, Arc<MemoryObjects>)) {
    for layout in LAYOUTS {
        for (cipher, fold) in [(CipherName::Aegis256, false), (CipherName::Aes256Gcm, true)] {
            let fixture = Fixture::new(cipher, layout, fold, 3000 * SECTOR);
            let store = fixture.store(fixture.formatted());
            let volume = fixture.open(store.clone());
            for lba in [0, 1, 5, 1500, 2999] {
                write(&volume, lba * SECTOR, &content(lba, 1)).unwrap();
            }
            volume.close().unwrap();
            test(fixture, store);
        }
    }
}

/// A sector whose every byte depends on its number and on how often it was written; half of it can be folded.
fn content(lba: u64, round: u64) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_SIZE];
    Random::new(lba << 32 | round).fill(&mut sector[..SECTOR_SIZE / 2]);
    sector
}

fn expect(volume: &Volume, lba: u64, expected: &[u8], what: &str) {
    let mut buf = vec![0; SECTOR_SIZE];
    read(volume, lba * SECTOR, &mut buf).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(buf == expected, "{what}: sector {lba} is another");
}

fn expect_refused(volume: &Volume, lba: u64, what: &str) {
    let mut buf = vec![1; SECTOR_SIZE];
    let refused = read(volume, lba * SECTOR, &mut buf).expect_err(what);
    assert_eq!(refused.kind(), VolumeErrorKind::NotAuthentic, "{what}");
    assert!(buf.iter().all(|byte| *byte == 0), "{what}: something was given out");
}

#[test]
fn any_changed_byte_of_a_sector_is_noticed_and_others_stay_readable() {
    every(|fixture, store| {
        let layout = fixture.layout();
        let object = layout.store_object(ObjectNumber(0));
        let at = layout.index_of(Lba(5)) * layout.stride();
        for byte in [0, 1, 2047, 4000, 4095] {
            let changed = fixture.store(store.image());
            let mut old = [0];
            changed.image().bytes(object, at + byte, &mut old);
            let bytes = [old[0] ^ 1];
            let step = Step::Write(WriteExtent { offset: at + byte, buf: &bytes });
            apply(&changed, object, vec![step]);
            let volume = fixture.try_open(changed, true).unwrap();
            expect_refused(&volume, 5, &format!("byte {byte}, {fixture:?}"));
            expect(&volume, 1, &content(1, 1), "a neighbour");
        }
    });
}

fn apply(store: &MemoryObjects, object: u64, steps: Vec<Step<'_>>) {
    let mut writes = [ObjectWrite::new(object, steps)];
    store.write_objects(&mut writes);
    let [write] = writes;
    write.result.unwrap();
}

#[test]
fn an_object_that_was_removed_or_put_back_is_not_taken_for_zeros() {
    every(|fixture, store| {
        let layout = fixture.layout();
        let removed = fixture.store(store.image());
        apply(&removed, layout.store_object(ObjectNumber(1)), vec![Step::Remove]);
        let volume = fixture.try_open(removed, true).unwrap();
        expect_refused(&volume, 1500, "a removed object");
        expect(&volume, 5, &content(5, 1), "another object");

        // The map says that a discarded object is zero; what is put in its place does not come back.
        let discarded = fixture.store(store.image());
        let volume = fixture.open(discarded.clone());
        volume.zero(ByteRange::checked(0, fixture.size, fixture.size).unwrap(), Space::Free).unwrap();
        assert_eq!(discarded.image().numbers().filter(|number| *number > 5).count(), 0, "objects are removed");
        drop(volume);
        let volume = fixture.open(discarded);
        expect(&volume, 5, &[0; SECTOR_SIZE], "discarded");
        assert_eq!(volume.status().objects, Some(0));
    });
}

#[test]
fn a_map_page_that_was_put_back_alone_is_refused_once_the_volume_was_closed() {
    every(|fixture, store| {
        let map = fixture.object_of_map();
        let volume = fixture.open(store.clone());
        volume.zero(ByteRange::checked(0, fixture.size, fixture.size).unwrap(), Space::Free).unwrap();
        volume.close().unwrap();
        // A page that says that nothing exists: where it is taken, everything reads as zeros.
        let mut old = vec![0; SECTOR_SIZE];
        store.image().bytes(map, 0, &mut old);
        let put_back = |store: &MemoryObjects| {
            let store = fixture.store(store.image());
            apply(&store, map, vec![Step::Write(WriteExtent { offset: 0, buf: &old })]);
            fixture.try_open(store, true).unwrap()
        };
        let volume = fixture.open(store.clone());
        write(&volume, 5 * SECTOR, &content(5, 2)).unwrap();
        // This is what is left when a crash comes before the page.
        expect(&put_back(&store), 5, &[0; SECTOR_SIZE], "while the volume is open");
        let crashed = fixture.store(store.image());
        volume.close().unwrap();
        expect_refused(&put_back(&store), 5, "after closing");

        expect(&put_back(&crashed), 5, &[0; SECTOR_SIZE], "after a crash");
        fixture.open(crashed.clone()).close().unwrap();
        expect_refused(&put_back(&crashed), 5, "after a crash, opening and closing");
        let calls = crashed.call_count();
        fixture.open(crashed.clone()).close().unwrap();
        assert_eq!(crashed.call_count(), calls, "nothing is left to do");
        expect(&fixture.try_open(crashed, true).unwrap(), 5, &content(5, 2), "kept");
    });
}

#[test]
fn a_write_that_fails_fails_alone_and_leaves_what_was() {
    every(|fixture, store| {
        let layout = fixture.layout();
        let bad = layout.store_object(ObjectNumber(0));
        let volume = fixture.open(store.clone());
        for kind in [ErrorKind::StorageFull, ErrorKind::TimedOut] {
            store.fail(move |object| (object == bad).then_some(kind));
            let refused = write(&volume, 5 * SECTOR, &content(5, 2)).unwrap_err();
            let expected =
                if kind == ErrorKind::StorageFull { VolumeErrorKind::NoSpace } else { VolumeErrorKind::Store };
            assert_eq!(refused.kind(), expected);
            write(&volume, 1500 * SECTOR, &content(1500, 2)).unwrap();
            expect(&volume, 5, &content(5, 1), "what was");
        }
        store.heal();
        expect(&volume, 5, &content(5, 1), "what was, from the store");
        write(&volume, 5 * SECTOR, &content(5, 3)).unwrap();
        write(&volume, 6 * SECTOR, &content(6, 3)).unwrap();
        assert_eq!(volume.status().state, State::Healthy);
        volume.close().unwrap();
        let volume = fixture.try_open(store, true).unwrap();
        expect(&volume, 5, &content(5, 3), "after all");
        expect(&volume, 1500, &content(1500, 2), "the other object");
        assert!(volume.check(&mut |_, _| {}).unwrap().not_authentic.is_empty());
    });
}

#[test]
fn a_map_that_cannot_be_written_leaves_the_object_absent_and_the_next_try_is_good() {
    every(|fixture, store| {
        let map = fixture.object_of_map();
        let superblocks = fixture.payload.offset / fixture.payload.layout.object_size();
        let volume = fixture.open(store.clone());
        volume.zero(ByteRange::checked(0, fixture.size, fixture.size).unwrap(), Space::Free).unwrap();
        for bad in [map, superblocks, map, map] {
            store.fail(move |object| (object == bad).then_some(ErrorKind::StorageFull));
            assert!(write(&volume, 5 * SECTOR, &content(5, 2)).is_err());
            store.heal();
            expect(&volume, 5, &[0; SECTOR_SIZE], "not there");
            // A crash now finds the same.
            let after = fixture.try_open(fixture.store(store.image()), false).unwrap();
            expect(&after, 5, &[0; SECTOR_SIZE], "not there after a crash");
        }
        write(&volume, 5 * SECTOR, &content(5, 3)).unwrap();
        let after = fixture.try_open(fixture.store(store.image()), true).unwrap();
        expect(&after, 5, &content(5, 3), "there at last");
        expect(&after, 4, &[0; SECTOR_SIZE], "its neighbour");
    });
}

#[test]
fn a_map_page_that_cannot_be_read_now_keeps_writers_out() {
    every(|fixture, store| {
        let map = fixture.object_of_map();
        store.fail_reads(move |object| (object == map).then_some(ErrorKind::TimedOut));
        assert!(matches!(fixture.try_open(store.clone(), false), Err(OpenError::Store(_))));
        expect_refused(&fixture.try_open(store.clone(), true).unwrap(), 5, "an unread map");
        store.heal();
        expect(&fixture.open(store), 5, &content(5, 1), "read at last");
    });
}

/// What could not be read is an error of the store, of that sector alone.
#[test]
fn an_object_that_cannot_be_read_is_an_error_and_others_are_not_affected() {
    every(|fixture, store| {
        let bad = fixture.layout().store_object(ObjectNumber(1));
        let volume = fixture.open(store.clone());
        store.fail_reads(move |object| (object == bad).then_some(ErrorKind::TimedOut));
        let mut buf = vec![0; SECTOR_SIZE];
        assert_eq!(read(&volume, 1500 * SECTOR, &mut buf).unwrap_err().kind(), VolumeErrorKind::Store);
        expect(&volume, 5, &content(5, 1), "another object");
        store.heal();
        expect(&volume, 1500, &content(1500, 1), "again");
    });
}

#[test]
fn many_threads_lose_nothing_and_see_no_mixture() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 60;
    for layout in LAYOUTS {
        for cipher in [CipherName::Aegis256, CipherName::Aes256XtsRandom] {
            let fixture = Fixture { memory: 0, ..Fixture::new(cipher, layout, false, 1100 * SECTOR) };
            let store = fixture.store(fixture.formatted());
            let volume = fixture.open(store.clone());
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let volume = &volume;
                    scope.spawn(move || {
                        let mut random = Random::new(thread);
                        for round in 0..ROUNDS {
                            // Sectors of its own among everybody's, in pages and objects of everybody.
                            let lba = random.below(1100 / THREADS) * THREADS + thread;
                            write(volume, lba * SECTOR, &content(lba, round)).unwrap();
                            expect(volume, lba, &content(lba, round), "just written");
                            // A byte in a sector of everybody's.
                            write(volume, thread, &[round as u8]).unwrap();
                            let mut byte = [0];
                            read(volume, thread, &mut byte).unwrap();
                            if lba > 0 {
                                assert_eq!(byte[0], round as u8, "{layout} {cipher}");
                            }
                        }
                    });
                }
            });
            volume.close().unwrap();
            let volume = fixture.try_open(store, true).unwrap();
            let report = volume.check(&mut |_, _| {}).unwrap();
            assert!(report.not_authentic.is_empty() && report.unreadable.is_empty(), "{report:?}");
        }
    }
}

/// An object may be gone between a look at the map and the read; that is no forgery.
#[test]
fn reads_beside_discards_find_zeros_or_content() {
    for layout in LAYOUTS {
        let fixture = Fixture::new(CipherName::Aegis256, layout, false, 600 * SECTOR);
        let volume = fixture.open(fixture.store(fixture.formatted()));
        let all = ByteRange::checked(0, fixture.size, fixture.size).unwrap();
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut buf = vec![0; 8 * SECTOR_SIZE];
                    while stop.load(Ordering::Relaxed) == 0 {
                        read(&volume, 4 * SECTOR, &mut buf).unwrap();
                        for (sector, lba) in buf.chunks(SECTOR_SIZE).zip(4..) {
                            assert!(sector.iter().all(|byte| *byte == 0) || sector == content(lba, 1));
                        }
                    }
                });
            }
            let written: Vec<u8> = (4..12).flat_map(|lba| content(lba, 1)).collect();
            for _ in 0..300 {
                write(&volume, 4 * SECTOR, &written).unwrap();
                volume.zero(all, Space::Free).unwrap();
            }
            stop.store(1, Ordering::Relaxed);
        });
    }
}

#[test]
fn overwriting_folded_sectors_writes_them_alone() {
    for layout in [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap] {
        let fixture = Fixture::new(CipherName::Aegis256, layout, true, 1000 * SECTOR);
        let store = fixture.store(fixture.formatted());
        let volume = fixture.open(store.clone());
        write(&volume, 0, &[content(0, 1), content(1, 1)].concat()).unwrap();
        let object = fixture.layout().store_object(ObjectNumber(0));
        let slots = |store: &MemoryObjects| match fixture.layout().seals() {
            SealPlace::Pages { first } => {
                let mut page = vec![0; SECTOR_SIZE];
                store.image().bytes(object, first, &mut page);
                page
            }
            _ => {
                let mut reads = [sealdisk_store::ObjectRead::new(object)];
                reads[0].keys = vec![0, 1];
                store.read_objects(&mut reads);
                let mut values = std::mem::take(&mut reads[0].values);
                values.sort();
                values.into_iter().flat_map(|(_, value)| value).collect()
            }
        };
        let before = slots(&store);
        write(&volume, 0, &[content(0, 2), content(1, 2)].concat()).unwrap();
        assert!(slots(&store) == before, "{layout}: marks stay");
        expect(&volume, 1, &content(1, 2), "folded anew");
        let forms = Volume::sector_forms(&*store, &Payload::Sealed(fixture.payload), &mut |_, _| {}).unwrap().unwrap();
        assert_eq!((forms.folded, forms.plain), (2, 0), "{layout}");
    }
}

#[test]
fn sizes_change_and_what_is_cut_off_is_gone() {
    every(|fixture, store| {
        let payload = Payload::Sealed(fixture.payload);
        let resize = |size: u64, force| Volume::resize(store.clone(), "test", &payload, &key(), size, force);
        assert!(matches!(resize(1200 * SECTOR, false), Err(OpenError::ShrinkNeedsForce { .. })));
        resize(1200 * SECTOR, true).unwrap();
        resize(20_000 * SECTOR, false).unwrap();
        let volume = fixture.open(store.clone());
        assert_eq!(volume.size(), 20_000 * SECTOR);
        expect(&volume, 5, &content(5, 1), "kept");
        for lba in [1500, 2999, 19_999] {
            expect(&volume, lba, &[0; SECTOR_SIZE], "new");
        }
        write(&volume, 19_999 * SECTOR, &content(19_999, 1)).unwrap();
        volume.close().unwrap();
        expect(&fixture.open(store.clone()), 19_999, &content(19_999, 1), "at the new end");
    });
}

/// Where the layouts differ in how many zones a size has, and in how many pages the zones' tags fill.
#[test]
fn disks_as_large_as_whole_zones_open_and_grow() {
    for layout in LAYOUTS {
        for size in [64 << 30, 16 << 40] {
            let fixture = Fixture::new(CipherName::Aegis256, layout, false, size);
            let store = fixture.store(fixture.formatted());
            let last = size / SECTOR - 1;
            let volume = fixture.open(store.clone());
            write(&volume, last * SECTOR, &content(last, 1)).unwrap();
            volume.close().unwrap();
            let (payload, larger) = (Payload::Sealed(fixture.payload), 2 * size);
            Volume::resize(store.clone(), "test", &payload, &key(), larger, false).unwrap();
            let volume = fixture.open(store.clone());
            for lba in [last + 1, 2 * last] {
                expect(&volume, lba, &[0; SECTOR_SIZE], "new");
                write(&volume, lba * SECTOR, &content(lba, 1)).unwrap();
            }
            volume.close().unwrap();
            let volume = fixture.try_open(store, true).unwrap();
            for lba in [last, last + 1, 2 * last] {
                expect(&volume, lba, &content(lba, 1), &format!("{layout}, {size}"));
            }
        }
    }
}

#[test]
fn a_store_of_bytes_takes_no_such_volume_and_a_store_without_keys_no_omap() {
    let fixture = Fixture::new(CipherName::Aegis256, LayoutName::ObjectEnd, false, 1000 * SECTOR);
    let bytes = MemoryStore::new(fixture.store_size());
    let refused = Volume::format(&bytes, &Payload::Sealed(fixture.payload), &key(), fixture.size).unwrap_err();
    assert!(refused.to_string().contains("an RBD image"), "{refused}");

    let omap = Fixture::new(CipherName::Aegis256, LayoutName::Omap, false, 1000 * SECTOR);
    let without_keys = MemoryObjects::new(omap.store_size(), OBJECT_SIZE, false);
    let refused = Volume::format(&without_keys, &Payload::Sealed(omap.payload), &key(), omap.size).unwrap_err();
    assert!(refused.to_string().contains("erasure-coded"), "{refused}");
    assert_eq!(without_keys.call_count(), 0, "nothing was written");

    // A packed volume that is copied to a file says where it can be written.
    let packed = Fixture::new(CipherName::Aegis256, LayoutName::Packed, false, 1000 * SECTOR);
    let image = packed.formatted();
    let file = MemoryStore::new(packed.store_size());
    for object in image.numbers() {
        let mut buf = vec![0; OBJECT_SIZE as usize];
        image.bytes(object, 0, &mut buf);
        file.write(&[WriteExtent { offset: object * OBJECT_SIZE, buf: &buf }]).unwrap();
    }
    let payload = Payload::Sealed(packed.payload);
    let refused = Volume::open(Arc::new(file), "test", &payload, &key(), OpenOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("rbd import"), "{refused}");
}

#[test]
fn a_layout_is_refused_on_objects_of_another_size_with_the_command_that_makes_others() {
    for (layout, object_size, needed) in [
        (LayoutName::ObjectEnd, OBJECT_SIZE, "8M"),
        (LayoutName::Unaligned, OBJECT_SIZE, "8M"),
        (LayoutName::Omap, 2 * OBJECT_SIZE, "4M"),
    ] {
        let fixture = Fixture::new(CipherName::Aegis256, layout, false, 1000 * SECTOR);
        let store = MemoryObjects::new(fixture.store_size(), object_size, true);
        let refused = Volume::format(&store, &Payload::Sealed(fixture.payload), &key(), fixture.size);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(&format!("rbd create --object-size {needed}")), "{layout}: {refused}");
        assert_eq!(store.call_count(), 0);
    }
}

#[test]
fn a_header_that_names_another_layout_opens_nothing() {
    every(|fixture, store| {
        for layout in LAYOUTS.into_iter().filter(|layout| *layout != fixture.payload.layout) {
            let other = Fixture { payload: SealedPayload { layout, ..fixture.payload }, ..fixture };
            match other.try_open(store.clone(), true).map(drop) {
                Err(OpenError::WrongKey) => assert_eq!(layout.object_size(), fixture.payload.layout.object_size()),
                Err(OpenError::BadPayload(reason)) => assert!(reason.contains("with objects of"), "{reason}"),
                other => panic!("{layout}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_workload_of_partial_sectors_is_what_the_model_says() {
    for seed in 0..4 {
        let random = &mut Random::new(seed);
        for layout in LAYOUTS {
            let fixture = Fixture::new(CipherName::Aegis256, layout, true, 1200 * SECTOR + 100);
            let volume = fixture.open(fixture.store(fixture.formatted()));
            let mut model = Model::new(fixture.size);
            for _ in 0..100 {
                let offset = random.below(fixture.size - 1);
                let len = (1 + random.below(9000)).min(fixture.size - offset);
                let op = match random.below(3) {
                    0 => Op::Zero(offset, len, Space::Free),
                    1 => Op::Write(offset, len as usize, Contents::Sparse),
                    _ => Op::Write(offset, len as usize, Contents::Random),
                };
                model.apply(&volume, &op, random, || 0);
            }
            model.check_now(&volume).unwrap();
        }
    }
}
