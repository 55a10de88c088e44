//! A volume on a cluster whose parts fail: it waits, and loses nothing.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, Payload, SealedPayload};
use sealdisk_rados::{Cluster as Connection, Credentials, Image, ImageName, ObjectWrite, Pool, RbdStore};
use sealdisk_store::OpenMode;
use sealdisk_units::{ByteRange, Lineage, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, Space, State, Volume, VolumeErrorKind};
use support::ceph::{Cluster, Daemon, OSDS, Pool as PoolKind};
use support::programs::eventually;
use support::{Random, key, read, write};

const SECTOR: u64 = SECTOR_SIZE as u64;
/// Sectors that the load writes, in several objects.
const SECTORS: u64 = 150;

const SIZE: u64 = 4000 * SECTOR;
const LAYOUTS: [LayoutName; 4] = [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];

fn payload(layout: LayoutName) -> Payload {
    let lineage = Lineage([3; 16]);
    Payload::Sealed(SealedPayload { cipher: CipherName::Aegis256, layout, fold: true, lineage, offset: 0 })
}

fn image(pool: &str, image: &str) -> ImageName {
    ImageName { pool: pool.into(), namespace: String::new(), image: image.into(), snapshot: None }
}

/// Makes a volume on a new image.
fn make(connection: &Arc<Connection>, name: &ImageName, payload: &Payload) -> Arc<RbdStore> {
    let pool = Pool::open(connection, &name.pool, "").unwrap();
    Image::create(&pool, &name.image, Volume::object_store_size(payload, SIZE), payload.object_size(), None).unwrap();
    let store = Arc::new(RbdStore::open(connection, name, OpenMode::ReadWrite).unwrap());
    Volume::format(&*store, payload, &key(), SIZE).unwrap();
    store
}

fn open(store: &Arc<RbdStore>, payload: &Payload, read_only: bool) -> Volume {
    let options = OpenOptions { read_only, memory: 4 << 20 };
    Volume::open(Arc::<RbdStore>::clone(store), "test", payload, &key(), options).unwrap()
}

fn offset(lba: u64) -> u64 {
    lba * 19 * SECTOR
}

fn content(lba: u64, round: u64) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_SIZE];
    // Half of them fold.
    let len = if lba.is_multiple_of(2) { 300 } else { SECTOR_SIZE };
    Random::new(lba * 100_003 + round).fill(&mut sector[..len]);
    sector[..8].copy_from_slice(&round.to_le_bytes());
    sector
}

/// A sector of an object that the load does not touch.
const FRESH: u64 = 3300;

/// Rounds that were written, and flushed.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    flushed: AtomicU64,
}

