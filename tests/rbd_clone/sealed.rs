//! A sealed volume whose image is cloned: the same key opens both, and neither sees what is written to the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealdisk_cipher::CipherName;
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::SECTOR_SIZE;
use sealdisk_volume::Volume;
use support::ceph::Pool as Kind;
use support::images::Images;
use support::programs::eventually;
use support::{Fixture, Model, Random, key, open};

const OBJECT: u64 = 4 << 20;

fn fixture(fold: bool) -> Fixture {
    let size = 3000 * SECTOR_SIZE as u64;
    Fixture { cipher: CipherName::Aegis256, fold, size, journal_len: 1 << 20, atomicity: 4096 }
}

fn assert_is(model: &Model, store: Arc<dyn Store>, fixture: &Fixture, what: &str) {
    let volume = open(store, &fixture.payload(), true).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_holds(model, &volume, what);
}

fn assert_holds(model: &Model, volume: &Volume, what: &str) {
    model.check_now(volume).unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.not_authentic.is_empty() && report.unreadable.is_empty(), "{what}: {report:?}");
}

fn work(model: &mut Model, volume: &Volume, fixture: &Fixture, random: &mut Random) {
    let op = Model::random_op(fixture.size, fixture.layout().sectors_per_object(), random);
    model.apply(volume, &op, random, || 0);
}

#[test]
fn a_sealed_volume_is_cloned_with_its_image() {
    let images = Images::new(&[("sealed-a", Kind::Replicated(2)), ("sealed-b", Kind::Replicated(2))]);
    images.cluster.create_pool("sealed-data", Kind::ErasureCoded);
    let random = &mut Random::new(Random::seed_from_environment("a sealed volume is cloned"));
    for (fold, options) in [(false, ""), (true, "--data-pool sealed-data")] {
        let fixture = fixture(fold);
        let [parent, child] = ["sealed-a/parent", "sealed-b/child"].map(|image| format!("{image}-{fold}"));
        images.create(&parent, fixture.layout().store_size(fixture.size), OBJECT);
        let store = images.open(&parent);
        Volume::format_with_journal(&*store, &fixture.payload(), &key(), fixture.size, fixture.journal_len).unwrap();
        let mut of_parent = Model::new(fixture.size);
        let volume = open(store, &fixture.payload(), false).unwrap();
        (0..60).for_each(|_| work(&mut of_parent, &volume, &fixture, random));
        // Open, as after a crash: the clone replays a journal that is the parent's.
        volume.flush().unwrap();
        images.clone(&format!("{parent}@s"), &child, options);
        volume.close().unwrap();
        let before = images.by_librbd(&format!("{parent}@s"));
        let past = of_parent.clone();
        let mut of_child = of_parent.clone();

        // Both go on, each by itself.
        let parents = open(images.open(&parent), &fixture.payload(), false).unwrap();
        let store = images.open(&child);
        let volume = open(store.clone(), &fixture.payload(), false).unwrap();
        assert_holds(&of_child, &volume, "a new clone");
        for _ in 0..40 {
            work(&mut of_child, &volume, &fixture, random);
            work(&mut of_parent, &parents, &fixture, random);
        }
        volume.flush().unwrap();
        images.rbd(&format!("snap create --no-progress {child}@then"));
        let then = of_child.clone();
        assert!(before == images.by_librbd(&format!("{parent}@s")), "what was cloned is as it was");
        assert_is(&past, images.open(&format!("{parent}@s")), &fixture, "what was cloned");

        // Flattened while it is written, and then there is no parent any more.
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    work(&mut of_child, &volume, &fixture, random);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            images.rbd(&format!("flatten --no-progress {child}"));
            let now = done.load(Ordering::SeqCst);
            eventually("it works without a parent", || done.load(Ordering::SeqCst) > now + 5);
            stop.store(true, Ordering::SeqCst);
        });
        assert_holds(&of_parent, &parents, "the parent");
        parents.close().unwrap();
        images.rbd(&format!("snap rm --no-progress {parent}@s"));
        images.rbd(&format!("rm --no-progress {parent}"));
        assert_holds(&of_child, &volume, "flattened");
        volume.close().unwrap();
        drop(store);
        assert_is(&then, images.open(&format!("{child}@then")), &fixture, "a snapshot of the clone");
        assert_is(&of_child, images.try_open(&child, OpenMode::ReadOnly).unwrap(), &fixture, "opened again");
    }
}
