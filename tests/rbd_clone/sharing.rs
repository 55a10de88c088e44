//! What a clone has of its parents, and what it copies.

use sealdisk_rados::{ObjectRead, ObjectWrite, Pool};
use sealdisk_store::{OpenMode, ReadExtent, Store, WriteExtent};
use sealdisk_units::StoreRange;
use support::Random;
use support::ceph::Pool as Kind;
use support::images::{Images, assert_same, content, write_both};

/// Small ones, so that a small image has many.
const OBJECT: usize = 64 << 10;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed).fill(&mut bytes);
    bytes
}

fn range(offset: usize, len: usize) -> StoreRange {
    StoreRange::new(offset as u64, len as u64)
}

/// An image with content in these of its objects.
fn base(images: &Images, image: &str, objects: usize, filled: &[usize]) -> Vec<u8> {
    images.create(image, (objects * OBJECT) as u64, OBJECT as u64);
    let mut model = vec![0; objects * OBJECT];
    let store = images.open(image);
    for number in filled {
        write_both(&*store, &mut model, number * OBJECT, &noise(*number as u64, OBJECT));
    }
    model
}

#[test]
fn a_chain_across_pools_namespaces_and_data_pools_is_read_through() {
    let images = Images::new(&[
        ("chain-a", Kind::Replicated(2)),
        ("chain-b", Kind::Replicated(2)),
        ("chain-data", Kind::ErasureCoded),
    ]);
    images.rbd("namespace create chain-b/ns");
    // The first eight objects cover every way in which three images can have an object or not.
    let has = |bit: usize| (0..8).filter(|number| number >> bit & 1 == 1).collect::<Vec<_>>();
    let mut model = base(&images, "chain-a/one", 12, &has(0));
    let mut all = vec![("chain-a/one@s", model.clone())];
    let chain =
        [("chain-a/one@s", "chain-b/ns/two", ""), ("chain-b/ns/two@s", "chain-a/three", "--data-pool chain-data")];
    for (bit, (parent, child, options)) in chain.into_iter().enumerate() {
        images.clone(parent, child, options);
        let store = images.open(child);
        assert_same(&content(&*store), &model, child);
        for number in has(bit + 1) {
            // The middle of the object: the rest is copied.
            write_both(&*store, &mut model, number * OBJECT + 5000, &noise(100 + number as u64, 3000));
        }
        assert_same(&content(&*store), &model, child);
        all.push((child, model.clone()));
    }
    // All extents of one call, some of them across objects that come from different images.
    let store = images.open("chain-a/three");
    let places = [(OBJECT - 100, 200), (3 * OBJECT - 5000, 20_000), (6 * OBJECT + 4999, 3002), (11 * OBJECT, OBJECT)];
    let mut buffers = places.map(|(_, len)| vec![0xee; len]);
    let extents = places.iter().zip(&mut buffers);
    let mut extents: Vec<_> = extents.map(|((at, _), buf)| ReadExtent { offset: *at as u64, buf }).collect();
    store.read(&mut extents).unwrap();
    places.iter().zip(&buffers).for_each(|((at, len), buf)| assert_same(buf, &model[*at..at + len], "extents"));
    for (image, model) in all {
        assert_same(&images.by_librbd(image), &model, image);
    }
    assert!(store.is_allocated(range(OBJECT, 1)).unwrap(), "the parent has it");
    assert!(!store.is_allocated(range(8 * OBJECT, 4 * OBJECT)).unwrap(), "nobody has it");
}

#[test]
fn a_parent_in_the_trash_is_still_a_parent() {
    let images = Images::new(&[("trash", Kind::Replicated(2))]);
    let mut model = base(&images, "trash/parent", 4, &[0, 2]);
    images.clone("trash/parent@s", "trash/child", "");
    let store = images.open("trash/child");
    images.rbd("snap rm --no-progress trash/parent@s");
    images.open("trash/parent").write(&[WriteExtent { offset: 0, buf: &[1; OBJECT] }]).unwrap();
    images.rbd("trash mv trash/parent");
    assert_same(&content(&*store), &model, "opened before");
    assert_same(&images.by_store("trash/child"), &model, "opened now");
    write_both(&*store, &mut model, 100, &[7; 8]);
    assert_same(&content(&*store), &model, "child");
    assert_same(&images.by_librbd("trash/child"), &model, "child");
}

