//! Sectors: the unit that is encrypted and authenticated.

use std::ops::Range;

/// Bytes in a sector.
pub const SECTOR_SIZE: usize = 4096;

/// The number of a 4096-byte sector of the disk, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl std::fmt::Display for Lba {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Consecutive sectors of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorRange {
    first: Lba,
    count: u64,
}

impl SectorRange {
    /// `count` sectors from `first`.
    pub fn new(first: Lba, count: u64) -> Self {
        debug_assert!(first.0.checked_add(count).is_some());
        Self { first, count }
    }

    /// The first sector.
    pub fn first(&self) -> Lba {
        self.first
    }

    /// The sector after the last one.
    pub fn end(&self) -> Lba {
        Lba(self.first.0 + self.count)
    }

    /// How many sectors.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether there is no sector in the range.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the sector lies in the range.
    pub fn contains(&self, lba: Lba) -> bool {
        (self.first..self.end()).contains(&lba)
    }

    /// Every sector in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Lba> + use<> {
        (self.first.0..self.end().0).map(Lba)
    }
}

/// The part of one sector that a request covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The sector.
    pub lba: Lba,
    /// Bytes of the sector that are covered; shorter than the sector for a partial one.
    pub in_sector: Range<usize>,
    /// Where those bytes lie in the request's buffer.
    pub in_buffer: Range<usize>,
}

impl Piece {
    /// Whether the piece is a sector from its first byte to its last.
    pub fn is_whole_sector(&self) -> bool {
        self.in_sector.len() == SECTOR_SIZE
    }
}
