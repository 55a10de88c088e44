//! Volumes without a journal on a real cluster, in every layout that it can carry.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, ObjectLayout, Payload, PlainPayload, SealedPayload};
use sealdisk_rados::{Image, ObjectNames, ObjectRead, Pool, RbdStore};
use sealdisk_store::OpenMode;
use sealdisk_units::{ByteRange, Lba, Lineage, OBJECT_SIZE, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, Space, State, Volume, VolumeErrorKind};
use support::ceph::Pool as PoolKind;
use support::images::{Images, assert_same};
use support::{Model, Op, Random, key, read, write};

const SECTOR: u64 = SECTOR_SIZE as u64;
const LAYOUTS: [LayoutName; 4] = [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];
/// Sectors of most disks here: two objects and some.
const SECTORS: u64 = 2300;
const SIZE: u64 = SECTORS * SECTOR;

fn sealed(cipher: CipherName, layout: LayoutName, fold: bool) -> SealedPayload {
    SealedPayload { cipher, layout, fold, lineage: Lineage([5; 16]), offset: 4 * OBJECT_SIZE }
}

fn plain() -> Payload {
    Payload::Plain(PlainPayload { offset: 4 * OBJECT_SIZE, size: Some(SIZE), sector_size: 4096, iv_tweak: 0 })
}

fn try_open(store: Arc<RbdStore>, payload: &Payload, read_only: bool) -> Result<Volume, String> {
    let options = OpenOptions { read_only, memory: 8 << 20 };
    Volume::open(store, "test", payload, &key(), options).map_err(|error| error.to_string())
}

/// A new volume on a new image.
fn make(images: &Images, image: &str, payload: &Payload, options: &str) -> Volume {
    images.create(&format!("{image} {options}"), Volume::object_store_size(payload, SIZE), payload.object_size());
    let store = images.open(image);
    Volume::format(&*store, payload, &key(), SIZE).unwrap();
    try_open(store, payload, false).unwrap()
}

fn read_past(images: &Images, image: &str, payload: &Payload) -> Volume {
    try_open(images.try_open(image, OpenMode::ReadOnly).unwrap(), payload, true).unwrap()
}

#[test]
fn erasure_coded_data_takes_every_layout_but_omap() {
    let images = Images::new(&[("coded", PoolKind::Replicated(2)), ("coded-data", PoolKind::ErasureCoded)]);
    for layout in LAYOUTS {
        let payload = Payload::Sealed(sealed(CipherName::Aegis256, layout, false));
        let image = format!("coded/{layout}");
        if layout == LayoutName::Omap {
            let size = Volume::object_store_size(&payload, SIZE);
            images.create(&format!("{image} --data-pool coded-data"), size, OBJECT_SIZE);
            let refused = Volume::format(&*images.open(&image), &payload, &key(), SIZE).unwrap_err();
            assert!(refused.to_string().contains("an erasure-coded pool has none"), "{refused}");
            continue;
        }
        let volume = make(&images, &image, &payload, "--data-pool coded-data");
        let random = &mut Random::new(1);
        let mut model = Model::new(SIZE);
        for _ in 0..30 {
            let op = Model::random_op(SIZE, 1008, random);
            if !matches!(op, Op::Tidy(_)) {
                model.apply(&volume, &op, random, || 0);
            }
        }
        volume.close().unwrap();
        model.check_now(&read_past(&images, &image, &payload)).unwrap();
    }
}

/// A sector whose every byte depends on its number and on when it was written.
fn content(lba: u64, round: u64) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_SIZE];
    Random::new(lba * 100_003 + round).fill(&mut sector);
    sector[..8].copy_from_slice(&round.to_le_bytes());
    sector
}

#[test]
fn snapshots_under_load_hold_what_was_answered_and_open_authentic() {
    const BUSY: u64 = 60;
    let images = Images::new(&[("under-load", PoolKind::Replicated(2))]);
    for layout in LAYOUTS {
        let payload = Payload::Sealed(sealed(CipherName::Aegis256, layout, false));
        let image = format!("under-load/{layout}");
        let volume = make(&images, &image, &payload, "");
        let (stop, begun, ended) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let mut bounds = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1.. {
                    begun.store(round, Ordering::SeqCst);
                    for lba in 0..BUSY {
                        write(&volume, lba * 37 % SECTORS * SECTOR, &content(lba, round)).unwrap();
                    }
                    ended.store(round, Ordering::SeqCst);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
            while ended.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            for number in 0..3 {
                let least = ended.load(Ordering::SeqCst);
                images.rbd(&format!("snap create --no-progress {image}@s{number}"));
                bounds.push((least, begun.load(Ordering::SeqCst)));
            }
            stop.store(true, Ordering::SeqCst);
        });
        volume.close().unwrap();
        for (number, (least, most)) in bounds.into_iter().enumerate() {
            let past = read_past(&images, &format!("{image}@s{number}"), &payload);
            let mut sector = vec![0; SECTOR_SIZE];
            for lba in 0..BUSY {
                read(&past, lba * 37 % SECTORS * SECTOR, &mut sector).unwrap();
                let round = u64::from_le_bytes(sector[..8].try_into().unwrap());
                assert!(sector == content(lba, round) && (least..=most).contains(&round), "{layout}: {round}");
            }
            assert!(past.check(&mut |_, _| {}).unwrap().not_authentic.is_empty());
        }
    }
}

