//! What a hostile store does to a volume is a read error that names volume and sector, never data; the rest keeps
//! working. Each test is one kind of tampering, for every authenticated cipher, folded and not.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{ObjectNumber, PackedLayout, ZoneNumber};
use sealdisk_store::{Image, MemoryStore};
use sealdisk_units::{ByteRange, Lba, Lineage, SECTOR_SIZE, StoreRange};
use sealdisk_volume::{OpenErrorKind, Space, Volume, VolumeErrorKind};
use support::{Fixture, Random, authenticated_ciphers, open, read, read_only, write};

const SIZE: u64 = (2 * 1008 + 50) * SECTOR_SIZE as u64;

/// Sectors that hold data, in the first and the second object. All others are zero, the third object does not exist.
const WRITTEN: [u64; 6] = [0, 1, 84, 85, 1013, 1100];

fn fixtures() -> impl Iterator<Item = Fixture> {
    authenticated_ciphers().flat_map(|cipher| {
        [false, true].map(|fold| Fixture { cipher, fold, size: SIZE, journal_len: 1 << 20, atomicity: 4096 })
    })
}

/// What generation `generation` of a sector holds: foldable.
fn content(lba: u64, generation: u64) -> [u8; SECTOR_SIZE] {
    let mut sector = [0; SECTOR_SIZE];
    Random::new(lba * 1000 + generation).fill(&mut sector[..200]);
    sector
}

/// Opens, changes, closes, and gives the image.
fn with(fixture: &Fixture, image: Image, change: impl FnOnce(&Volume)) -> Image {
    let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
    let volume = fixture.open(store.clone()).unwrap();
    change(&volume);
    volume.close().unwrap();
    store.image()
}

/// Writes one generation of all written sectors, closes, and gives the image.
fn grow(fixture: &Fixture, image: Image, generation: u64) -> Image {
    with(fixture, image, |volume| {
        for lba in WRITTEN {
            write(volume, lba * SECTOR_SIZE as u64, &content(lba, generation)).unwrap();
        }
    })
}

fn copy(from: &Image, source: StoreRange, to: &mut Image, target: u64) {
    let mut bytes = vec![0; source.len as usize];
    from.read(source.offset, &mut bytes);
    to.write(target, &bytes);
}

fn flip(image: &mut Image, offset: u64) {
    let mut byte = [0];
    image.read(offset, &mut byte);
    image.write(offset, &[byte[0] ^ 0x10]);
}

fn data(layout: &PackedLayout, lba: u64) -> StoreRange {
    layout.place(Lba(lba)).data
}

fn seal(layout: &PackedLayout, lba: u64) -> StoreRange {
    let place = layout.place(Lba(lba));
    StoreRange::new(layout.seal_page(place.seal_page).offset + place.seal_offset as u64, layout.seal_len() as u64)
}

/// Opens the image and demands that just the sectors `bad` are errors, that their errors name volume and sector, and
/// that all others hold their newest content.
fn expect_bad(fixture: &Fixture, image: &Image, generation: u64, bad: &[u64]) {
    let store = Arc::new(MemoryStore::from_image(image.clone(), fixture.atomicity));
    let volume = fixture.open(store).unwrap();
    expect_bad_in(fixture, &volume, generation, bad);
}

fn expect_bad_in(fixture: &Fixture, volume: &Volume, generation: u64, bad: &[u64]) {
    let mut buf = [0; SECTOR_SIZE];
    for lba in 0..SIZE / SECTOR_SIZE as u64 {
        let result = read(volume, lba * SECTOR_SIZE as u64, &mut buf);
        if bad.contains(&lba) {
            let error = result.expect_err(&format!("sector {lba} must be an error ({fixture:?})"));
            assert!(matches!(error.kind(), VolumeErrorKind::NotAuthentic | VolumeErrorKind::Store), "{error}");
            let text = error.to_string();
            assert!(text.contains("volume test") && text.contains(&format!("sector {lba} ")), "{text}");
            assert_eq!(buf, [0; SECTOR_SIZE], "no data comes with an error");
        } else {
            result.unwrap_or_else(|error| panic!("{error} ({fixture:?}, bad: {bad:?})"));
            let expected = if WRITTEN.contains(&lba) { content(lba, generation) } else { [0; SECTOR_SIZE] };
            assert!(buf == expected, "sector {lba} has other content ({fixture:?})");
        }
    }
    // A read that spans a bad sector and good ones is an error as a whole; what does not touch it is served.
    if let [first, ..] = bad {
        let mut two = [0; 2 * SECTOR_SIZE];
        assert!(read(volume, (first.max(&1) - 1) * SECTOR_SIZE as u64, &mut two).is_err());
    }
    let report = volume.check(&mut |_, _| {}).unwrap();
    let found: Vec<u64> =
        report.not_authentic.iter().chain(report.unreadable.iter().map(|(lba, _)| lba)).map(|l| l.0).collect();
    assert_eq!(found, bad, "check lists the bad sectors");
}

