//! Failures from below reach the client, and lose nothing that could be kept.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{Payload, PlainPayload};
use sealdisk_store::{Choices, Fault, FaultStore, Image, MemoryStore, Store};
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE, StoreRange};
use sealdisk_volume::{OpenOptions, Space, State, Volume, VolumeErrorKind};
use support::{Fixture, Random, key, read, write};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SECTOR: u64 = SECTOR_SIZE as u64;

fn fixture() -> Fixture {
    Fixture { cipher: CipherName::Aegis256, fold: false, size: 3000 * SECTOR, journal_len: 1 << 20, atomicity: 4096 }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut buf = vec![0; SECTOR_SIZE];
    Random::new(seed).fill(&mut buf);
    buf
}

fn open() -> (Fixture, Arc<FaultStore>, Volume) {
    let fixture = fixture();
    let store = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
    let volume = fixture.open(store.clone()).unwrap();
    (fixture, store, volume)
}

fn expect(volume: &Volume, sectors: std::ops::Range<u64>) {
    let mut buf = vec![0; SECTOR_SIZE];
    for lba in sectors {
        read(volume, lba * SECTOR, &mut buf).unwrap();
        assert!(buf == noise(lba), "sector {lba}");
    }
}

#[test]
fn a_failed_sync_is_final_and_says_so() {
    let (fixture, store, volume) = open();
    write(&volume, 0, &noise(0)).unwrap();
    volume.flush().unwrap();
    store.inject(Fault::SyncsAfter(0));
    write(&volume, SECTOR, &noise(1)).unwrap();
    assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::Store);
    // The disk below works again, and says so. Nobody may believe it.
    store.heal();
    for _ in 0..2 {
        assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::Failed);
        assert_eq!(write(&volume, 0, &noise(9)).unwrap_err().kind(), VolumeErrorKind::Failed);
        let all = ByteRange::checked(0, fixture.size, fixture.size).unwrap();
        assert_eq!(volume.zero(all, Space::Free).unwrap_err().kind(), VolumeErrorKind::Failed);
    }
    assert!(matches!(volume.status().state, State::Failed(_)));
    // Reading goes on, and what was flushed before is there after a restart.
    expect(&volume, 0..2);
    assert!(volume.close().is_err());
    let volume = fixture.open(Arc::new(MemoryStore::from_image(store.image(), 4096))).unwrap();
    expect(&volume, 0..1);
}

#[test]
fn a_full_store_is_enospc_and_nothing_is_lost_once_there_is_room() {
    let (fixture, store, volume) = open();
    for round in 0..3 {
        store.inject(Fault::WritesAfter(round, ENOSPC));
        for lba in round * 100..(round + 1) * 100 {
            write(&volume, lba * SECTOR, &noise(lba)).unwrap();
        }
        assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::NoSpace);
        assert_eq!(volume.status().state, State::Healthy);
        expect(&volume, 0..(round + 1) * 100);
        store.heal();
        volume.flush().unwrap();
        expect(&volume, 0..(round + 1) * 100);
    }
    // It is durable, not only in memory.
    let after_crash = fixture.open(Arc::new(MemoryStore::from_image(store.image(), 4096))).unwrap();
    expect(&after_crash, 0..300);
    volume.close().unwrap();
}

#[test]
fn a_store_that_fails_for_good_stops_writers_when_memory_is_full() {
    let (_, store, volume) = open();
    store.inject(Fault::WritesAfter(5, EIO));
    let mut written = 0;
    let error = loop {
        match write(&volume, written % 3000 * SECTOR, &noise(written % 3000)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000_000, "memory is bounded, so a write must fail some day");
    };
    assert_eq!(error.kind(), VolumeErrorKind::Store);
    assert!(error.to_string().contains("volume test"), "{error}");
    store.heal();
    volume.flush().unwrap();
    expect(&volume, 0..written.min(3000));
}

#[test]
fn an_unreadable_sector_is_an_error_of_its_own() {
    let (fixture, store, volume) = open();
    for lba in 0..200 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.close().unwrap();
    let volume = fixture.open(store.clone()).unwrap();
    store.inject(Fault::Read(fixture.layout().place(Lba(77)).data));
    let mut buf = vec![0; SECTOR_SIZE];
    let error = read(&volume, 77 * SECTOR, &mut buf).unwrap_err();
    assert_eq!(error.kind(), VolumeErrorKind::Store);
    assert!(error.to_string().contains("sector 77 of volume test"), "{error}");
    expect(&volume, 0..77);
    expect(&volume, 78..200);
    let mut many = vec![0; 200 * SECTOR_SIZE];
    assert!(read(&volume, 0, &mut many).is_err());
    // A partial write needs what it cannot read; a whole one does not.
    assert!(write(&volume, 77 * SECTOR + 1, b"x").is_err());
    write(&volume, 77 * SECTOR, &noise(77)).unwrap();
    expect(&volume, 0..200);
}

