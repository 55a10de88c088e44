//! Requests as clients make them, in bytes of the disk.

use crate::{Lba, Piece, SECTOR_SIZE, SectorRange};

/// A request for bytes of a disk that has been checked to lie inside the disk.
///
/// The only way to make one is [`ByteRange::checked`], so code that receives a `ByteRange` need not check again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    offset: u64,
    len: u64,
}

/// A request that reaches beyond the end of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// First byte that was asked for.
    pub offset: u64,
    /// Number of bytes that were asked for.
    pub len: u64,
    /// Size of the disk in bytes.
    pub disk_size: u64,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, len, disk_size } = self;
        write!(f, "{len} bytes at {offset} reach beyond the end of a disk of {disk_size} bytes")
    }
}

impl std::error::Error for OutOfRange {}

impl ByteRange {
    /// `len` bytes from `offset`, if they lie inside a disk of `disk_size` bytes.
    pub fn checked(offset: u64, len: u64, disk_size: u64) -> Result<Self, OutOfRange> {
        match offset.checked_add(len) {
            Some(end) if end <= disk_size => Ok(Self { offset, len }),
            _ => Err(OutOfRange { offset, len, disk_size }),
        }
    }

    /// First byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The byte after the last one.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Whether the range holds no byte at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the range begins and ends on a sector boundary.
    pub fn is_sector_aligned(&self) -> bool {
        (self.offset | self.len).is_multiple_of(SECTOR_SIZE as u64)
    }

    /// All sectors of which the range has at least one byte.
    pub fn touched_sectors(&self) -> SectorRange {
        let first = self.offset / SECTOR_SIZE as u64;
        let end = self.end().div_ceil(SECTOR_SIZE as u64);
        SectorRange::new(Lba(first), if self.is_empty() { 0 } else { end - first })
    }

    /// The sectors that lie wholly inside the range.
    pub fn whole_sectors(&self) -> SectorRange {
        let first = self.offset.div_ceil(SECTOR_SIZE as u64);
        let end = self.end() / SECTOR_SIZE as u64;
        SectorRange::new(Lba(first), end.saturating_sub(first))
    }

    /// The range sector by sector: which part of each sector it covers, and where that part lies in a buffer that holds
    /// the range's bytes.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        self.touched_sectors().iter().map(move |lba| self.piece(lba))
    }

    /// The pieces that are not whole sectors: at most the first and the last.
    pub fn ragged_pieces(self) -> impl Iterator<Item = Piece> {
        let sectors = self.touched_sectors();
        let first = sectors.iter().next();
        let last = sectors.iter().next_back().filter(|last| Some(*last) != first);
        first.into_iter().chain(last).map(move |lba| self.piece(lba)).filter(|piece| !piece.is_whole_sector())
    }

    fn piece(&self, lba: Lba) -> Piece {
        let sector_start = lba.0 * SECTOR_SIZE as u64;
        let start = self.offset.max(sector_start);
        let end = self.end().min(sector_start + SECTOR_SIZE as u64);
        Piece {
            lba,
            in_sector: (start - sector_start) as usize..(end - sector_start) as usize,
            in_buffer: (start - self.offset) as usize..(end - self.offset) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_beyond_the_end_is_refused_even_where_the_sum_wraps() {
        assert!(ByteRange::checked(0, 4096, 4096).is_ok());
        assert!(ByteRange::checked(1, 4096, 4096).is_err());
        assert!(ByteRange::checked(u64::MAX, 2, u64::MAX).is_err());
        assert!(ByteRange::checked(4096, 0, 4096).is_ok());
    }

    #[test]
    fn pieces_cover_the_buffer_once_and_in_order() {
        let disk = 1 << 20;
        for (offset, len) in [(0, 4096), (1, 1), (4095, 2), (100, 9000), (8192, 0), (4096, 12288)] {
            let range = ByteRange::checked(offset, len, disk).unwrap();
            let mut next = 0;
            for piece in range.pieces() {
                assert_eq!(piece.in_buffer.start, next);
                assert_eq!(piece.in_buffer.len(), piece.in_sector.len());
                assert_eq!(offset + next as u64, piece.lba.0 * 4096 + piece.in_sector.start as u64);
                next = piece.in_buffer.end;
            }
            assert_eq!(next as u64, len);
            let ragged: Vec<_> = range.pieces().filter(|piece| !piece.is_whole_sector()).collect();
            assert_eq!(range.ragged_pieces().collect::<Vec<_>>(), ragged);
        }
    }

    #[test]
    fn whole_sectors_leaves_out_the_ragged_ends() {
        let range = ByteRange::checked(100, 9000, 1 << 20).unwrap();
        assert_eq!(range.touched_sectors(), SectorRange::new(Lba(0), 3));
        assert_eq!(range.whole_sectors(), SectorRange::new(Lba(1), 1));
        let inside = ByteRange::checked(100, 50, 1 << 20).unwrap();
        assert!(inside.whole_sectors().is_empty());
    }
}