fn every(test: impl Fn(Fixture, Image, Image, PackedLayout)) {
    for fixture in fixtures() {
        let first = grow(&fixture, fixture.formatted(), 1);
        let second = grow(&fixture, first.clone(), 2);
        expect_bad(&fixture, &first, 1, &[]);
        expect_bad(&fixture, &second, 2, &[]);
        test(fixture, first, second, fixture.layout());
    }
}

#[test]
fn a_flipped_bit() {
    every(|fixture, _, image, layout| {
        for lba in [0, 85, 1100] {
            let (data, seal) = (data(&layout, lba), seal(&layout, lba));
            for place in [data.offset, data.offset + 2000, data.end() - 1, seal.offset, seal.offset + 9, seal.end() - 1]
            {
                let mut image = image.clone();
                flip(&mut image, place);
                expect_bad(&fixture, &image, 2, &[lba]);
            }
        }
        // A sector that was never written is as well protected.
        let mut image = image.clone();
        flip(&mut image, seal(&layout, 500).offset + 5);
        expect_bad(&fixture, &image, 2, &[500]);
    });
}

#[test]
fn a_sector_moved_within_the_volume() {
    every(|fixture, _, image, layout| {
        for (from, to) in [(0, 1), (0, 1100), (1100, 85), (84, 500)] {
            let mut moved = image.clone();
            copy(&image, data(&layout, from), &mut moved, data(&layout, to).offset);
            copy(&image, seal(&layout, from), &mut moved, seal(&layout, to).offset);
            expect_bad(&fixture, &moved, 2, &[to]);
        }
    });
}

#[test]
fn a_sector_from_another_volume_with_the_same_key() {
    every(|fixture, _, image, layout| {
        let mut other = fixture.payload();
        other.lineage = Lineage([8; 16]);
        let store = Arc::new(MemoryStore::new(layout.store_size(SIZE)));
        Volume::format_with_journal(&*store, &other, &support::key(), SIZE, fixture.journal_len).unwrap();
        let volume = open(store.clone(), &other, false).unwrap();
        WRITTEN.iter().for_each(|lba| write(&volume, lba * SECTOR_SIZE as u64, &content(*lba, 2)).unwrap());
        volume.close().unwrap();
        let mut mixed = image.clone();
        copy(&store.image(), data(&layout, 85), &mut mixed, data(&layout, 85).offset);
        copy(&store.image(), seal(&layout, 85), &mut mixed, seal(&layout, 85).offset);
        expect_bad(&fixture, &mixed, 2, &[85]);
        // Its superblocks do not open this volume either, nor does its map.
        for place in layout.superblocks() {
            copy(&store.image(), place, &mut mixed, place.offset);
        }
        let refused = fixture.open(Arc::new(MemoryStore::from_image(mixed, 4096))).err().unwrap();
        assert_eq!(refused.kind(), OpenErrorKind::Key);
    });
}

#[test]
fn an_old_sector_beside_a_new_seal_and_the_reverse() {
    for fixture in fixtures().filter(|fixture| !fixture.fold) {
        let first = grow(&fixture, fixture.formatted(), 1);
        let second = grow(&fixture, first.clone(), 2);
        let layout = fixture.layout();
        for lba in WRITTEN {
            let mut old_data = second.clone();
            copy(&first, data(&layout, lba), &mut old_data, data(&layout, lba).offset);
            expect_bad(&fixture, &old_data, 2, &[lba]);
            let mut old_seal = second.clone();
            copy(&first, seal(&layout, lba), &mut old_seal, seal(&layout, lba).offset);
            expect_bad(&fixture, &old_seal, 2, &[lba]);
        }
    }
}