/// Who keeps every version of every object sees which sectors were overwritten; of a sealed one nothing else, of
/// `length-preserving` which blocks stayed.
#[test]
fn versions_of_an_object_have_no_block_in_common_but_without_seals() {
    let images = Images::new(&[("versions", PoolKind::Replicated(2))]);
    for fold in [false, true] {
        for layout in LAYOUTS {
            let payload = sealed(CipherName::Aegis256, layout, fold);
            let places = ObjectLayout::new(layout, payload.offset, 48).unwrap();
            let place = |lba| {
                let object = places.rows().object_of(Lba(lba));
                (places.store_object(object), places.index_of(Lba(lba)) * places.stride())
            };
            let payload = Payload::Sealed(payload);
            let common = blocks_in_common(&images, &format!("versions/{layout}-{fold}"), &payload, place);
            assert_eq!(common, 0, "{layout}, folded: {fold}");
        }
    }
    let place = |lba: u64| (4 + lba / 1024, lba % 1024 * SECTOR);
    let common = blocks_in_common(&images, "versions/plain", &plain(), place);
    assert_eq!(
        common,
        3 * 2 * 255,
        "all blocks but the one in which the byte lies, of 2 sectors in 3 pairs of versions"
    );
}

fn blocks_in_common(images: &Images, image: &str, payload: &Payload, place: impl Fn(u64) -> (u64, u64)) -> usize {
    let volume = make(images, image, payload, "");
    let lbas = [0, 1100];
    for generation in 0..3u8 {
        // One byte differs from one generation to the next.
        let mut sector = vec![0x55; SECTOR_SIZE];
        sector[100] = generation;
        for lba in lbas {
            write(&volume, lba * SECTOR, &sector).unwrap();
        }
        images.rbd(&format!("snap create --no-progress {image}@s{generation}"));
    }
    volume.close().unwrap();
    let store = images.try_open(image, OpenMode::ReadOnly).unwrap();
    let (names, data) = (store.image().object_names().unwrap(), store.image().data_pool().unwrap());
    let ids: Vec<u64> = store.image().snapshots().unwrap().iter().map(|snapshot| snapshot.id).collect();
    let version = |id: &u64| -> Vec<u8> {
        let past = data.at_snapshot(*id).unwrap();
        lbas.into_iter().flat_map(|lba| bytes(&past, &names, place(lba))).collect()
    };
    let versions: Vec<Vec<u8>> = ids.iter().map(version).collect();
    assert_eq!(versions.len(), 3);
    let pairs = [(0, 1), (0, 2), (1, 2)];
    let equal = |a: &[u8], b: &[u8]| a.chunks(16).zip(b.chunks(16)).filter(|(a, b)| a == b).count();
    pairs.into_iter().map(|(a, b)| equal(&versions[a], &versions[b])).sum()
}

fn bytes(pool: &Pool, names: &ObjectNames, (object, offset): (u64, u64)) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_SIZE];
    let mut reads = [ObjectRead::new(&names.name(object)).unwrap().extent(offset, &mut bytes)];
    pool.read(&mut reads);
    let [read] = reads;
    read.result.unwrap();
    bytes
}

#[test]
fn what_is_discarded_ceph_gets_back_and_reads_as_authentic_zeros() {
    let images = Images::new(&[("discards", PoolKind::Replicated(2))]);
    let objects = |prefix: &str| {
        let listed = images.cluster.run("rados --pool discards ls");
        listed.lines().filter(|name| name.starts_with(prefix)).count()
    };
    for layout in LAYOUTS {
        let payload = Payload::Sealed(sealed(CipherName::Aegis256, layout, false));
        let image = format!("discards/{layout}");
        let volume = make(&images, &image, &payload, "");
        let prefix = format!("rbd_data.{}.", read_id(&images, &image));
        let empty = objects(&prefix);
        write(&volume, 0, &vec![7; SIZE as usize]).unwrap();
        assert_eq!(objects(&prefix), empty + 3, "{layout}");
        // Half an object: it stays, and its sectors are zero.
        volume.zero(ByteRange::checked(0, 500 * SECTOR, SIZE).unwrap(), Space::Free).unwrap();
        assert_eq!(objects(&prefix), empty + 3, "{layout}");
        let mut buf = vec![1; 501 * SECTOR_SIZE];
        read(&volume, 0, &mut buf).unwrap();
        assert!(buf[..500 * SECTOR_SIZE].iter().all(|byte| *byte == 0) && buf[500 * SECTOR_SIZE] == 7);
        volume.zero(ByteRange::checked(0, SIZE, SIZE).unwrap(), Space::Free).unwrap();
        assert_eq!(objects(&prefix), empty, "{layout}");
        volume.close().unwrap();
        let volume = read_past(&images, &image, &payload);
        read(&volume, 0, &mut buf).unwrap();
        assert!(buf.iter().all(|byte| *byte == 0));
    }
}

