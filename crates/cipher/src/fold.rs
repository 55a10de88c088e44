//! Making room in a sector for its own seal.
//!
//! Almost every sector of a database repeats itself somewhere. Folding finds just enough repetition to free the bytes of
//! a seal, stops there and copies the rest as it is; whatever does not yield that much is left alone. It allocates
//! nothing, and the same sector always folds to the same text.
//!
//! # Format
//! A folded text lists *holes*, pieces of the sector that repeat something before them, and then has the sector without
//! its holes:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | number of holes, n |
//! | 1..1+4n | the holes in order, each a little-endian u32 |
//! | 1+4n.. | the sector's bytes outside the holes |
//!
//! | bits of a hole | field |
//! |---|---|
//! | 0..12 | bytes between the end of the hole before (or the start of the sector) and this one |
//! | 12..24 | how far back in the sector the repeated bytes begin, 1 or more; they may reach into the hole itself |
//! | 24..32 | the hole's length, less 1 |
//!
//! The holes of a text that is `room` bytes shorter than the sector have `room + 1 + 4n` bytes in all, so nothing is left
//! over: no padding that could hide or vary, and no length to store.

use sealdisk_units::SECTOR_SIZE;

use crate::MAX_SEAL_LEN;

/// Bytes that describe a hole.
const HOLE_LEN: usize = 4;

/// The most holes that folding makes: each frees a byte or more, so it never takes more for any seal.
const MAX_HOLES: usize = MAX_SEAL_LEN + 1;

/// The shortest repetition worth a hole: it frees one byte.
const MIN_REPEAT: usize = HOLE_LEN + 1;

// The longest hole that is ever wanted fits its field.
const _: () = assert!(MAX_SEAL_LEN + 1 + HOLE_LEN <= 256);

/// The table of what was seen has 2 bytes for each hash: 4 KiB, a small part of the level 1 cache.
const HASH_BITS: u32 = 11;

/// After so many misses in a row (as a power of two) the search takes longer steps, so that random data costs little.
const PATIENCE: u32 = 6;

/// A text that no sector folds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a folded sector")]
pub struct FoldError;

/// Folds `sector` into `out`, whose length is 4096 less the bytes to be freed, [`MAX_SEAL_LEN`] at most. `false`: the
/// sector does not give up that many, and `out` is as it was.
pub fn fold(sector: &[u8; SECTOR_SIZE], out: &mut [u8]) -> bool {
    let Some(room) = SECTOR_SIZE.checked_sub(out.len()).filter(|room| *room <= MAX_SEAL_LEN) else { return false };
    let mut holes = Holes { list: [Hole::default(); MAX_HOLES], count: 0, wanted: room + 1 };
    let found = find_zeros(sector, &mut holes) || find_repeats(sector, &mut holes);
    if found {
        write(sector, &holes.list[..holes.count], out);
    }
    found
}

/// The inverse of [`fold`]: fills `sector` from `folded`. Any text is allowed; what is in `sector` after a failure is not
/// defined.
pub fn unfold(folded: &[u8], sector: &mut [u8; SECTOR_SIZE]) -> Result<(), FoldError> {
    let (&count, rest) = folded.split_first().ok_or(FoldError)?;
    let (holes, mut kept) = rest.split_at_checked(usize::from(count) * HOLE_LEN).ok_or(FoldError)?;
    let mut at = 0;
    for hole in holes.as_chunks().0 {
        let hole = u32::from_le_bytes(*hole);
        let [before, distance, len] = [hole & 0xfff, hole >> 12 & 0xfff, (hole >> 24) + 1].map(|bits| bits as usize);
        let (bytes, rest) = kept.split_at_checked(before).ok_or(FoldError)?;
        sector.get_mut(at..at + before).ok_or(FoldError)?.copy_from_slice(bytes);
        (kept, at) = (rest, at + before);
        if distance == 0 || distance > at || at + len > SECTOR_SIZE {
            return Err(FoldError);
        }
        repeat(sector, at, distance, len);
        at += len;
    }
    let rest = &mut sector[at..];
    if rest.len() != kept.len() {
        return Err(FoldError);
    }
    rest.copy_from_slice(kept);
    Ok(())
}

/// Fills `len` bytes from `at` with those `distance` back, which may be among the filled.
fn repeat(sector: &mut [u8; SECTOR_SIZE], at: usize, distance: usize, len: usize) {
    if distance >= len {
        sector.copy_within(at - distance..at - distance + len, at);
    } else if distance == 1 {
        let byte = sector[at - 1];
        sector[at..at + len].fill(byte);
    } else {
        for i in at..at + len {
            sector[i] = sector[i - distance];
        }
    }
}

/// A piece of the sector that repeats what is `distance` before it.
#[derive(Clone, Copy, Default)]
struct Hole {
    start: usize,
    len: usize,
    distance: usize,
}

/// The holes found so far, in order.
struct Holes {
    list: [Hole; MAX_HOLES],
    count: usize,
    /// Bytes still to be freed, those that describe the holes included.
    wanted: usize,
}

