//! Zeroing and discarding: whole objects cease to exist, single sectors are sealed as zero.

use sealdisk_layout::ObjectNumber;
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE, SectorRange};
use zeroize::Zeroizing;

use super::ObjectVolume;
use super::change::Change;
use crate::metadata::object_map::UnreadableZone;
use crate::{Allocation, Space, VolumeError};

/// Objects that cease to exist with one change of the map.
const AT_ONCE: usize = 1024;

impl ObjectVolume {
    /// Makes the range read as zeros. Space cannot be kept: Ceph has none to reserve.
    pub(crate) fn zero(&self, range: ByteRange, _space: Space) -> Result<(), VolumeError> {
        self.standing.check_writable()?;
        let rows = self.layout.rows();
        let mut changes = Vec::new();
        for piece in range.ragged_pieces() {
            let plain = Zeroizing::new(vec![0; piece.in_sector.len()]);
            let change = Change::Part { index: self.layout.index_of(piece.lba), bytes: piece.in_sector.clone(), plain };
            changes.push((rows.object_of(piece.lba), change));
        }
        let whole = range.whole_sectors();
        // A range that reaches the end of the disk reaches the end of the last object.
        let at_end = range.end() == self.size;
        let mut lba = whole.first();
        while lba < whole.end() {
            let object = rows.object_of(lba);
            let sectors = rows.sectors_of(object);
            let end = sectors.end().min(whole.end());
            let all = lba == sectors.first() && (end == sectors.end() || at_end && end == whole.end());
            if self.exists(object)? {
                let index = self.layout.index_of(lba);
                let change = if all { Change::Drop } else { Change::Zero { first: index, count: end.0 - lba.0 } };
                changes.push((object, change));
            }
            lba = end;
            if changes.len() >= AT_ONCE {
                self.make(std::mem::take(&mut changes))?;
            }
        }
        self.make(changes)
    }

    fn make(&self, changes: Vec<(ObjectNumber, Change)>) -> Result<(), VolumeError> {
        let outcomes = self.turns.take(changes, |turns| self.carry_out(turns));
        outcomes.into_iter().collect::<Result<Vec<()>, _>>().map(drop).map_err(VolumeError::of_shared)
    }

    /// Which parts of the range are known to be zero and take no space: those of objects that do not exist.
    pub(crate) fn allocation(&self, range: ByteRange) -> Vec<Allocation> {
        let rows = self.layout.rows();
        let mut stretches: Vec<Allocation> = Vec::new();
        let touched = range.touched_sectors();
        let mut lba = touched.first();
        while lba < touched.end() {
            let object = rows.object_of(lba);
            let end = rows.sectors_of(object).end().min(touched.end());
            let hole = match self.map().exists(rows, object) {
                Ok(exists) => !exists,
                Err(UnreadableZone) => false,
            };
            let len = self.bytes_of(range, SectorRange::new(lba, end.0 - lba.0));
            match stretches.last_mut() {
                Some(last) if last.hole == hole => last.len += len,
                _ => stretches.push(Allocation { len, hole }),
            }
            lba = end;
        }
        stretches
    }

    /// How many of a range's bytes lie in these sectors.
    fn bytes_of(&self, range: ByteRange, sectors: SectorRange) -> u64 {
        let bytes = |lba: Lba| (lba.0 * SECTOR_SIZE as u64).clamp(range.offset(), range.end());
        bytes(sectors.end()) - bytes(sectors.first())
    }
}
