//! Volumes on RBD images: what a store promises, snapshots by anyone at any time, and one writer.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sealdisk_cipher::CipherName;
use sealdisk_layout::Payload;
use sealdisk_rados::{Cluster as Connection, Image, ImageError, ImageName, ObjectRead, Pool, RbdStore};
use sealdisk_store::{FileStore, OpenMode, Store};
use sealdisk_units::{Lba, OBJECT_SIZE, SECTOR_SIZE};
use sealdisk_volume::{State, Volume, VolumeErrorKind};
use support::ceph::{Cluster, Pool as PoolKind};
use support::programs::run;
use support::{Fixture, Model, Random, key, open, read, read_only, store_contract, write};

const SECTOR: u64 = SECTOR_SIZE as u64;

/// A pool of the shared cluster under a name of its own, and a connection to it.
struct Place {
    cluster: &'static Cluster,
    connection: Arc<Connection>,
    pool: &'static str,
}

impl Place {
    fn new(pool: &'static str) -> Self {
        let cluster = Cluster::shared();
        cluster.create_pool(pool, PoolKind::Replicated(2));
        Self { cluster, connection: cluster.connect(), pool }
    }

    fn create(&self, image: &str, size: u64, data_pool: Option<&str>) {
        let pool = Pool::open(&self.connection, self.pool, "").unwrap();
        Image::create(&pool, image, size, OBJECT_SIZE, data_pool).unwrap();
    }

    fn name(&self, image: &str) -> ImageName {
        let (image, snapshot) =
            image.split_once('@').map_or((image, None), |(image, snapshot)| (image, Some(snapshot)));
        let snapshot = snapshot.map(str::to_owned);
        ImageName { pool: self.pool.to_owned(), namespace: String::new(), image: image.to_owned(), snapshot }
    }

    fn try_open(&self, image: &str, mode: OpenMode) -> Result<Arc<RbdStore>, ImageError> {
        RbdStore::open(&self.connection, &self.name(image), mode).map(Arc::new)
    }

    fn store(&self, image: &str) -> Arc<RbdStore> {
        self.try_open(image, OpenMode::ReadWrite).unwrap()
    }

    fn rbd(&self, command: &str) -> String {
        self.cluster.run(&format!("rbd --pool {} {command}", self.pool))
    }

    /// A new image that holds an empty volume.
    fn volume(&self, image: &str, fixture: &Fixture) -> Arc<RbdStore> {
        self.create(image, fixture.layout().store_size(fixture.size), None);
        let store = self.store(image);
        Volume::format_with_journal(&*store, &fixture.payload(), &key(), fixture.size, fixture.journal_len).unwrap();
        store
    }
}

fn fixture(fold: bool) -> Fixture {
    Fixture { cipher: CipherName::Aegis256, fold, size: 2000 * SECTOR, journal_len: 1 << 20, atomicity: 4096 }
}

#[test]
fn an_image_keeps_the_contract_of_stores() {
    let place = Place::new("contract");
    place.cluster.create_pool("contract-data", PoolKind::ErasureCoded);
    for (image, data_pool) in [("whole", None), ("in-parts", Some("contract-data"))] {
        place.create(image, store_contract::SIZE, data_pool);
        store_contract::keeps_every_promise(place.store(image));
    }
}