impl Load {
    fn run(&self, volume: &Volume) {
        for round in 1.. {
            for lba in 0..SECTORS {
                write(volume, offset(lba), &content(lba, round)).unwrap();
            }
            volume.flush().unwrap();
            self.flushed.store(round, Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Waits until so many more rounds were flushed.
    fn goes_on(&self, rounds: u64) {
        let now = self.flushed.load(Ordering::SeqCst);
        eventually("the load goes on", || self.flushed.load(Ordering::SeqCst) >= now + rounds);
    }
}

/// A volume of each layout, under load.
struct Loaded {
    layout: LayoutName,
    store: Arc<RbdStore>,
    volume: Volume,
    load: Load,
}

#[test]
fn whatever_daemon_fails_volumes_wait_and_lose_nothing() {
    let mut cluster = Cluster::start();
    cluster.create_pool("disks", PoolKind::Replicated(2));
    let connection = cluster.connect();
    let disks = LAYOUTS.map(|layout| {
        let store = make(&connection, &image("disks", layout.as_str()), &payload(layout));
        let volume = open(&store, &payload(layout), false);
        Loaded { layout, store, volume, load: Load::default() }
    });
    std::thread::scope(|scope| {
        for disk in &disks {
            scope.spawn(|| disk.load.run(&disk.volume));
        }
        let all_go_on = || disks.iter().for_each(|disk| disk.load.goes_on(2));
        all_go_on();

        cluster.server(Daemon::Osd(0)).kill();
        cluster.wait_until_down(0);
        all_go_on();
        cluster.restart(Daemon::Osd(0));
        cluster.wait_until_healthy();
        all_go_on();

        cluster.server(Daemon::Monitor).kill();
        cluster.restart(Daemon::Monitor);
        all_go_on();

        // Nobody answers for a while: no error, and nothing that has to be tried again.
        (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).pause());
        let flushed = || disks.each_ref().map(|disk| disk.load.flushed.load(Ordering::SeqCst));
        let before = flushed();
        std::thread::sleep(Duration::from_secs(2));
        let after = flushed();
        assert!(
            before.iter().zip(after).all(|(before, after)| after <= before + 1),
            "what was flushed would not be there"
        );
        (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).resume());
        all_go_on();

        disks.iter().for_each(|disk| disk.load.stop.store(true, Ordering::SeqCst));
    });

    // No room: an error for what needs more, and only for that. Space can be given back all the same.
    cluster.declare_full("disks");
    // The monitors have said so; who writes hears of it with their next map.
    let pool = Pool::open(&connection, "disks", "").unwrap();
    let mut probes = (0..).map(|number| format!("probe-{number}"));
    eventually("writers know that the pool is full", || {
        let mut probe = [ObjectWrite::new(&pool, &probes.next().unwrap()).unwrap().write(0, b"more")];
        pool.write(&mut probe);
        probe[0].result.is_err()
    });
    let second = ByteRange::checked(1008 * SECTOR, 1008 * SECTOR, SIZE).unwrap();
    for Loaded { layout, volume, .. } in &disks {
        assert!(matches!(volume.status().state, State::Healthy), "{layout}");
        let refused = write(volume, FRESH * SECTOR, &content(FRESH, 9)).unwrap_err();
        assert_eq!(refused.kind(), VolumeErrorKind::NoSpace, "{layout}: {refused}");
        let mut sector = vec![1; SECTOR_SIZE];
        read(volume, FRESH * SECTOR, &mut sector).unwrap();
        assert!(sector.iter().all(|byte| *byte == 0), "{layout}");
        volume.zero(second, Space::Free).unwrap();
    }
    cluster.make_room("disks");
    for Loaded { layout, store, volume, load } in disks {
        write(&volume, FRESH * SECTOR, &content(FRESH, 9)).unwrap();
        assert!(matches!(volume.status().state, State::Healthy), "{layout}");
        let last = load.flushed.load(Ordering::SeqCst);
        volume.close().unwrap();
        let volume = open(&store, &payload(layout), false);
        let mut sector = vec![0; SECTOR_SIZE];
        read(&volume, FRESH * SECTOR, &mut sector).unwrap();
        assert!(sector == content(FRESH, 9), "{layout}");
        for lba in 0..SECTORS {
            read(&volume, offset(lba), &mut sector).unwrap();
            let discarded = (second.offset()..second.end()).contains(&offset(lba));
            let expected = if discarded { vec![0; SECTOR_SIZE] } else { content(lba, last) };
            assert!(sector == expected, "{layout}, sector {lba}");
        }
        assert!(volume.check(&mut |_, _| {}).unwrap().not_authentic.is_empty(), "{layout}");
        volume.close().unwrap();
    }
}

#[test]
fn who_may_only_read_is_told_so_when_it_wants_to_write() {
    let cluster = Cluster::shared();
    cluster.create_pool("guests", PoolKind::Replicated(2));
    let admin = cluster.connect();
    let name = image("guests", "disk");
    let payload = payload(LayoutName::Packed);
    drop(make(&admin, &name, &payload));

    let keyring =
        cluster.create_user("reader", &[("mon", "profile rbd"), ("osd", "profile rbd-read-only pool=guests")]);
    let reader = Credentials { conf: Some(cluster.conf()), id: Some("reader".into()), keyring: Some(keyring) };
    let reader = Connection::connect(&reader).unwrap();
    let refused = RbdStore::open(&reader, &name, OpenMode::ReadWrite).err().unwrap().to_string();
    assert!(refused.contains("image disk") && refused.contains("ermi"), "{refused}");
    let store = Arc::new(RbdStore::open(&reader, &name, OpenMode::ReadOnly).unwrap());
    let volume = open(&store, &payload, true);
    let mut sector = vec![1; SECTOR_SIZE];
    read(&volume, 0, &mut sector).unwrap();
    assert!(sector.iter().all(|byte| *byte == 0));
}