/// librbd makes LUKS volumes on objects of any size, and other programs some in which a sector lies across two objects.
#[test]
fn without_seals_what_is_not_there_is_zeros_whatever_the_objects_are() {
    const SIZE: u64 = 40 << 20;
    let images = Images::new(&[("any-objects", PoolKind::Replicated(2))]);
    for (object_size, offset) in [(1 << 20, 16 << 20), (16 << 20, 16 << 20), (OBJECT_SIZE, (2 << 20) + 512)] {
        let payload = Payload::Plain(PlainPayload { offset, size: None, sector_size: 4096, iv_tweak: 0 });
        let image = format!("any-objects/{object_size}");
        images.create(&image, offset + SIZE, object_size);
        let volume = try_open(images.open(&image), &payload, false).unwrap();
        let mut found = vec![1; SIZE as usize];
        read(&volume, 0, &mut found).unwrap();
        assert_same(&found, &vec![0; SIZE as usize], &image);
        write(&volume, 0, &vec![7; SIZE as usize]).unwrap();
        let discarded = (1 << 20) + 4096..(38 << 20) + 4096;
        let range = ByteRange::checked(discarded.start, discarded.end - discarded.start, SIZE).unwrap();
        volume.zero(range, Space::Free).unwrap();
        read(&volume, 0, &mut found).unwrap();
        let mut expected = vec![7; SIZE as usize];
        expected[discarded.start as usize..discarded.end as usize].fill(0);
        assert_same(&found, &expected, &image);
    }
}

fn read_id(images: &Images, image: &str) -> String {
    images.try_open(image, OpenMode::ReadOnly).unwrap().image().id().unwrap()
}

#[test]
fn who_has_lost_the_lock_changes_no_byte_and_says_so() {
    let images = Images::new(&[("fenced", PoolKind::Replicated(2))]);
    for layout in LAYOUTS {
        let payload = Payload::Sealed(sealed(CipherName::Aegis256, layout, false));
        let image = format!("fenced/{layout}");
        // A connection of its own: it will be shut out.
        let loser = images.of_another_client();
        let volume = make(&loser, &image, &payload, "");
        write(&volume, 0, &content(0, 1)).unwrap();
        let pool = Arc::new(Pool::open(&images.connection, "fenced", "").unwrap());
        let breaker = Image::open(&pool, &layout.to_string(), None, false).unwrap();
        breaker.break_lock(&breaker.lock_owner().unwrap().unwrap()).unwrap();
        drop(breaker);
        // An OSD learns who is shut out no later than from who goes on.
        let winner = try_open(images.open(&image), &payload, false).unwrap();
        let is_as_it_was = || {
            let mut sector = vec![0; SECTOR_SIZE];
            read(&winner, 0, &mut sector).unwrap();
            assert!(sector == content(0, 1), "{layout}");
        };
        is_as_it_was();
        let refused = write(&volume, 0, &content(0, 2)).unwrap_err();
        assert!(matches!(refused.kind(), VolumeErrorKind::Store | VolumeErrorKind::Failed), "{refused}");
        assert!(volume.flush().is_err());
        assert!(matches!(volume.status().state, State::Failed(_)));
        drop(volume);
        is_as_it_was();
    }
}

#[test]
fn a_clone_of_a_layout_whose_seals_ceph_does_not_copy_is_refused() {
    let images = Images::new(&[("seals-lost", PoolKind::Replicated(2))]);
    for layout in LAYOUTS {
        let payload = Payload::Sealed(sealed(CipherName::Aegis256, layout, false));
        let image = format!("seals-lost/{layout}");
        let volume = make(&images, &image, &payload, "");
        write(&volume, 0, &content(0, 1)).unwrap();
        volume.close().unwrap();
        let child = format!("{image}-child");
        images.clone(&format!("{image}@s"), &child, "");
        match try_open(images.open(&child), &payload, false) {
            Err(refused) => assert!(layout == LayoutName::Omap && refused.contains("clone"), "{layout}: {refused}"),
            Ok(volume) => {
                assert_ne!(layout, LayoutName::Omap);
                write(&volume, SECTOR, &content(1, 2)).unwrap();
                let mut sector = vec![0; SECTOR_SIZE];
                read(&volume, 0, &mut sector).unwrap();
                assert!(sector == content(0, 1));
            }
        }
    }
}
