//! What a disk may hold after a crash: for each sector what was flushed, or anything that was written to it since.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealdisk_store::Choices;
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE};
use sealdisk_volume::{Space, Volume};

use crate::{Random, read, write, write_giving};

/// One thing that was asked of the disk.
#[derive(Debug, Clone)]
pub enum Op {
    /// Bytes from an offset, of a kind.
    Write(u64, usize, Contents),
    /// Zeros, of a length.
    Zero(u64, u64, Space),
    /// Everything so far is to survive.
    Flush,
    /// Background work.
    Tidy(bool),
}

/// What bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Nothing to fold.
    Random,
    /// A few bytes and then zeros, as in a database page.
    Sparse,
}

type Sector = Arc<[u8; SECTOR_SIZE]>;

/// One value that a sector was given.
#[derive(Clone)]
struct Version {
    /// The position in the store's history when the operation began.
    began: usize,
    content: Sector,
}

/// The values of every sector that was ever touched.
#[derive(Clone)]
pub struct Model {
    size: u64,
    zero: Sector,
    sectors: BTreeMap<Lba, Vec<Version>>,
    /// When each flush ended, and how many versions each touched sector had when it began.
    flushes: Vec<(usize, BTreeMap<Lba, usize>)>,
}

impl Model {
    /// A disk of `size` zero bytes.
    pub fn new(size: u64) -> Self {
        Self { size, zero: Arc::new([0; SECTOR_SIZE]), sectors: BTreeMap::new(), flushes: Vec::new() }
    }

    /// Does the operation on the volume and in the model. `position` tells the store's position in its history.
    pub fn apply(&mut self, volume: &Volume, op: &Op, random: &mut Random, position: impl Fn() -> usize) {
        let began = position();
        match op {
            Op::Write(offset, len, contents) => {
                let mut buf = vec![0; *len];
                let marked = match contents {
                    Contents::Random => buf.len(),
                    Contents::Sparse => buf.len().min(100),
                };
                // Every sector of a sparse write differs from every other, too.
                for chunk in buf.chunks_mut(SECTOR_SIZE) {
                    let marked = marked.min(chunk.len());
                    random.fill(&mut chunk[..marked]);
                }
                match random.one_in(2) {
                    true => write_giving(volume, *offset, buf.clone()).unwrap(),
                    false => write(volume, *offset, &buf).unwrap(),
                }
                self.store(began, *offset, &buf);
            }
            Op::Zero(offset, len, space) => {
                volume.zero(ByteRange::checked(*offset, *len, self.size).unwrap(), *space).unwrap();
                self.store(began, *offset, &vec![0; *len as usize]);
            }
            Op::Flush => {
                let versions = self.sectors.iter().map(|(lba, versions)| (*lba, versions.len())).collect();
                volume.flush().unwrap();
                self.flushes.push((position(), versions));
            }
            Op::Tidy(idle) => {
                volume.tidy(*idle).unwrap();
            }
        }
    }

    fn store(&mut self, began: usize, offset: u64, buf: &[u8]) {
        for piece in ByteRange::checked(offset, buf.len() as u64, self.size).unwrap().pieces() {
            let versions =
                self.sectors.entry(piece.lba).or_insert_with(|| vec![Version { began: 0, content: self.zero.clone() }]);
            let mut content = *versions.last().unwrap().content;
            content[piece.in_sector].copy_from_slice(&buf[piece.in_buffer]);
            versions.push(Version { began, content: Arc::new(content) });
        }
    }

    /// Checks a volume that was opened after a crash at position `at`.
    pub fn check_after_crash(&self, volume: &Volume, at: usize) -> Result<(), String> {
        let durable = self.flushes.iter().rev().find(|(ended, _)| *ended <= at).map(|(_, versions)| versions);
        self.check(volume, |lba, versions| {
            let first = durable.and_then(|durable| durable.get(&lba)).map_or(0, |count| count - 1);
            first..versions.iter().rposition(|version| version.began <= at).unwrap_or(first).max(first) + 1
        })
    }

    /// Checks that every sector has its newest value.
    pub fn check_now(&self, volume: &Volume) -> Result<(), String> {
        self.check(volume, |_, versions| versions.len() - 1..versions.len())
    }

    /// Checks that every sector has its newest value, up to a byte of the disk.
    pub fn check_below(&self, volume: &Volume, end: u64) -> Result<(), String> {
        let mut buf = [0; SECTOR_SIZE];
        for (lba, versions) in self.sectors.iter().take_while(|(lba, _)| lba.0 * (SECTOR_SIZE as u64) < end) {
            let offset = lba.0 * SECTOR_SIZE as u64;
            let len = (end - offset).min(SECTOR_SIZE as u64) as usize;
            read(volume, offset, &mut buf[..len]).map_err(|error| error.to_string())?;
            if versions.last().is_none_or(|version| version.content[..len] != buf[..len]) {
                return Err(format!("sector {lba} does not have its newest value"));
            }
        }
        Ok(())
    }

    fn check(
        &self,
        volume: &Volume,
        allowed: impl Fn(Lba, &[Version]) -> std::ops::Range<usize>,
    ) -> Result<(), String> {
        let mut buf = [0; SECTOR_SIZE];
        for (lba, versions) in &self.sectors {
            let offset = lba.0 * SECTOR_SIZE as u64;
            let len = (self.size - offset).min(SECTOR_SIZE as u64) as usize;
            read(volume, offset, &mut buf[..len]).map_err(|error| error.to_string())?;
            let allowed = allowed(*lba, versions);
            if !versions[allowed.clone()].iter().any(|version| version.content[..len] == buf[..len]) {
                let is = versions.iter().position(|version| version.content[..len] == buf[..len]);
                return Err(format!("sector {lba} has version {is:?}, not one of {allowed:?} of {}", versions.len()));
            }
        }
        Ok(())
    }

    /// A random operation on a disk with few busy places.
    pub fn random_op(size: u64, sectors_per_object: u64, random: &mut Random) -> Op {
        let sector = SECTOR_SIZE as u64;
        let objects = size.div_ceil(sector * sectors_per_object);
        // The busy places: around each border between objects, and the end of the disk.
        let near = (random.below(objects + 1) * sectors_per_object * sector).min(size);
        let offset = (near + random.below(40 * sector)).saturating_sub(random.below(40 * sector)).min(size - 1);
        let contents = if random.one_in(2) { Contents::Random } else { Contents::Sparse };
        match random.below(20) {
            0..=8 => {
                let offset = offset / sector * sector;
                let count = [1, 1, 2, 3, 8, 70, 90][random.below(7) as usize];
                Op::Write(offset, (count * sector).min(size - offset) as usize, contents)
            }
            9..=10 => Op::Write(offset, (1 + random.below(3 * sector)).min(size - offset) as usize, contents),
            11 => Op::Zero(offset, (1 + random.below(30 * sector)).min(size - offset), Space::Free),
            12 if random.one_in(3) => {
                // A whole object, or all of them.
                let count = if random.one_in(3) { objects } else { 1 + random.below(2) };
                let first = random.below(objects) * sectors_per_object * sector;
                Op::Zero(first, (count * sectors_per_object * sector).min(size - first), Space::Free)
            }
            12 => Op::Zero(offset, (1 + random.below(4 * sector)).min(size - offset), Space::Keep),
            13..=15 => Op::Flush,
            _ => Op::Tidy(random.one_in(3)),
        }
    }
}
