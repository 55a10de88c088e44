//! What the sectors of a disk may hold when its server was killed.

use std::ops::Range;

use sealdisk_units::SECTOR_SIZE;

/// A disk whose sectors have what was flushed last, or one of the contents that they were given since.
pub struct Sectors {
    /// Of each sector, oldest first: what was flushed, and what came after it.
    possible: Vec<Vec<Box<[u8]>>>,
}

/// How many sectors that were being written have which content.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was flushed last.
    pub old: usize,
    /// Something newer.
    pub new: usize,
}

impl Sectors {
    /// A disk of so many bytes that nobody has written.
    pub fn new(size: u64) -> Self {
        let zeros = || vec![vec![0; SECTOR_SIZE].into_boxed_slice()];
        Self { possible: std::iter::repeat_with(zeros).take(size as usize / SECTOR_SIZE).collect() }
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        (self.possible.len() * SECTOR_SIZE) as u64
    }

    /// The sectors that a write touches.
    pub fn touched(offset: u64, len: usize) -> Range<usize> {
        offset as usize / SECTOR_SIZE..(offset as usize + len).div_ceil(SECTOR_SIZE)
    }

    /// These bytes are about to be written. Nothing else may be on its way to the sectors that they touch.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for number in Self::touched(offset, bytes.len()) {
            let start = number * SECTOR_SIZE;
            let from = start.max(offset as usize);
            let to = (start + SECTOR_SIZE).min(offset as usize + bytes.len());
            let mut content = self.possible[number].last().unwrap().clone();
            content[from - start..to - start].copy_from_slice(&bytes[from - offset as usize..to - offset as usize]);
            self.possible[number].push(content);
        }
    }

    /// Everything that was written was flushed.
    pub fn flushed(&mut self) {
        self.possible.iter_mut().for_each(|contents| drop(contents.drain(..contents.len() - 1)));
    }

    /// The server was killed, and this is what the disk holds now, and will from now on.
    pub fn found(&mut self, disk: &[u8]) -> Outcome {
        assert_eq!(disk.len() as u64, self.size());
        let mut outcome = Outcome::default();
        for (number, (contents, found)) in self.possible.iter_mut().zip(disk.chunks(SECTOR_SIZE)).enumerate() {
            let which = contents.iter().rposition(|content| **content == *found);
            let which = which.unwrap_or_else(|| panic!("sector {number} has none of {} contents", contents.len()));
            if contents.len() > 1 {
                *if which == 0 { &mut outcome.old } else { &mut outcome.new } += 1;
            }
            *contents = vec![contents.swap_remove(which)];
        }
        outcome
    }
}