/// That a sector is zero is a claim about its place too: the seal alone brings back neither the zeros from before the first
/// write nor those of a discard.
#[test]
fn an_old_seal_of_zero_beside_a_new_sector() {
    every(|fixture, first, second, layout| {
        let born = with(&fixture, fixture.formatted(), |volume| {
            write(volume, 0, &content(0, 1)).unwrap();
            write(volume, 1100 * SECTOR_SIZE as u64, &content(1100, 1)).unwrap();
        });
        let lba_84 = ByteRange::checked(84 * SECTOR_SIZE as u64, SECTOR_SIZE as u64, SIZE).unwrap();
        let discarded = with(&fixture, first, |volume| volume.zero(lba_84, Space::Free).unwrap());
        for older in [&born, &discarded] {
            let mut mixed = second.clone();
            copy(older, seal(&layout, 84), &mut mixed, seal(&layout, 84).offset);
            expect_bad(&fixture, &mixed, 2, &[84]);
            // Nor is a client told that there is a hole, which it would not read.
            let volume = fixture.open(Arc::new(MemoryStore::from_image(mixed, 4096))).unwrap();
            let [only] = volume.allocation(lba_84).unwrap()[..] else { panic!("one sector, one stretch") };
            assert!(!only.hole);
        }
        // A page of old seals, as a disk leaves it that lost the write of a page.
        let page = layout.seal_page(layout.place(Lba(84)).seal_page);
        let mut lost = second.clone();
        copy(&born, page, &mut lost, page.offset);
        let of_page = layout.sectors_of_seal_page(layout.place(Lba(84)).seal_page);
        // Sector 0 was written then; if it is folded, it brings its seal along.
        let carried = |lba: u64| fixture.fold && lba == 0;
        let bad: Vec<u64> = WRITTEN.into_iter().filter(|lba| of_page.contains(Lba(*lba)) && !carried(*lba)).collect();
        expect_bad(&fixture, &lost, 2, &bad);
    });
}

#[test]
fn parts_of_two_states_of_a_sector_put_together() {
    every(|fixture, first, second, layout| {
        for lba in [0, 1100] {
            let place = data(&layout, lba);
            let half = StoreRange::new(place.offset + 2048, 2048);
            let mut mixed = second.clone();
            copy(&first, half, &mut mixed, half.offset);
            expect_bad(&fixture, &mixed, 2, &[lba]);
        }
    });
}

#[test]
fn a_folded_state_beside_an_unfolded_one() {
    for fixture in fixtures().filter(|fixture| fixture.fold) {
        let layout = fixture.layout();
        // Generation 1 folds. Then random bytes, which do not.
        let folded = grow(&fixture, fixture.formatted(), 1);
        let store = Arc::new(MemoryStore::from_image(folded.clone(), 4096));
        let volume = fixture.open(store.clone()).unwrap();
        let mut noise = [0; SECTOR_SIZE];
        Random::new(3).fill(&mut noise);
        write(&volume, 0, &noise).unwrap();
        volume.close().unwrap();
        let plain = store.image();
        for (base, other) in [(&folded, &plain), (&plain, &folded)] {
            for place in [data(&layout, 0), seal(&layout, 0)] {
                let mut mixed = base.clone();
                copy(other, place, &mut mixed, place.offset);
                let volume = fixture.open(Arc::new(MemoryStore::from_image(mixed, 4096))).unwrap();
                let mut buf = [0; SECTOR_SIZE];
                let error = read(&volume, 0, &mut buf).unwrap_err();
                assert_eq!(error.kind(), VolumeErrorKind::NotAuthentic);
                read(&volume, SECTOR_SIZE as u64, &mut buf).unwrap();
                assert!(buf == content(1, 1));
            }
        }
    }
}

#[test]
fn a_sector_or_an_object_replaced_by_zeros() {
    every(|fixture, _, image, layout| {
        let mut zeroed = image.clone();
        zeroed.zero(data(&layout, 84));
        expect_bad(&fixture, &zeroed, 2, &[84]);
        zeroed.zero(seal(&layout, 84));
        expect_bad(&fixture, &zeroed, 2, &[84]);

        let mut gone = image.clone();
        gone.zero(layout.object(ObjectNumber(0)));
        let sectors: Vec<u64> = layout.sectors_of(ObjectNumber(0)).iter().map(|lba| lba.0).collect();
        expect_bad(&fixture, &gone, 2, &sectors);
    });
}

