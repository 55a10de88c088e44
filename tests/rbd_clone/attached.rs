//! What happens to a clone while it is open.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealdisk_store::{Choices, Store};
use sealdisk_units::StoreRange;
use support::Random;
use support::ceph::Pool as Kind;
use support::images::{Images, assert_same, content, write_both};
use support::programs::eventually;

const OBJECT: usize = 64 << 10;

/// A parent of so many objects that is full of noise, and a clone of it. Returns the content of both.
fn family(images: &Images, pool: &str, objects: usize, options: &str) -> Vec<u8> {
    let mut model = vec![0; objects * OBJECT];
    images.create(&format!("{pool}/parent"), model.len() as u64, OBJECT as u64);
    let mut noise = vec![0; model.len()];
    Random::new(1).fill(&mut noise);
    write_both(&*images.open(&format!("{pool}/parent")), &mut model, 0, &noise);
    images.clone(&format!("{pool}/parent@s"), &format!("{pool}/child"), options);
    model
}

/// Random writes and discards until told to stop; every byte is what was written last.
fn work(store: &dyn Store, model: &mut [u8], random: &mut Random, stop: &AtomicBool, done: &AtomicU64) {
    while !stop.load(Ordering::SeqCst) {
        let offset = random.below(model.len() as u64 - 4 * OBJECT as u64) as usize;
        match random.below(8) {
            0 => {
                // Whole objects, and parts.
                let offset = offset / OBJECT * OBJECT;
                let len = OBJECT + random.below(2) as usize * 5000;
                store.zero(StoreRange::new(offset as u64, len as u64)).unwrap();
                model[offset..offset + len].fill(0);
            }
            1 => write_both(store, model, offset / OBJECT * OBJECT, &vec![random.below(256) as u8; OBJECT]),
            _ => {
                let len = 1 + random.below(12_000) as usize;
                write_both(store, model, offset, &vec![random.below(256) as u8; len]);
            }
        }
        let mut found = vec![0; 4 * OBJECT];
        store.read(&mut [sealdisk_store::ReadExtent { offset: offset as u64, buf: &mut found }]).unwrap();
        assert_same(&found, &model[offset..offset + found.len()], "while it is flattened");
        done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn flattening_goes_on_beside_writing_and_then_the_parent_may_go() {
    let images = Images::new(&[
        ("flatten", Kind::Replicated(2)),
        ("flatten-ec", Kind::Replicated(2)),
        ("flatten-data", Kind::ErasureCoded),
    ]);
    for (pool, options) in [("flatten", ""), ("flatten-ec", "--data-pool flatten-data")] {
        let mut model = family(&images, pool, 200, options);
        let child = format!("{pool}/child");
        images.rbd(&format!("snap create --no-progress {child}@before"));
        let before = model.clone();
        let store = images.open(&child);
        let random = &mut Random::new(Random::seed_from_environment("flatten"));
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| work(&*store, &mut model, random, &stop, &done));
            eventually("it works", || done.load(Ordering::SeqCst) > 5);
            images.rbd(&format!("flatten --no-progress {child}"));
            images.rbd(&format!("snap rm --no-progress {pool}/parent@s"));
            images.rbd(&format!("rm --no-progress {pool}/parent"));
            let now = done.load(Ordering::SeqCst);
            eventually("it works without a parent", || done.load(Ordering::SeqCst) > now + 5);
            stop.store(true, Ordering::SeqCst);
        });
        assert!(store.image().parent().unwrap().is_none());
        assert_same(&content(&*store), &model, "now");
        assert_same(&images.by_librbd(&child), &model, "by librbd");
        assert_same(&images.by_librbd(&format!("{child}@before")), &before, "the snapshot");
    }
}

/// What lies behind the end of a shrunk clone is given up for good, whoever shrinks it.
#[test]
fn what_was_cut_off_does_not_come_back_from_the_parent() {
    let images = Images::new(&[("shrink", Kind::Replicated(2))]);
    let mut model = family(&images, "shrink", 60, "");
    let store = images.open("shrink/child");
    let full = model.len();
    images.rbd("snap create --no-progress shrink/child@full");
    let before = model.clone();
    for (cut, others) in [(45 * OBJECT + 5000, true), (15 * OBJECT + 333, false)] {
        for size in [cut, full] {
            if others {
                images.rbd(&format!("resize --no-progress --allow-shrink --size {size}B shrink/child"));
                eventually("the store has noticed", || store.size().unwrap() == size as u64);
            } else {
                store.resize(size as u64).unwrap();
            }
        }
        model[cut..].fill(0);
        assert_same(&content(&*store), &model, "grown");
        // The object in which the cut lies, one behind it, and one before it.
        write_both(&*store, &mut model, cut + 100, &[1; 9]);
        write_both(&*store, &mut model, full - 100, &[2; 9]);
        write_both(&*store, &mut model, cut - OBJECT, &[3; 9]);
        assert_same(&content(&*store), &model, "written");
        assert_same(&images.by_librbd("shrink/child"), &model, "by librbd");
    }
    assert_same(&images.by_librbd("shrink/child@full"), &before, "the snapshot, by librbd");
    assert_same(&images.by_store("shrink/child@full"), &before, "the snapshot");
}

/// A parent on the way to another pool is in two places. Nothing wrong is read of it, and afterwards all is well.
#[test]
fn a_parent_that_migrates_is_waited_for() {
    let images = Images::new(&[("moving", Kind::Replicated(2)), ("moving-to", Kind::Replicated(2))]);
    let model = family(&images, "moving", 60, "");
    let store = images.open("moving/child");
    assert_same(&content(&*store), &model, "before");
    images.rbd("migration prepare moving/parent moving-to/parent");
    let failure = || store.zero(StoreRange::new(0, 1)).err().map(|error| error.to_string());
    eventually("it has noticed", || failure().is_some());
    let failure = failure().unwrap();
    assert!(failure.contains("being migrated"), "{failure}");
    let mut byte = [0];
    let read = store.read(&mut [sealdisk_store::ReadExtent { offset: 5 * OBJECT as u64, buf: &mut byte }]);
    assert!(read.unwrap_err().to_string().contains("being migrated"));
    drop(store);
    let refused = images.try_open("moving/child", sealdisk_store::OpenMode::ReadWrite).err().unwrap();
    assert!(refused.to_string().contains("wait until that is committed"), "{refused}");
    images.rbd("migration execute --no-progress moving-to/parent");
    // Ceph warns of clones that are open read-only, which are not told.
    images.rbd("migration commit --no-progress --force moving-to/parent");
    assert_same(&images.by_store("moving/child"), &model, "after");
}