#[test]
fn unreadable_seals_lose_no_write() {
    let (fixture, store, volume) = open();
    for lba in 0..200 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.close().unwrap();
    let volume = fixture.open(store.clone()).unwrap();
    let page = fixture.layout().seal_page(fixture.layout().place(Lba(0)).seal_page);
    store.inject(Fault::Read(page));
    write(&volume, 0, &noise(1000)).unwrap();
    volume.flush().expect("the journal has it");
    let mut buf = vec![0; SECTOR_SIZE];
    read(&volume, 0, &mut buf).unwrap();
    assert!(buf == noise(1000));
    assert!(read(&volume, SECTOR, &mut buf).is_err());
    store.heal();
    volume.close().unwrap();
    let volume = fixture.open(store).unwrap();
    read(&volume, 0, &mut buf).unwrap();
    assert!(buf == noise(1000));
    expect(&volume, 1..200);
}

#[test]
fn read_only_refuses_writes_and_writes_nothing() {
    let (fixture, store, volume) = open();
    write(&volume, 0, &noise(0)).unwrap();
    volume.flush().unwrap();
    let crashed = Arc::new(FaultStore::new(store.image(), 4096));
    let volume = support::read_only(crashed.clone(), &fixture.payload()).unwrap();
    expect(&volume, 0..1);
    assert_eq!(write(&volume, 0, &noise(1)).unwrap_err().kind(), VolumeErrorKind::ReadOnly);
    let all = ByteRange::checked(0, fixture.size, fixture.size).unwrap();
    assert_eq!(volume.zero(all, Space::Free).unwrap_err().kind(), VolumeErrorKind::ReadOnly);
    volume.flush().unwrap();
    assert_eq!(volume.status().state, State::ReadOnly);
    volume.close().unwrap();
    assert_eq!(crashed.event_count(), 0);
}

#[test]
fn a_plain_volume_reports_the_same_failures() {
    let payload = PlainPayload { offset: 1 << 20, size: None, sector_size: 512, iv_tweak: 0 };
    let store = Arc::new(FaultStore::new(Image::new(2 << 20), 512));
    let options = OpenOptions::default();
    let volume = Volume::open(store.clone(), "test", &Payload::Plain(payload), &key(), options).unwrap();
    write(&volume, 100, &noise(1)).unwrap();
    let mut buf = vec![0; SECTOR_SIZE];
    read(&volume, 100, &mut buf).unwrap();
    assert!(buf == noise(1));
    store.inject(Fault::Read(StoreRange::new(1 << 20, 512)));
    assert_eq!(read(&volume, 0, &mut buf).unwrap_err().kind(), VolumeErrorKind::Store);
    store.heal();
    store.inject(Fault::WritesAfter(0, ENOSPC));
    assert_eq!(write(&volume, 0, &noise(2)).unwrap_err().kind(), VolumeErrorKind::NoSpace);
    store.heal();
    store.inject(Fault::SyncsAfter(0));
    assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::Store);
    store.heal();
    assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::Failed);
    assert_eq!(write(&volume, 0, &noise(2)).unwrap_err().kind(), VolumeErrorKind::Failed);
    assert_eq!(store.size().unwrap(), 2 << 20);
}

/// Loses everything that no sync covered.
struct LoseAll;

impl Choices for LoseAll {
    fn below(&mut self, _: u64) -> u64 {
        0
    }
}

fn power_loss(store: &FaultStore) -> Arc<MemoryStore> {
    let history = store.history();
    Arc::new(MemoryStore::from_image(history.crash(history.events.len(), 512, &mut LoseAll), 4096))
}

#[test]
fn a_flush_after_a_failure_in_the_background_is_honest() {
    let (fixture, store, volume) = open();
    for lba in 0..100 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    // Journaled by seal only, and then the data cannot be put in place.
    volume.tidy(true).unwrap();
    store.inject(Fault::WritesAfter(0, ENOSPC));
    assert!(volume.tidy(true).is_err());
    for _ in 0..2 {
        assert_eq!(volume.flush().unwrap_err().kind(), VolumeErrorKind::NoSpace);
    }
    store.heal();
    volume.flush().unwrap();
    expect(&fixture.open(power_loss(&store)).unwrap(), 0..100);
}

