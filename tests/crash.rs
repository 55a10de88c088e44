//! What was flushed survives a crash at any point.
//!
//! A random workload runs on a store that remembers everything done to it. Then crashes are enumerated: at random points
//! of that history, with any subset of the writes that no sync covered, in any order, each possibly torn. In each state
//! the volume is opened and every sector must have the value that was flushed, or one that was written to it since;
//! nothing may be an error.
//!
//! `SEALDISK_CRASH_STATES=10000000` runs longer; `SEALDISK_SEED=…` repeats a run.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealdisk_cipher::CipherName;
use sealdisk_layout::Payload;
use sealdisk_store::{Choices, Fault, FaultStore, MemoryStore};
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{Space, Volume};
use support::{Contents, Fixture, Model, Op, Random, key, read, read_only, write};

/// States per run of the suite.
const STATES: u64 = 100_000;
/// Operations in one workload.
const OPS: usize = 60;
/// Crashes of one workload.
const CRASHES: u64 = 250;
/// Crashes of one resize, beside the last few steps of it.
const RESIZE_CRASHES: usize = 20;

fn states() -> u64 {
    std::env::var("SEALDISK_CRASH_STATES")
        .map_or(STATES, |text| text.parse().expect("SEALDISK_CRASH_STATES is a number"))
}

fn fixture(random: &mut Random) -> Fixture {
    let cipher = match random.below(8) {
        0 => CipherName::Aes256Gcm,
        1 => CipherName::XChaCha20Poly1305,
        2 => CipherName::Aes256XtsRandom,
        3 | 4 => CipherName::Aegis256X4,
        _ => CipherName::Aegis256,
    };
    Fixture {
        cipher,
        fold: random.one_in(2),
        // Two objects and some, the last sector ragged or not.
        size: (2 * 1008 + 300) * 4096 + [0, 512, 4095][random.below(3) as usize],
        journal_len: [64 << 10, 64 << 10, 256 << 10, 256 << 10, 1 << 20, 1 << 20, 1 << 20, 4 << 20]
            [random.below(8) as usize],
        atomicity: if random.one_in(2) { 512 } else { 4096 },
    }
}

/// One workload and its crashes. Returns how many states were checked.
fn run(seed: u64) -> u64 {
    let random = &mut Random::new(seed);
    let fixture = fixture(random);
    let store = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
    let mut model = Model::new(fixture.size);
    let volume = fixture.open(store.clone()).unwrap();
    for _ in 0..OPS {
        let op = Model::random_op(fixture.size, fixture.layout().sectors_per_object(), random);
        model.apply(&volume, &op, random, || store.event_count());
    }
    model.check_now(&volume).unwrap_or_else(|e| panic!("seed {seed}, before any crash: {e} ({fixture:?})"));
    if random.one_in(2) {
        volume.close().unwrap();
    }

    let history = store.history();
    let mut positions: Vec<usize> =
        (0..CRASHES).map(|_| random.below(history.events.len() as u64 + 1) as usize).collect();
    positions.sort_unstable();
    let mut crashes = history.crashes();
    let mut checked = 0;
    for at in positions {
        let image = crashes.crash(at, fixture.atomicity, random);
        let told = |what: &str, error: &dyn std::fmt::Display| -> ! {
            panic!("seed {seed}, crash at event {at} of {}, {what}: {error} ({fixture:?})", history.events.len())
        };
        checked += 1;
        match random.below(4) {
            // Read without recovering in place: everything comes from the journal.
            0 => {
                let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
                let volume = read_only(store, &fixture.payload()).unwrap_or_else(|e| told("opened read-only", &e));
                model.check_after_crash(&volume, at).unwrap_or_else(|e| told("read-only", &e));
            }
            // Crash again while recovering, and recover from that.
            1 => {
                let store = Arc::new(FaultStore::new(image, fixture.atomicity));
                fixture.open(store.clone()).map(drop).unwrap_or_else(|e| told("first recovery", &e));
                let history = store.history();
                for _ in 0..3 {
                    let again = random.below(history.events.len() as u64 + 1) as usize;
                    let image = history.crash(again, fixture.atomicity, random);
                    let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
                    let volume = fixture.open(store).unwrap_or_else(|e| told("second recovery", &e));
                    model.check_after_crash(&volume, at).unwrap_or_else(|e| told("after a second crash", &e));
                    checked += 1;
                }
            }
            // Recover, check, close, and check what lies in place.
            _ => {
                let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
                let volume = fixture.open(store.clone()).unwrap_or_else(|e| told("recovery", &e));
                model.check_after_crash(&volume, at).unwrap_or_else(|e| told("after recovery", &e));
                if random.one_in(4) {
                    volume.close().unwrap_or_else(|e| told("closing", &e));
                    let volume = fixture.open(store).unwrap_or_else(|e| told("opening again", &e));
                    model.check_after_crash(&volume, at).unwrap_or_else(|e| told("after closing", &e));
                }
            }
        }
    }
    checked
}

