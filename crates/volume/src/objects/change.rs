//! What is to become of an object, and how several changes become one.

use std::ops::Range;

use sealdisk_cipher::Sealed;
use sealdisk_units::SECTOR_SIZE;
use zeroize::Zeroizing;

use crate::buffers::Ciphertext;

/// A change of one object. Indices count its sectors.
pub(super) enum Change {
    /// Whole sectors.
    Write {
        /// The first one.
        first: u64,
        /// What is to stand in their places, one after the other.
        text: Ciphertext,
        /// How each was sealed.
        sealed: Vec<Sealed>,
    },
    /// Whole sectors become zero.
    Zero {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Part of a sector.
    Part {
        /// Which sector.
        index: u64,
        /// Which bytes of it.
        bytes: Range<usize>,
        /// What they become.
        plain: Zeroizing<Vec<u8>>,
    },
    /// The object ceases to exist.
    Drop,
}

impl Change {
    /// Whether several of them, one after the other, can be done as one.
    pub(super) fn goes_together(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. })
    }

    /// The indices of whole sectors.
    fn indices(&self) -> Range<u64> {
        match self {
            Self::Write { first, sealed, .. } => *first..first + sealed.len() as u64,
            Self::Zero { first, count } => *first..first + count,
            Self::Part { .. } | Self::Drop => 0..0,
        }
    }
}

/// What sectors of an object become, by index: the newest of all changes.
pub(super) struct Contents<'a> {
    /// In order, without overlaps.
    pub(super) runs: Vec<Run<'a>>,
}

/// Neighbours that become what one change says.
pub(super) struct Run<'a> {
    pub(super) first: u64,
    pub(super) content: Content<'a>,
}

pub(super) enum Content<'a> {
    Sectors { text: &'a [u8], sealed: &'a [Sealed] },
    Zeros(u64),
}

impl Run<'_> {
    pub(super) fn indices(&self) -> Range<u64> {
        let count = match self.content {
            Content::Sectors { sealed, .. } => sealed.len() as u64,
            Content::Zeros(count) => count,
        };
        self.first..self.first + count
    }
}

impl<'a> Contents<'a> {
    /// What these changes make of an object, the last one winning.
    pub(super) fn of(changes: &[&'a Change]) -> Self {
        // Mostly there is one.
        if let [one] = changes {
            let indices = one.indices();
            let runs = if indices.is_empty() { Vec::new() } else { vec![one.part(indices)] };
            return Self { runs };
        }
        let end = changes.iter().map(|change| change.indices().end).max().unwrap_or(0);
        let mut newest: Vec<Option<usize>> = vec![None; end as usize];
        for (number, change) in changes.iter().enumerate() {
            let indices = change.indices();
            newest[indices.start as usize..indices.end as usize].fill(Some(number));
        }
        let mut runs = Vec::new();
        let mut index = 0;
        while index < newest.len() {
            let end = (index..newest.len()).find(|other| newest[*other] != newest[index]).unwrap_or(newest.len());
            if let Some(number) = newest[index] {
                runs.push(changes[number].part(index as u64..end as u64));
            }
            index = end;
        }
        Self { runs }
    }

    /// Whether there is anything but zeros.
    pub(super) fn has_sectors(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.content, Content::Sectors { .. }))
    }
}

impl Change {
    /// The part of a change of whole sectors that is of these indices.
    fn part(&self, indices: Range<u64>) -> Run<'_> {
        let content = match self {
            Self::Write { first, text, sealed } => {
                let range = (indices.start - first) as usize..(indices.end - first) as usize;
                let bytes = range.start * SECTOR_SIZE..range.end * SECTOR_SIZE;
                Content::Sectors { text: &text[bytes], sealed: &sealed[range] }
            }
            _ => Content::Zeros(indices.end - indices.start),
        };
        Run { first: indices.start, content }
    }
}