/// Keys, and what lies behind the bytes that librbd knows of, belong to an object like everything else in it.
#[test]
fn a_copied_object_has_its_keys_and_its_tail() {
    let images = Images::new(&[("tails", Kind::Replicated(2))]);
    let model = base(&images, "tails/parent", 4, &[0, 1, 2]);
    let pool = Pool::open(&images.connection, "tails", "").unwrap();
    let names = images.open("tails/parent").image().object_names().unwrap();
    let keys: Vec<_> = (0..600u16).map(|key| (key.to_be_bytes().to_vec(), vec![key as u8; 48])).collect();
    let mut writes = [0, 3].map(|number| {
        let write = ObjectWrite::new(&pool, &names.name(number)).unwrap();
        write.write(OBJECT as u64, &noise(9, 5000)).set_keys(&keys)
    });
    pool.write(&mut writes);
    for write in writes {
        write.result.unwrap();
    }
    images.clone("tails/parent@s", "tails/child", "");
    let store = images.open("tails/child");
    let names = store.image().object_names().unwrap();
    let whole = |number: u64| {
        let mut bytes = vec![0; OBJECT + 6000];
        let asked = keys.iter().map(|(key, _)| key.clone());
        let read = ObjectRead::new(&names.name(number)).unwrap().measure().extent(0, &mut bytes).keys(asked);
        let mut reads = [read];
        pool.read(&mut reads);
        let [read] = reads;
        let (size, values, result) = (read.size, read.values, read.result);
        result.map(|()| (size, values, bytes))
    };
    assert!(whole(0).unwrap_err().is_absent());
    store.write(&[0, 3].map(|number| WriteExtent { offset: number * OBJECT as u64 + 10, buf: &[7; 2] })).unwrap();
    for number in [0, 3] {
        let (size, values, bytes) = whole(number).unwrap();
        let mut expected = model[number as usize * OBJECT..][..OBJECT].to_vec();
        expected[10..12].fill(7);
        assert_eq!(size, OBJECT as u64 + 5000);
        assert_same(&bytes, &[expected, noise(9, 5000), vec![0; 1000]].concat(), "object");
        assert!(values == keys);
    }
    // Nothing of it stays when it is discarded, and the parent's does not come back.
    store.zero(range(0, 2 * OBJECT)).unwrap();
    for number in [0, 1] {
        let (size, values, _) = whole(number).unwrap();
        assert!(size == 0 && values.is_empty());
    }
    assert!(content(&*store)[..2 * OBJECT].iter().all(|byte| *byte == 0));
}

/// Zeros, of all sizes, in a clone and in a clone with snapshots.
#[test]
fn what_is_discarded_does_not_uncover_the_parent() {
    let images = Images::new(&[("uncover", Kind::Replicated(2)), ("uncover-data", Kind::ErasureCoded)]);
    for (name, data) in [("plain", ""), ("ec", "--data-pool uncover-data")] {
        let (parent, child) = (format!("uncover/{name}@s"), format!("uncover/{name}-child"));
        let mut model = base(&images, &format!("uncover/{name}"), 8, &[0, 1, 2, 3, 5, 6]);
        images.clone(&parent, &child, data);
        let store = images.open(&child);
        let mut snapshots = Vec::new();
        for round in 0..2 {
            let shift = round * 4 * OBJECT;
            for (offset, len) in [(shift, OBJECT), (shift + OBJECT + 4096, 8192), (shift + 2 * OBJECT + 77, OBJECT)] {
                store.zero(range(offset, len)).unwrap();
                model[offset..offset + len].fill(0);
            }
            assert_same(&content(&*store), &model, "now");
            images.rbd(&format!("snap create --no-progress {child}@s{round}"));
            snapshots.push((format!("{child}@s{round}"), model.clone()));
        }
        write_both(&*store, &mut model, 0, &noise(50, 3 * OBJECT));
        snapshots.push((child.clone(), model));
        for (image, model) in &snapshots {
            assert_same(&images.by_librbd(image), model, image);
        }
        images.rbd(&format!("flatten --no-progress {child}"));
        for (image, model) in &snapshots {
            assert_same(&images.by_librbd(image), model, image);
            assert_same(&images.by_store(image), model, image);
        }
    }
}