#[test]
fn flushed_sectors_survive_a_crash_at_any_point() {
    let seed = Random::seed_from_environment("crash");
    let (states, checked, next) = (states(), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while checked.load(Ordering::SeqCst) < states {
                    let workload = next.fetch_add(1, Ordering::SeqCst);
                    checked.fetch_add(run(seed.wrapping_add(workload)), Ordering::SeqCst);
                }
            });
        }
    });
    println!("crash: {} states of {} workloads", checked.into_inner(), next.into_inner());
}

/// Every frame here has a map page of the same zone, and in a short journal they come to lie where older ones did. A torn
/// frame must not be taken for whole because an older map page lies where its own should be.
#[test]
fn a_torn_frame_is_not_completed_by_an_older_map_page() {
    const OBJECT: u64 = 1008 * SECTOR_SIZE as u64;
    let seed = Random::seed_from_environment("torn map page");
    for workload in 0..8 {
        let random = &mut Random::new(seed.wrapping_add(workload));
        let fixture = Fixture { journal_len: 64 << 10, size: 3 * OBJECT, ..fixture(random) };
        let store = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
        let mut model = Model::new(fixture.size);
        let volume = fixture.open(store.clone()).unwrap();
        let of_object = fixture.layout().sectors_per_object() * SECTOR_SIZE as u64;
        for _ in 0..20 {
            let object = random.below(2) * of_object;
            let ops = [
                Op::Write(object + random.below(100) * SECTOR_SIZE as u64, SECTOR_SIZE, Contents::Random),
                Op::Flush,
                Op::Zero(object, of_object, Space::Free),
            ];
            for op in &ops {
                model.apply(&volume, op, random, || store.event_count());
            }
        }
        let history = store.history();
        for at in 0..=history.events.len() {
            for _ in 0..4 {
                let image = history.crash(at, fixture.atomicity, random);
                let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
                let checked = read_only(store, &fixture.payload()).map_err(|error| error.to_string());
                let checked = checked.and_then(|volume| model.check_after_crash(&volume, at));
                checked.unwrap_or_else(|error| panic!("seed {seed}, crash at event {at}: {error} ({fixture:?})"));
            }
        }
    }
}

/// A resize and its crashes. Returns how many states were checked.
fn run_resize(seed: u64) -> u64 {
    let random = &mut Random::new(seed);
    let fixture = fixture(random);
    let old = fixture.size;
    let new = match random.below(4) {
        0 => old + 1 + random.below(1 << 22),
        // Across a zone: a new map page.
        1 => old + 16384 * 1008 * 4096,
        2 => random.below(old),
        _ => old - 1 - random.below(4096 * 3),
    };
    // A volume that was in use and crashed, so that resizing begins with recovery.
    let before = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
    let mut model = Model::new(old);
    let volume = fixture.open(before.clone()).unwrap();
    for _ in 0..OPS / 3 {
        let op = Model::random_op(old, fixture.layout().sectors_per_object(), random);
        model.apply(&volume, &op, random, || before.event_count());
    }
    volume.flush().unwrap();
    drop(volume);

    let store = Arc::new(FaultStore::new(before.image(), fixture.atomicity));
    let payload = Payload::Sealed(fixture.payload());
    let resize = |store, size| Volume::resize(store, "test", &payload, &key(), size, true);
    resize(store.clone(), new).unwrap();
    let history = store.history();
    let told = |at: usize, what: &str, error: &dyn std::fmt::Display| -> ! {
        panic!("seed {seed}, {old} to {new} bytes, crash at {at} of {}, {what}: {error}", history.events.len())
    };
    let mut checked = 0;
    let mut positions: Vec<usize> =
        (0..RESIZE_CRASHES).map(|_| random.below(history.events.len() as u64 + 1) as usize).collect();
    // The last steps are the ones that matter most: the superblocks.
    positions.extend((0..20.min(history.events.len())).map(|back| history.events.len() - back));
    for at in positions {
        let image = history.crash(at, fixture.atomicity, random);
        let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
        let volume = fixture.open(store.clone()).unwrap_or_else(|e| told(at, "opening", &e));
        if volume.size() != old && volume.size() != new {
            told(at, "size", &volume.size());
        }
        model.check_below(&volume, old.min(new)).unwrap_or_else(|e| told(at, "contents", &e));
        volume.close().unwrap_or_else(|e| told(at, "closing", &e));
        // Doing it again, and growing back, shows zeros where the disk had ended.
        resize(store.clone(), new).unwrap_or_else(|e| told(at, "resizing again", &e));
        let larger = old.max(new);
        resize(store.clone(), larger).unwrap_or_else(|e| told(at, "growing back", &e));
        let volume = fixture.open(store).unwrap_or_else(|e| told(at, "opening the grown volume", &e));
        model.check_below(&volume, old.min(new)).unwrap_or_else(|e| told(at, "contents after growing", &e));
        let mut tail = vec![1; (larger - old.min(new)).min(1 << 16) as usize];
        for offset in [old.min(new), larger - tail.len() as u64] {
            read(&volume, offset, &mut tail).unwrap_or_else(|e| told(at, "reading what was added", &e));
            if tail.iter().any(|&byte| byte != 0) {
                told(at, "what was added", &"is not zero");
            }
        }
        checked += 1;
    }
    checked
}