impl Holes {
    /// Takes a repetition, or as much of it as is still wanted. Whether that was all that was wanted.
    fn take(&mut self, hole: Hole) -> bool {
        let wanted = self.wanted + HOLE_LEN;
        let len = hole.len.min(wanted);
        self.list[self.count] = Hole { len, ..hole };
        self.count += 1;
        self.wanted = wanted - len;
        self.wanted == 0
    }

    /// The first byte that no hole covers.
    fn end(&self) -> usize {
        self.list[..self.count].last().map_or(0, |hole| hole.start + hole.len)
    }
}

/// One run of zeros that is enough by itself: the free space in the middle of a page, the unused end of a log block.
fn find_zeros(sector: &[u8; SECTOR_SIZE], holes: &mut Holes) -> bool {
    // Of a run this long, one word in `STRIDE` bytes is certain to be all zeros.
    const STRIDE: usize = 32;
    let len = holes.wanted + HOLE_LEN;
    let mut searched = 0;
    for word in (0..SECTOR_SIZE).step_by(STRIDE) {
        if word < searched || load(sector, word) != 0 {
            continue;
        }
        let before = sector[searched..word].iter().rev().take_while(|byte| **byte == 0).count();
        let from = word - before;
        let run = sector[from..].iter().take(len + 1).take_while(|byte| **byte == 0).count();
        // The first zero of the run is what the others repeat.
        if run > len {
            return holes.take(Hole { start: from + 1, len, distance: 1 });
        }
        searched = from + run;
    }
    false
}

/// As many repetitions as it takes.
fn find_repeats(sector: &[u8; SECTOR_SIZE], holes: &mut Holes) -> bool {
    const LAST: usize = SECTOR_SIZE - size_of::<u64>();
    // Where bytes with this hash were seen last. An entry never written says 0, which is as good a guess as any.
    let mut seen = [0_u16; 1 << HASH_BITS];
    let mut at = 1;
    let mut misses = 0;
    while at <= LAST {
        let bytes = load(sector, at);
        let entry = &mut seen[hash(bytes)];
        let earlier = usize::from(std::mem::replace(entry, at as u16));
        if (load(sector, earlier) ^ bytes) << (64 - 8 * MIN_REPEAT) != 0 {
            misses += 1;
            at += 1 + (misses >> PATIENCE);
            continue;
        }
        let back = common_before(sector, earlier, at, holes.end());
        let len = back + common(sector, earlier, at, holes.wanted + HOLE_LEN);
        if holes.take(Hole { start: at - back, len, distance: at - earlier }) {
            return true;
        }
        at = holes.end();
        misses = 0;
    }
    false
}

/// The text of a sector with these holes.
fn write(sector: &[u8; SECTOR_SIZE], holes: &[Hole], out: &mut [u8]) {
    out[0] = holes.len() as u8;
    let (list, mut kept) = out[1..].split_at_mut(holes.len() * HOLE_LEN);
    let mut end = 0;
    for (hole, bytes) in holes.iter().zip(list.as_chunks_mut().0) {
        let before = hole.start - end;
        *bytes = (before as u32 | (hole.distance as u32) << 12 | (hole.len as u32 - 1) << 24).to_le_bytes();
        kept[..before].copy_from_slice(&sector[end..hole.start]);
        kept = &mut kept[before..];
        end = hole.start + hole.len;
    }
    kept.copy_from_slice(&sector[end..]);
}

fn load(sector: &[u8; SECTOR_SIZE], at: usize) -> u64 {
    u64::from_le_bytes(*sector[at..].first_chunk().expect("callers stop a word before the end"))
}

/// Of the first `MIN_REPEAT` bytes.
fn hash(bytes: u64) -> usize {
    // An odd number with no pattern to its bits: 2^64 over the golden ratio.
    ((bytes << (64 - 8 * MIN_REPEAT)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)) as usize
}

/// How many bytes from `earlier` and from `at` are the same; no more than `most`, or a few more.
fn common(sector: &[u8; SECTOR_SIZE], earlier: usize, at: usize, most: usize) -> usize {
    let mut len = 0;
    while len < most && at + len + size_of::<u64>() <= SECTOR_SIZE {
        let differ = load(sector, earlier + len) ^ load(sector, at + len);
        if differ != 0 {
            return len + (differ.trailing_zeros() / 8) as usize;
        }
        len += size_of::<u64>();
    }
    let rest = sector[earlier + len..].iter().zip(&sector[at + len..]);
    len + rest.take(most.saturating_sub(len)).take_while(|(a, b)| a == b).count()
}

/// How many bytes before `earlier` and before `at` are the same, not looking at or before `end`.
fn common_before(sector: &[u8; SECTOR_SIZE], earlier: usize, at: usize, end: usize) -> usize {
    let most = earlier.min(at - end);
    let pairs = sector[earlier - most..earlier].iter().rev().zip(sector[at - most..at].iter().rev());
    pairs.take_while(|(a, b)| a == b).count()
}