/// A snapshot shares with the parent what the image shared then: after everything in the image was changed, and after
/// nobody has the parent any more.
#[test]
fn snapshots_of_a_clone_outlive_its_parent() {
    let images = Images::new(&[("deep", Kind::Replicated(2))]);
    let before = base(&images, "deep/parent", 8, &[0, 1, 2, 3, 4, 5, 6]);
    images.clone("deep/parent@s", "deep/child", "");
    images.rbd("snap create --no-progress deep/child@first");
    let mut model = before.clone();
    let store = images.open("deep/child");
    write_both(&*store, &mut model, 100, &[1; 5]); // a part
    write_both(&*store, &mut model, OBJECT, &noise(60, OBJECT)); // the whole
    store.zero(range(2 * OBJECT, OBJECT)).unwrap();
    store.zero(range(3 * OBJECT + 4096, 4096)).unwrap();
    model[2 * OBJECT..3 * OBJECT].fill(0);
    model[3 * OBJECT + 4096..3 * OBJECT + 8192].fill(0);
    let then = images.open("deep/child@first");
    assert_same(&content(&*then), &before, "with a parent");
    images.rbd("flatten --no-progress deep/child");
    images.rbd("snap rm --no-progress deep/parent@s");
    images.rbd("rm --no-progress deep/parent");
    assert_same(&content(&*then), &before, "opened before, without a parent");
    assert_same(&images.by_store("deep/child@first"), &before, "opened now");
    assert_same(&images.by_librbd("deep/child@first"), &before, "by librbd");
    assert_same(&content(&*store), &model, "child");
    write_both(&*store, &mut model, 5 * OBJECT - 10, &[2; 20]);
    assert_same(&images.by_librbd("deep/child"), &model, "child, by librbd");
}

/// Without deep-flatten, flattening leaves the snapshots their parent.
#[test]
fn a_snapshot_may_have_a_parent_that_the_image_has_no_more() {
    let images = Images::new(&[("shallow", Kind::Replicated(2))]);
    let before = base(&images, "shallow/parent", 4, &[0, 1, 2]);
    images.clone("shallow/parent@s", "shallow/child", "--image-feature layering,exclusive-lock");
    images.rbd("snap create --no-progress shallow/child@first");
    let mut model = before.clone();
    let store = images.open("shallow/child");
    images.rbd("flatten --no-progress shallow/child");
    write_both(&*store, &mut model, 0, &noise(70, 2 * OBJECT));
    for (image, model) in [("shallow/child@first", before), ("shallow/child", model)] {
        assert_same(&images.by_librbd(image), &model, image);
        assert_same(&images.by_store(image), &model, image);
    }
}

#[test]
fn parents_that_are_cut_up_in_another_way_are_refused_with_the_command_that_helps() {
    let images = Images::new(&[("cut", Kind::Replicated(2))]);
    base(&images, "cut/parent", 4, &[0]);
    images.clone("cut/parent@s", "cut/child", "--object-size 128K");
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let refused = images.try_open("cut/child", mode).err().unwrap().to_string();
        assert!(refused.contains("`rbd flatten` it first"), "{refused}");
    }
    images.rbd("flatten --no-progress cut/child");
    assert_same(&images.by_store("cut/child"), &images.by_librbd("cut/parent"), "flattened");
}
