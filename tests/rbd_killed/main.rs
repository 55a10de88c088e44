//! A process that writes to a sealed volume on an image is killed, paused, and deprived of its lock, in the middle of it.
//! `crates/cli/tests/ceph/killed.rs` kills the program itself, while it writes; here it is killed while it opens the volume,
//! too.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sealdisk_layout::Payload;
use sealdisk_rados::{Image, Pool, RbdStore};
use sealdisk_store::Choices;
use sealdisk_volume::Volume;
use support::ceph::Pool as Kind;
use support::images::{Images, name};
use support::programs::eventually;
use support::{Random, key, open, read_only};

use writer::{Writer, assert_between, fixture};

const OBJECT: u64 = 4 << 20;
const KILLS: u32 = 24;
/// After so many kills the work goes on in a clone, where objects are copied before they are changed.
const KILLS_OF_AN_IMAGE: u32 = 8;

fn format(images: &Images, image: &str) {
    let fixture = fixture();
    let payload = Payload::Sealed(fixture.payload());
    images.create(image, Volume::object_store_size(&payload, fixture.size), OBJECT);
    let store = images.open(image);
    Volume::format(&*store, &payload, &key(), fixture.size).unwrap();
}

/// Opens an image whose last owner is known to be dead.
fn open_after_death(images: &Images, image: &str) -> Arc<RbdStore> {
    let place = name(image);
    let pool = Arc::new(Pool::open(&images.connection, &place.pool, "").unwrap());
    let found = Image::open(&pool, &place.image, None, false).unwrap();
    if let Some(owner) = found.lock_owner().unwrap() {
        found.break_lock(&owner).unwrap();
    }
    drop(found);
    images.open(image)
}

#[test]
fn killed_while_it_opens_or_writes_every_sector_is_old_or_new() {
    let images = Images::new(&[("killed", Kind::Replicated(2))]);
    let random = &mut Random::new(Random::seed_from_environment("killed"));
    let mut image = "killed/disk0".to_owned();
    format(&images, &image);
    let mut least = 0;
    let mut most = 0;
    for kill in 1..=KILLS {
        let mut writer = Writer::start(&images, &image, most + 1);
        // At any moment of opening, or of writing.
        if random.one_in(2) {
            eventually("it writes", || writer.begun() > 0);
        }
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        writer.kill();
        assert_eq!(writer.failure(), None);
        least = least.max(writer.flushed());
        most = most.max(writer.begun());
        let volume = open(open_after_death(&images, &image), &fixture().payload(), false).unwrap();
        assert_between(&volume, least, most);
        volume.close().unwrap();
        if kill % KILLS_OF_AN_IMAGE == 0 {
            let next = format!("killed/disk{kill}");
            images.clone(&format!("{image}@c"), &next, "");
            image = next;
        }
    }
    assert!(least > 0, "nothing was ever flushed");
}

/// Paused, robbed of its lock and resumed: it changes nothing any more, and says why.
#[test]
fn a_paused_writer_that_has_lost_its_lock_cannot_change_a_byte() {
    let images = Images::new(&[("robbed", Kind::Replicated(2))]);
    let random = &mut Random::new(Random::seed_from_environment("a paused writer"));
    let image = "robbed/disk";
    format(&images, image);
    let (mut least, mut most) = (0, 0);
    for round in 0..6 {
        let mut writer = Writer::start(&images, image, most + 1);
        eventually("it writes", || writer.flushed() > 0);
        std::thread::sleep(Duration::from_micros(random.below(200_000)));
        writer.pause();
        if round % 2 == 0 {
            let locks = images.cluster.ask(&format!("rbd lock ls {image}"));
            let [lock] = &locks.as_array().unwrap()[..] else { panic!("{locks}") };
            let [id, locker] = ["id", "locker"].map(|part| lock[part].as_str().unwrap());
            // The id has a space in it.
            let mut remove = images.cluster.program("rbd");
            support::programs::succeed(remove.args(["lock", "rm", image, id, locker]));
        } else {
            let place = name(image);
            let pool = Arc::new(Pool::open(&images.connection, &place.pool, "").unwrap());
            let owner = Image::open(&pool, &place.image, None, false).unwrap().lock_owner().unwrap().unwrap();
            images.cluster.block(&owner);
        }
        least = least.max(writer.flushed());
        most = most.max(writer.begun());
        let at_once = images.by_librbd(image);
        // In every second round somebody else has the image when the writer comes back.
        let next = (round >= 2).then(|| open_after_death(&images, image));
        let next = next.map(|store| open(store, &fixture().payload(), false).unwrap());
        let before = if next.is_some() { images.by_librbd(image) } else { at_once };
        writer.resume();
        writer.wait();
        let failure = writer.failure().expect("it has noticed");
        assert!(failure.contains("lock"), "{failure}");
        assert!(writer.flushed() <= most, "it was told that something is there which is not");
        assert!(images.by_librbd(image) == before, "not a byte");
        let volume =
            next.unwrap_or_else(|| open(open_after_death(&images, image), &fixture().payload(), false).unwrap());
        assert_between(&volume, least, most);
        volume.close().unwrap();
    }
}

/// A snapshot is asked for while the writer does not answer. If it comes back it is asked again; if it does not, Ceph gives
/// its lock to the maker of the snapshot.
#[test]
fn a_snapshot_made_while_the_writer_is_paused_is_a_disk_after_a_crash() {
    let images = Images::new(&[("paused", Kind::Replicated(2))]);
    let image = "paused/disk";
    format(&images, image);
    let mut most = 0;
    for comes_back in [true, false] {
        let mut writer = Writer::start(&images, image, most + 1);
        eventually("it writes", || writer.flushed() > 0);
        writer.pause();
        let least = writer.flushed();
        let snapshot = format!("{image}@{comes_back}");
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                images.rbd(&format!("snap create --no-progress {snapshot}"));
                made.store(true, Ordering::SeqCst);
            });
            if comes_back {
                std::thread::sleep(Duration::from_secs(3));
                assert!(!made.load(Ordering::SeqCst), "nobody has said that nothing is in flight");
                writer.resume();
            }
        });
        most = writer.begun();
        let then = images.by_librbd(&snapshot);
        if comes_back {
            let now = writer.flushed();
            eventually("it goes on", || writer.flushed() > now + 1);
            writer.kill();
        } else {
            let before = images.by_librbd(image);
            writer.resume();
            writer.wait();
            let failure = writer.failure().expect("it has noticed");
            assert!(failure.contains("lock"), "{failure}");
            assert!(images.by_librbd(image) == before, "not a byte");
        }
        assert!(images.by_librbd(&snapshot) == then, "a snapshot does not change");
        let past = read_only(images.open(&snapshot), &fixture().payload()).unwrap();
        assert_between(&past, least, most);
        most = most.max(writer.begun());
        let volume = open(open_after_death(&images, image), &fixture().payload(), false).unwrap();
        assert_between(&volume, least, most);
        volume.close().unwrap();
    }
}

/// Does nothing unless a test of this program has started it for that.
#[test]
fn the_writer_that_other_tests_start() {
    writer::write_if_asked();
}
