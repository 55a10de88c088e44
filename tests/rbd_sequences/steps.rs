//! Which step comes next, and where.

use sealdisk_store::Choices;
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::Space;
use support::Random;

use crate::family::Family;
use crate::kind::Kind;

const SECTOR: u64 = SECTOR_SIZE as u64;
/// Disks are about so large at most.
const MOST: u64 = 32 << 20;
/// Most places are so near to a border between objects.
const NEAR: u64 = 40 * SECTOR;

/// A size for a disk, often one that ends with an object.
pub fn new_size(kind: &Kind, random: &mut Random) -> u64 {
    let least = if random.one_in(4) { kind.unit() } else { MOST / 4 };
    let size = least + random.below(MOST - least);
    let (first, each) = kind.objects();
    let size = if random.one_in(3) { size / each * each + first } else { size };
    size.next_multiple_of(kind.unit()).max(kind.unit())
}

/// Makes something that clones share, and often a clone, which shares it with a snapshot of its own.
pub fn begin(family: &mut Family<'_>, kind: &Kind) {
    for _ in 0..1 + family.random.below(3) {
        write(family, kind);
        write_much(family, kind);
    }
    if kind.can_be_cloned() && !family.random.one_in(3) {
        family.create_snapshot();
        family.clone();
        family.create_snapshot();
    }
}

/// Takes a step.
pub fn take(family: &mut Family<'_>, kind: &Kind) {
    match family.random.below(40) {
        0..=7 => write(family, kind),
        8 => write_much(family, kind),
        9..=13 => zero(family, kind),
        14..=16 => read(family, kind),
        17 => {
            family.tell("flush");
            family.flush();
        }
        18..=20 => family.create_snapshot(),
        21 => family.remove_snapshot(),
        22..=23 => family.roll_back(),
        24..=26 => family.clone(),
        27..=28 => family.flatten(),
        29 => family.sparsify(),
        30 => {
            let size = new_size(kind, &mut family.random);
            family.resize(size);
        }
        31 => {
            let by = 1 + family.random.below(6 << 20);
            family.others_grow_the_image(by);
        }
        32 => {
            family.tell("close");
            family.close();
        }
        33 => {
            family.tell("crash");
            family.crash();
        }
        34 => {
            family.tell("lose the lock");
            family.lose_the_lock();
        }
        35..=36 => family.go_elsewhere(),
        _ => family.look_back(),
    }
}

/// Where something is done: mostly near a border between objects or the end of the disk, often at a sector's start.
fn place(family: &mut Family<'_>, kind: &Kind) -> u64 {
    let size = family.size();
    let random = &mut family.random;
    let (first, each) = kind.objects();
    let at = if random.one_in(4) {
        random.below(size)
    } else {
        let border = (first + random.below(size / each + 2) * each).saturating_sub(each * random.below(2));
        (border.min(size) + random.below(NEAR)).saturating_sub(random.below(NEAR)).min(size - 1)
    };
    if random.one_in(3) { at } else { at / SECTOR * SECTOR }
}

fn write(family: &mut Family<'_>, kind: &Kind) {
    let start = place(family, kind);
    let random = &mut family.random;
    let len = match random.below(11) {
        0..=3 => 1 + random.below(3 * SECTOR),
        _ => [1, 1, 2, 3, 8, 70, 90][random.below(7) as usize] * SECTOR,
    };
    write_at(family, start, len);
}

/// Whole objects and more.
fn write_much(family: &mut Family<'_>, kind: &Kind) {
    let (start, (_, each)) = (place(family, kind), kind.objects());
    let len = 1 + family.random.below(3 * each);
    write_at(family, start, len);
}

/// Writes so much, up to the end at most: all noise, or as a database's pages are, which can be folded.
fn write_at(family: &mut Family<'_>, start: u64, len: u64) {
    let len = len.min(family.size() - start);
    let random = &mut family.random;
    let noise = if random.one_in(2) { SECTOR_SIZE } else { 100 };
    let mut bytes = vec![0; len as usize];
    for sector in bytes.chunks_mut(SECTOR_SIZE) {
        let noise = noise.min(sector.len());
        random.fill(&mut sector[..noise]);
    }
    family.tell(format!("write {start}+{len}, {noise} bytes of noise to a sector"));
    family.write(start, &bytes);
}

fn zero(family: &mut Family<'_>, kind: &Kind) {
    let (mut start, (first, each)) = (place(family, kind), kind.objects());
    let size = family.size();
    let random = &mut family.random;
    let len = match random.below(8) {
        0..=1 => 1 + random.below(30 * SECTOR),
        2..=3 => (1 + random.below(60)) * SECTOR,
        4..=6 => {
            // Whole objects.
            start = first + start / each * each;
            (1 + random.below(2)) * each
        }
        _ => size,
    };
    let start = start.min(size - 1);
    let len = len.min(size - start);
    let space = if random.one_in(4) { Space::Keep } else { Space::Free };
    family.tell(format!("zero {start}+{len}, {space:?}"));
    family.zero(ByteRange::checked(start, len, size).unwrap(), space);
}

fn read(family: &mut Family<'_>, kind: &Kind) {
    let (start, size) = (place(family, kind), family.size());
    let random = &mut family.random;
    let len = if random.one_in(4) { size } else { 1 + random.below(100 * SECTOR) };
    let len = len.min(size - start);
    family.tell(format!("read {start}+{len}"));
    family.read(ByteRange::checked(start, len, size).unwrap());
}