#[test]
fn a_frame_that_failed_is_never_found_instead_of_the_next_one() {
    for fill in 1..80 {
        let fixture = fixture();
        let store = Arc::new(FaultStore::new(fixture.formatted(), 4096));
        let volume = fixture.open(store.clone()).unwrap();
        for n in 0..fill {
            for k in 0..3 {
                write(&volume, (n + k) % 10 * SECTOR, &noise(n)).unwrap();
            }
            volume.flush().unwrap();
            while volume.tidy(true).unwrap() {}
        }
        for lba in 100..164 {
            write(&volume, lba * SECTOR, &noise(lba)).unwrap();
        }
        volume.tidy(true).unwrap();
        write(&volume, 20 * SECTOR, &noise(5000)).unwrap();
        // The frame lands; what it promised before does not.
        store.inject(Fault::WritesAfter(2, ENOSPC));
        let _ = volume.flush();
        store.heal();
        for lba in 20..60 {
            write(&volume, lba * SECTOR, &noise(lba)).unwrap();
        }
        volume.flush().unwrap();
        expect(&fixture.open(power_loss(&store)).unwrap_or_else(|e| panic!("{fill}: {e}")), 20..60);
    }
}

#[test]
fn a_volume_closed_after_a_failed_frame_opens() {
    let (fixture, store, volume) = open();
    for lba in 0..100 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.tidy(true).unwrap();
    write(&volume, 2100 * SECTOR, &noise(7)).unwrap();
    store.inject(Fault::WritesAfter(3, ENOSPC));
    assert!(volume.flush().is_err());
    store.heal();
    let object = ByteRange::checked(2 * 1008 * SECTOR, 976 * SECTOR, volume.size()).unwrap();
    volume.zero(object, Space::Free).unwrap();
    volume.flush().unwrap();
    let mut buf = vec![1; SECTOR_SIZE];
    let after_crash = fixture.open(power_loss(&store)).unwrap();
    read(&after_crash, 2100 * SECTOR, &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == 0), "what was discarded and flushed stays so");
    volume.close().unwrap();
    expect(&fixture.open(Arc::new(MemoryStore::from_image(store.image(), 4096))).unwrap(), 0..100);
}

#[test]
fn a_commit_that_writes_nothing_is_no_sync() {
    let fixture = Fixture { atomicity: 512, size: 4000 * SECTOR, journal_len: 4 << 20, ..fixture() };
    let store = Arc::new(FaultStore::new(fixture.formatted(), 512));
    let volume = fixture.open(store.clone()).unwrap();
    for lba in 0..700 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.flush().unwrap();
    while volume.tidy(true).unwrap() {}
    for lba in 0..700 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.flush().unwrap();
    for lba in 1008..1108 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.tidy(true).unwrap();
    volume.tidy(true).unwrap();
    // A zero sector of an object that does not exist: there is nothing to write for it.
    volume.zero(ByteRange::checked(3000 * SECTOR, SECTOR, volume.size()).unwrap(), Space::Free).unwrap();
    volume.flush().unwrap();
    expect(&fixture.open(power_loss(&store)).unwrap(), 1008..1108);
}

#[test]
fn one_unreadable_page_of_seals_stops_nobody_else() {
    let (fixture, store, volume) = open();
    for lba in 0..2500 {
        write(&volume, lba * SECTOR, &noise(lba)).unwrap();
    }
    volume.close().unwrap();
    let volume = fixture.open(store.clone()).unwrap();
    let page = fixture.layout().seal_page(fixture.layout().place(Lba(0)).seal_page);
    store.inject(Fault::Read(page));
    write(&volume, 0, &noise(0)).unwrap();
    volume.flush().unwrap();
    for n in 0..5000 {
        write(&volume, (200 + n % 2300) * SECTOR, &noise(200 + n % 2300)).unwrap();
    }
    volume.close().unwrap();
    // It opens again, still with the bad page, and has everything that has its seals elsewhere.
    let volume = fixture.open(store).unwrap();
    expect(&volume, 0..1);
    expect(&volume, 200..2500);
    let mut buf = vec![0; SECTOR_SIZE];
    assert!(read(&volume, SECTOR, &mut buf).is_err());
}

#[test]
fn a_damaged_journal_is_read_as_far_as_it_goes() {
    let (fixture, store, volume) = open();
    for round in 0..3 {
        for lba in 0..10 {
            write(&volume, (10 * round + lba) * SECTOR, &noise(10 * round + lba)).unwrap();
        }
        volume.flush().unwrap();
    }
    let mut image = store.image();
    let mut second = 4096;
    let journal = fixture.layout().journal().offset;
    loop {
        let mut magic = [0; 8];
        image.read(journal + second, &mut magic);
        if magic == *b"SDJOURNL" {
            break;
        }
        second += 4096;
    }
    image.write(journal + second, &[0; 16]);
    let damaged = Arc::new(MemoryStore::from_image(image, 4096));
    assert!(fixture.open(damaged.clone()).is_err());
    let volume = support::read_only(damaged, &fixture.payload()).unwrap();
    expect(&volume, 0..10);
    assert!(volume.status().damage.is_some());
}