#[test]
fn a_store_that_was_cut_off() {
    every(|fixture, _, image, layout| {
        // In the middle of the second object: its seals are gone, so all of it is.
        let mut cut = image.clone();
        cut.resize(data(&layout, 1100).offset);
        let store = Arc::new(MemoryStore::from_image(cut, 4096));
        let volume = read_only(store, &fixture.payload()).unwrap();
        let sectors: Vec<u64> = layout.sectors_of(ObjectNumber(1)).iter().map(|lba| lba.0).collect();
        expect_bad_in(&fixture, &volume, 2, &sectors);
    });
}

#[test]
fn a_map_page_changed_or_put_back_is_no_way_to_zeros() {
    every(|fixture, _, image, layout| {
        let map = layout.map_page(ZoneNumber(0));
        for place in [map.offset, map.offset + 48, map.end() - 1] {
            let mut changed = image.clone();
            flip(&mut changed, place);
            let all: Vec<u64> = (0..SIZE / SECTOR_SIZE as u64).collect();
            expect_bad(&fixture, &changed, 2, &all);
        }
        let mut zeroed = image.clone();
        zeroed.zero(map);
        let all: Vec<u64> = (0..SIZE / SECTOR_SIZE as u64).collect();
        expect_bad(&fixture, &zeroed, 2, &all);
        // That of an earlier time, when nothing existed, says nothing of now.
        let mut put_back = image.clone();
        copy(&fixture.formatted(), map, &mut put_back, map.offset);
        expect_bad(&fixture, &put_back, 2, &all);
        // And nothing is written where nobody knows what exists.
        let volume = fixture.open(Arc::new(MemoryStore::from_image(zeroed, 4096))).unwrap();
        assert!(write(&volume, 0, &[1; SECTOR_SIZE]).is_err());
    });
}

#[test]
fn an_edited_superblock() {
    every(|fixture, _, image, layout| {
        // The last two are a zone's tag, and nothing's.
        for offset in [0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 100, 4090, 4100, 8191] {
            // One copy: the other one serves. (The older one: the volume was closed in order, so nothing is missing.)
            for place in layout.superblocks() {
                let mut edited = image.clone();
                flip(&mut edited, place.offset + offset);
                expect_bad(&fixture, &edited, 2, &[]);
            }
            let mut edited = image.clone();
            layout.superblocks().iter().for_each(|place| flip(&mut edited, place.offset + offset));
            let refused = fixture.open(Arc::new(MemoryStore::from_image(edited, 4096)));
            assert!(refused.is_err(), "both copies edited at {offset}");
        }
    });
}

#[test]
fn an_edited_header_opens_nothing() {
    every(|fixture, _, image, _| {
        let store = || Arc::new(MemoryStore::from_image(image.clone(), 4096));
        let right = fixture.payload();
        let mut edited = right;
        edited.fold = !right.fold;
        assert_eq!(open(store(), &edited, false).err().unwrap().kind(), OpenErrorKind::Key);
        let mut edited = right;
        edited.lineage.0[3] ^= 1;
        assert_eq!(open(store(), &edited, false).err().unwrap().kind(), OpenErrorKind::Key);
        for cipher in CipherName::ALL.into_iter().filter(|c| *c != right.cipher && c.seal_len() > 0) {
            let mut edited = right;
            edited.cipher = cipher;
            assert_eq!(open(store(), &edited, false).err().unwrap().kind(), OpenErrorKind::Key);
        }
        let mut edited = right;
        edited.offset += 4 << 20;
        assert!(open(store(), &edited, false).is_err());
        // A superblock moved to where the edited header points is no help.
        let mut moved = Image::new(image.size() + (4 << 20));
        copy(&image, StoreRange::new(0, image.size()), &mut moved, 4 << 20);
        let refused = open(Arc::new(MemoryStore::from_image(moved, 4096)), &edited, false).err().unwrap();
        assert_eq!(refused.kind(), OpenErrorKind::Key);
    });
}

/// A volume whose newest writes are in the journal alone, and its image.
fn with_journal(fixture: &Fixture, image: Image, generations: std::ops::RangeInclusive<u64>) -> Image {
    let store = Arc::new(MemoryStore::from_image(image, 4096));
    let volume = fixture.open(store.clone()).unwrap();
    for generation in generations {
        for lba in WRITTEN {
            write(&volume, lba * SECTOR_SIZE as u64, &content(lba, generation)).unwrap();
        }
        volume.flush().unwrap();
    }
    store.image()
}