#[test]
fn what_a_volume_gives_back_ceph_gets_back() {
    let place = Place::new("discard");
    let fixture = fixture(false);
    let volume = open(place.volume("disk", &fixture), &fixture.payload(), false).unwrap();
    let objects = || place.cluster.run("rados --pool discard ls").matches("rbd_data").count();
    let empty = objects();
    write(&volume, 0, &vec![7; fixture.size as usize]).unwrap();
    volume.flush().unwrap();
    assert!(objects() >= empty + 2);
    let all = sealdisk_units::ByteRange::checked(0, fixture.size, fixture.size).unwrap();
    volume.zero(all, sealdisk_volume::Space::Free).unwrap();
    let mut bytes = vec![1; 8192];
    read(&volume, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    volume.close().unwrap();
    // The journal's object may have come.
    assert!(objects() <= empty + 1, "{} objects, {empty} before", objects());
}

/// Random work, and then every way in which Ceph copies an image: the copy is the same disk, and every sector authentic.
#[test]
fn copies_by_ceph_are_the_same_disk() {
    let place = Place::new("copies");
    for fold in [false, true] {
        let fixture = fixture(fold);
        let name = format!("disk-{fold}");
        let store = place.volume(&name, &fixture);
        let mut model = Model::new(fixture.size);
        let random = &mut Random::new(Random::seed_from_environment("copies"));
        let volume = open(store.clone(), &fixture.payload(), false).unwrap();
        for _ in 0..40 {
            let op = Model::random_op(fixture.size, fixture.layout().sectors_per_object(), random);
            model.apply(&volume, &op, random, || 0);
        }
        model.check_now(&volume).unwrap();
        volume.close().unwrap();
        drop(store);

        let file = tempfile::tempdir().unwrap();
        let exported = file.path().join("exported");
        place.rbd(&format!("export --no-progress {name} {}", exported.display()));
        let in_a_file = Arc::new(FileStore::open(&exported, OpenMode::ReadWrite).unwrap());
        assert_same_disk(&model, in_a_file, &fixture, "exported");
        let import = "import --no-progress --image-feature exclusive-lock";
        place.rbd(&format!("{import} {} copies/{name}-imported", exported.display()));
        place.rbd(&format!("cp --no-progress --image-feature exclusive-lock copies/{name} copies/{name}-copied"));
        place.rbd(&format!("snap create --no-progress {name}@s"));
        place.rbd(&format!("deep cp --no-progress copies/{name} copies/{name}-deep"));
        let clone = "clone --rbd-default-clone-format 2 --image-feature layering,exclusive-lock";
        place.rbd(&format!("{clone} copies/{name}@s copies/{name}-flat"));
        place.rbd(&format!("flatten --no-progress {name}-flat"));
        for copy in ["imported", "copied", "deep", "flat"] {
            assert_same_disk(&model, place.store(&format!("{name}-{copy}")), &fixture, copy);
        }
        // A copy is no link: what is written now is gone when the image is rolled back.
        let volume = open(place.store(&name), &fixture.payload(), false).unwrap();
        write(&volume, 0, &vec![9; 1 << 20]).unwrap();
        volume.close().unwrap();
        place.rbd(&format!("snap rollback --no-progress {name}@s"));
        assert_same_disk(&model, place.store(&name), &fixture, "rolled back");
    }
}

fn assert_same_disk(model: &Model, store: Arc<dyn Store>, fixture: &Fixture, what: &str) {
    let volume = open(store, &fixture.payload(), false).unwrap_or_else(|error| panic!("{what}: {error}"));
    model.check_now(&volume).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(volume.check(&mut |_, _| {}).unwrap().not_authentic.is_empty(), "{what}");
}

/// One thread writes the same sectors over and over, each time with the number of the round; somebody makes snapshots.
#[test]
fn a_snapshot_under_load_is_a_disk_after_a_crash() {
    const SECTORS: u64 = 300;
    let place = Place::new("under-load");
    let fixture = fixture(false);
    let store = place.volume("disk", &fixture);
    let volume = open(store.clone(), &fixture.payload(), false).unwrap();
    let (stop, begun, flushed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut bounds = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                begun.store(round, Ordering::SeqCst);
                for lba in 0..SECTORS {
                    write(&volume, lba * 7 % 2000 * SECTOR, &content(lba, round)).unwrap();
                }
                volume.flush().unwrap();
                flushed.store(round, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        while flushed.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for number in 0..4 {
            let least = flushed.load(Ordering::SeqCst);
            place.rbd(&format!("snap create --no-progress disk@s{number}"));
            bounds.push((least, begun.load(Ordering::SeqCst)));
        }
        stop.store(true, Ordering::SeqCst);
    });
    volume.close().unwrap();
    let mut before = 0;
    for (number, (least, most)) in bounds.into_iter().enumerate() {
        let past = place.try_open(&format!("disk@s{number}"), OpenMode::ReadOnly).unwrap();
        let past = read_only(past, &fixture.payload()).unwrap();
        assert!(past.status().damage.is_none());
        let mut rounds = Vec::new();
        let mut sector = vec![0; SECTOR_SIZE];
        for lba in 0..SECTORS {
            read(&past, lba * 7 % 2000 * SECTOR, &mut sector).unwrap();
            let round = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert!(sector == content(lba, round));
            rounds.push(round);
        }
        assert!(rounds.iter().all(|round| (least..=most).contains(round)), "{least} to {most}: {rounds:?}");
        assert!(*rounds.iter().min().unwrap() >= before);
        before = least;
        assert!(past.check(&mut |_, _| {}).unwrap().not_authentic.is_empty());
    }
}

fn content(lba: u64, round: u64) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_SIZE];
    Random::new(lba * 100_003 + round).fill(&mut sector);
    sector[..8].copy_from_slice(&round.to_le_bytes());
    sector
}

/// Who keeps every version of every object sees which sectors were overwritten, and nothing of what changed in them.
#[test]
fn versions_of_an_object_have_no_block_in_common() {
    let place = Place::new("versions");
    for fold in [false, true] {
        let fixture = fixture(fold);
        let name = format!("disk-{fold}");
        let store = place.volume(&name, &fixture);
        let (names, data) = (store.image().object_names().unwrap(), store.image().data_pool().unwrap());
        let layout = fixture.layout();
        let mut versions: Vec<Vec<u8>> = Vec::new();
        for generation in 0..3u8 {
            // One byte differs from one generation to the next.
            let mut sector = vec![0x55; SECTOR_SIZE];
            sector[100] = generation;
            let volume = open(store.clone(), &fixture.payload(), false).unwrap();
            for lba in [0, 1100] {
                write(&volume, lba * SECTOR, &sector).unwrap();
            }
            volume.close().unwrap();
            place.rbd(&format!("snap create --no-progress {name}@s{generation}"));
            let id = store.image().snapshots().unwrap().last().unwrap().id;
            let past = data.at_snapshot(id).unwrap();
            versions.push(
                [0, 1100].into_iter().flat_map(|lba| place_of(&past, &names, layout.place(Lba(lba)).data)).collect(),
            );
        }
        for (i, a) in versions.iter().enumerate() {
            for b in &versions[..i] {
                let equal = a.chunks(16).zip(b.chunks(16)).filter(|(a, b)| a == b).count();
                assert_eq!(equal, 0, "folded: {fold}");
            }
        }
    }
}

