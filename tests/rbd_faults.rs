//! A volume on a cluster whose parts fail: it waits, and loses nothing.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sealdisk_cipher::CipherName;
use sealdisk_rados::{Cluster as Connection, Credentials, Image, ImageName, Pool, RbdStore};
use sealdisk_store::OpenMode;
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{Space, State, Volume, VolumeErrorKind};
use support::ceph::{Cluster, Daemon, OSDS, Pool as PoolKind};
use support::programs::eventually;
use support::{Fixture, Random, key, open, read, write};

const SECTOR: u64 = SECTOR_SIZE as u64;
/// Sectors that the load writes, in several objects.
const SECTORS: u64 = 150;

fn fixture() -> Fixture {
    Fixture { cipher: CipherName::Aegis256, fold: true, size: 4000 * SECTOR, journal_len: 1 << 20, atomicity: 4096 }
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

/// The first of the sectors that are written while there is no room, in an object that does not exist yet.
const FRESH: u64 = 3300;

fn assert_holds_what_is_fresh(volume: &Volume) {
    let mut sector = vec![0; SECTOR_SIZE];
    for lba in FRESH..FRESH + 600 {
        read(volume, lba * SECTOR, &mut sector).unwrap();
        assert!(sector == content(lba, 9), "sector {lba}");
    }
}

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

#[test]
fn whatever_daemon_fails_the_volume_waits_and_loses_nothing() {
    let mut cluster = Cluster::start();
    cluster.create_pool("disks", PoolKind::Replicated(2));
    let fixture = fixture();
    let connection = cluster.connect();
    let pool = Pool::open(&connection, "disks", "").unwrap();
    Image::create(&pool, "disk", fixture.layout().store_size(fixture.size), None).unwrap();
    let name = ImageName { pool: "disks".into(), namespace: String::new(), image: "disk".into(), snapshot: None };
    let store = Arc::new(RbdStore::open(&connection, &name, OpenMode::ReadWrite).unwrap());
    Volume::format_with_journal(&*store, &fixture.payload(), &key(), fixture.size, fixture.journal_len).unwrap();
    let volume = open(store.clone(), &fixture.payload(), false).unwrap();
    let load = Load::default();
    std::thread::scope(|scope| {
        scope.spawn(|| load.run(&volume));
        load.goes_on(2);

        cluster.server(Daemon::Osd(0)).kill();
        cluster.wait_until_down(0);
        load.goes_on(2);
        cluster.restart(Daemon::Osd(0));
        cluster.wait_until_healthy();
        load.goes_on(2);

        cluster.server(Daemon::Monitor).kill();
        cluster.restart(Daemon::Monitor);
        load.goes_on(2);

        // Nobody answers for a while: no error, and nothing that has to be tried again.
        (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).pause());
        let before = load.flushed.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(2));
        assert!(load.flushed.load(Ordering::SeqCst) <= before + 1, "what was flushed would not be there");
        (0..OSDS).for_each(|number| cluster.server(Daemon::Osd(number)).resume());
        load.goes_on(2);

        load.stop.store(true, Ordering::SeqCst);
    });
    assert!(matches!(volume.status().state, State::Healthy));

    // No room: an error for what needs more, and only for that. Space can be given back all the same.
    cluster.declare_full("disks");
    write(&volume, FRESH * SECTOR, &content(FRESH, 9)).unwrap();
    volume.flush().expect("the journal has its room");
    // More than the journal holds.
    (FRESH..FRESH + 600).for_each(|lba| write(&volume, lba * SECTOR, &content(lba, 9)).unwrap());
    assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::NoSpace);
    assert_holds_what_is_fresh(&volume);
    let second = ByteRange::checked(1012 * SECTOR, 1012 * SECTOR, fixture.size).unwrap();
    volume.zero(second, Space::Free).unwrap();
    cluster.make_room("disks");
    volume.flush().unwrap();
    assert!(matches!(volume.status().state, State::Healthy));
    let last = load.flushed.load(Ordering::SeqCst);
    volume.close().unwrap();

    let volume = open(store, &fixture.payload(), false).unwrap();
    assert_holds_what_is_fresh(&volume);
    let mut sector = vec![0; SECTOR_SIZE];
    for lba in 0..SECTORS {
        read(&volume, offset(lba), &mut sector).unwrap();
        let discarded = (second.offset()..second.end()).contains(&offset(lba));
        let expected = if discarded { vec![0; SECTOR_SIZE] } else { content(lba, last) };
        assert!(sector == expected, "sector {lba}");
    }
    assert!(volume.check(&mut |_, _| {}).unwrap().not_authentic.is_empty());
    volume.close().unwrap();
}

#[test]
fn who_may_only_read_is_told_so_when_it_wants_to_write() {
    let cluster = Cluster::shared();
    cluster.create_pool("guests", PoolKind::Replicated(2));
    let admin = cluster.connect();
    let fixture = fixture();
    let pool = Pool::open(&admin, "guests", "").unwrap();
    Image::create(&pool, "disk", fixture.layout().store_size(fixture.size), None).unwrap();
    let name = ImageName { pool: "guests".into(), namespace: String::new(), image: "disk".into(), snapshot: None };
    let store = Arc::new(RbdStore::open(&admin, &name, OpenMode::ReadWrite).unwrap());
    Volume::format_with_journal(&*store, &fixture.payload(), &key(), fixture.size, fixture.journal_len).unwrap();
    drop(store);

    let keyring =
        cluster.create_user("reader", &[("mon", "profile rbd"), ("osd", "profile rbd-read-only pool=guests")]);
    let reader = Credentials { conf: Some(cluster.conf()), id: Some("reader".into()), keyring: Some(keyring) };
    let reader = Connection::connect(&reader).unwrap();
    let refused = RbdStore::open(&reader, &name, OpenMode::ReadWrite).err().unwrap().to_string();
    assert!(refused.contains("image disk") && refused.contains("ermi"), "{refused}");
    let store = Arc::new(RbdStore::open(&reader, &name, OpenMode::ReadOnly).unwrap());
    let volume = support::read_only(store, &fixture.payload()).unwrap();
    let mut sector = vec![1; SECTOR_SIZE];
    read(&volume, 0, &mut sector).unwrap();
    assert!(sector.iter().all(|byte| *byte == 0));
}