#[test]
fn a_journal_that_was_changed_rolled_back_or_is_anothers() {
    for fixture in fixtures() {
        let layout = fixture.layout();
        let journal = layout.journal();
        let closed = grow(&fixture, fixture.formatted(), 1);
        let crashed = with_journal(&fixture, closed.clone(), 2..=4);
        expect_bad(&fixture, &crashed, 4, &[]);

        // A frame in the middle is damaged: what was flushed after it shows that it is missing.
        let mut frames = Vec::new();
        for position in (0..journal.len).step_by(4096) {
            let mut magic = [0; 8];
            crashed.read(journal.offset + position, &mut magic);
            if magic == *b"SDJOURNL" {
                frames.push(position);
            }
        }
        assert!(frames.len() >= 3, "{frames:?}");
        for frame in &frames[frames.len() - 3..frames.len() - 1] {
            for at in [0, 8, 24, 41, 100, 4096 + 77] {
                let mut damaged = crashed.clone();
                flip(&mut damaged, journal.offset + frame + at);
                let refused = fixture.open(Arc::new(MemoryStore::from_image(damaged, 4096))).err();
                let refused = refused.unwrap_or_else(|| panic!("byte {at} of frame {frame} ({fixture:?})"));
                assert_eq!(refused.kind(), OpenErrorKind::Damaged, "{refused}");
            }
        }
        // The journal alone is put back to an earlier state, or is emptied: the superblock knows of a later frame.
        let later = grow(&fixture, crashed.clone(), 5);
        let latest = with_journal(&fixture, later.clone(), 6..=7);
        for older in [&closed, &crashed, &Image::new(closed.size())] {
            let mut rolled_back = latest.clone();
            copy(older, journal, &mut rolled_back, journal.offset);
            let refused = fixture.open(Arc::new(MemoryStore::from_image(rolled_back, 4096))).err().unwrap();
            assert_eq!(refused.kind(), OpenErrorKind::Damaged, "{refused}");
        }
        // An old superblock beside a newer journal is noticed.
        let mut old_superblock = latest.clone();
        layout.superblocks().iter().for_each(|place| copy(&closed, *place, &mut old_superblock, place.offset));
        let refused = fixture.open(Arc::new(MemoryStore::from_image(old_superblock, 4096))).err().unwrap();
        assert_eq!(refused.kind(), OpenErrorKind::Damaged, "{refused}");

        // Another volume's journal is no journal of this one.
        let mut other = fixture.payload();
        other.lineage = Lineage([9; 16]);
        let store = Arc::new(MemoryStore::new(layout.store_size(SIZE)));
        Volume::format_with_journal(&*store, &other, &support::key(), SIZE, fixture.journal_len).unwrap();
        let volume = open(store.clone(), &other, false).unwrap();
        write(&volume, 0, &content(0, 99)).unwrap();
        volume.flush().unwrap();
        for image in [&closed, &latest] {
            let mut foreign = image.clone();
            copy(&store.image(), journal, &mut foreign, journal.offset);
            let refused = fixture.open(Arc::new(MemoryStore::from_image(foreign, 4096))).err().unwrap();
            assert_eq!(refused.kind(), OpenErrorKind::Damaged, "{refused}");
        }
    }
}

/// What is *not* detected, as the threat model says: a whole state of a sector put back.
#[test]
fn a_sector_with_its_own_seal_put_back_is_not_noticed_yet() {
    every(|fixture, first, second, layout| {
        let mut rolled_back = second.clone();
        copy(&first, data(&layout, 84), &mut rolled_back, data(&layout, 84).offset);
        copy(&first, seal(&layout, 84), &mut rolled_back, seal(&layout, 84).offset);
        let volume = fixture.open(Arc::new(MemoryStore::from_image(rolled_back, 4096))).unwrap();
        let mut buf = [0; SECTOR_SIZE];
        read(&volume, 84 * SECTOR_SIZE as u64, &mut buf).unwrap();
        assert!(buf == content(84, 1));
    });
}

#[test]
fn two_states_of_a_sector_have_no_block_in_common() {
    every(|_, first, second, layout| {
        for lba in WRITTEN {
            let (mut a, mut b) = ([0; SECTOR_SIZE], [0; SECTOR_SIZE]);
            first.read(data(&layout, lba).offset, &mut a);
            second.read(data(&layout, lba).offset, &mut b);
            assert!(a.chunks(16).zip(b.chunks(16)).all(|(a, b)| a != b), "sector {lba}");
        }
    });
}