fn place_of(pool: &Pool, names: &sealdisk_rados::ObjectNames, range: sealdisk_units::StoreRange) -> Vec<u8> {
    let mut bytes = vec![0; range.len as usize];
    let object = names.name(range.offset >> 22);
    let mut reads = [ObjectRead::new(&object).unwrap().extent(range.offset % (4 << 20), &mut bytes)];
    pool.read(&mut reads);
    let [read] = reads;
    read.result.unwrap();
    bytes
}

#[test]
fn one_writes_and_whoever_has_lost_the_lock_cannot_change_a_byte() {
    let place = Place::new("one-writer");
    let fixture = fixture(false);
    let store = place.volume("disk", &fixture);
    let volume = open(store, &fixture.payload(), false).unwrap();
    write(&volume, 0, &[1; SECTOR_SIZE]).unwrap();
    volume.flush().unwrap();

    let other = Place { cluster: place.cluster, connection: place.cluster.connect(), pool: place.pool };
    let refused = other.try_open("disk", OpenMode::ReadWrite).err().unwrap();
    let ImageError::Busy { owner, .. } = &refused else { panic!("{refused}") };
    assert!(refused.to_string().contains("rbd lock ls one-writer/disk"), "{refused}");
    // Readers may be many.
    let readers = [(); 2].map(|()| read_only(other.try_open("disk", OpenMode::ReadOnly).unwrap(), &fixture.payload()));
    let mut sector = [0; SECTOR_SIZE];
    read(readers[0].as_ref().unwrap(), 0, &mut sector).unwrap();
    assert_eq!(sector, [1; SECTOR_SIZE]);

    // An administrator takes the lock away; the next one goes on where the first was.
    let pool = Arc::new(Pool::open(&other.connection, "one-writer", "").unwrap());
    Image::open(&pool, "disk", None, false).unwrap().break_lock(owner).unwrap();
    let next = open(other.store("disk"), &fixture.payload(), false).unwrap();
    write(&next, 0, &[2; SECTOR_SIZE]).unwrap();
    next.flush().unwrap();
    let objects = || run(place.cluster.program("rbd").args(["export", "--no-progress", "one-writer/disk", "-"])).stdout;
    let before = objects();
    write(&volume, 0, &[3; SECTOR_SIZE]).unwrap();
    assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::Store);
    let lost = volume.flush().unwrap_err();
    assert!(lost.to_string().contains("lock"), "{lost}");
    assert!(matches!(volume.status().state, State::Failed(_)), "{:?}", volume.status().state);
    assert!(volume.close().is_err());
    assert!(objects() == before, "not a byte");
    read(&next, 0, &mut sector).unwrap();
    assert_eq!(sector, [2; SECTOR_SIZE]);
    next.close().unwrap();
}

#[test]
fn images_that_would_be_damaged_are_refused_with_the_command_that_helps() {
    let place = Place::new("refused");
    let story = |image: &str| place.try_open(image, OpenMode::ReadWrite).err().unwrap().to_string();
    place.rbd("create --size 64M --image-feature exclusive-lock,object-map,fast-diff mapped");
    let complaint = story("mapped");
    let command = "rbd feature disable refused/mapped fast-diff object-map";
    assert!(complaint.contains(&format!("`{command}`")), "{complaint}");
    place.cluster.run(command);
    let store = place.store("mapped");
    // Somebody turns it on again: from then on nothing is written.
    place.rbd("feature enable mapped object-map");
    let payload = Payload::Sealed(fixture(false).payload());
    let written = || Volume::format(&*store, &payload, &key(), 1 << 20);
    support::programs::eventually("the store has noticed", || written().is_err());
    assert!(written().unwrap_err().to_string().contains("was given a feature"));
    drop(store);

    place.rbd("create --size 64M --image-feature layering unlocked");
    assert!(story("unlocked").contains("rbd feature enable"));
    place.rbd("create --size 64M --image-feature exclusive-lock --stripe-unit 65536 --stripe-count 4 striped");
    assert!(story("striped").contains("striped"));
    assert_eq!(story("missing"), "opening image missing: No such file or directory (os error 2)");
    place.create("plain", 8 << 20, None);
    assert!(story("plain@none").starts_with("opening snapshot none of image plain: "));
}