#[test]
fn a_resize_that_crashes_leaves_the_old_size_or_the_new_one() {
    let seed = Random::seed_from_environment("resize");
    let checked: u64 = (0..20).map(|round| run_resize(seed.wrapping_add(round))).sum();
    println!("resize: {checked} states");
}

/// What a sector was given: the content, and whether the disk had said that it took it.
type Given = (Vec<u8>, bool);

/// Random work on a store that is full now and then, and then power is lost.
fn run_with_failures(seed: u64) -> Result<(), String> {
    const ENOSPC: i32 = 28;
    const SECTOR: u64 = SECTOR_SIZE as u64;
    let random = &mut Random::new(seed);
    let fixture =
        Fixture { size: 2500 * SECTOR, journal_len: [256 << 10, 1 << 20][random.below(2) as usize], ..fixture(random) };
    let store = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
    let volume = fixture.open(store.clone()).unwrap();
    let zero = || (vec![0; SECTOR_SIZE], true);
    // For each sector what it was given, and the first of it that a crash may leave.
    let mut sectors: BTreeMap<u64, (Vec<Given>, usize)> = BTreeMap::new();
    let made_durable = |sectors: &mut BTreeMap<u64, (Vec<Given>, usize)>| {
        for (given, floor) in sectors.values_mut() {
            *floor = given.iter().rposition(|(_, taken)| *taken).unwrap();
        }
    };
    for _ in 0..OPS {
        let place = random.below(3) * 1008 + random.below(60);
        match random.below(12) {
            0..=4 => {
                let count = [1, 3, 20, 70, 100][random.below(5) as usize];
                for lba in place..(place + count).min(2500) {
                    let mut content = vec![0; SECTOR_SIZE];
                    let len = if random.one_in(3) { 300 } else { SECTOR_SIZE };
                    random.fill(&mut content[..len]);
                    let taken = write(&volume, lba * SECTOR, &content).is_ok();
                    sectors.entry(lba).or_insert_with(|| (vec![zero()], 0)).0.push((content, taken));
                }
            }
            5 => {
                let whole = random.one_in(2);
                let (first, count) = if whole { (place / 1008 * 1008, 1008) } else { (place, 1 + random.below(100)) };
                let count = count.min(2500 - first);
                let range = ByteRange::checked(first * SECTOR, count * SECTOR, volume.size()).unwrap();
                let taken = volume.zero(range, Space::Free).is_ok();
                for (given, _) in sectors.range_mut(first..first + count).map(|(_, sector)| sector) {
                    given.push((zero().0, taken));
                }
            }
            6 | 7 => {
                if volume.flush().is_ok() {
                    made_durable(&mut sectors);
                }
            }
            8 | 9 => drop(volume.tidy(random.one_in(2))),
            10 => store.inject(Fault::WritesAfter(random.below(80), ENOSPC)),
            _ => store.heal(),
        }
    }
    if random.one_in(3) {
        store.heal();
        volume.close().map_err(|error| format!("closing: {error}"))?;
        made_durable(&mut sectors);
    }
    let history = store.history();
    for crash in 0..4 {
        let image = match crash {
            0 => store.image(),
            _ => history.crash(history.events.len(), fixture.atomicity, random),
        };
        let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
        let volume = fixture.open(store).map_err(|error| format!("crash {crash}: {error}"))?;
        let mut buf = vec![0; SECTOR_SIZE];
        for (lba, (given, floor)) in &sectors {
            read(&volume, lba * SECTOR, &mut buf).map_err(|error| format!("crash {crash}: {error}"))?;
            if !given[*floor..].iter().any(|(content, _)| *content == buf) {
                return Err(format!("crash {crash}: sector {lba} has none of the contents that it may have"));
            }
        }
    }
    Ok(())
}

#[test]
fn flushed_sectors_survive_a_full_store_and_then_a_crash() {
    let seed = Random::seed_from_environment("full store");
    for workload in (0..400).map(|round| seed.wrapping_add(round)) {
        run_with_failures(workload).unwrap_or_else(|error| panic!("seed {workload}: {error}"));
    }
}
