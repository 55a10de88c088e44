//! Places in a store.

/// Bytes in an object of the store: the unit of placement, as in Ceph's RBD (order 22).
pub const OBJECT_SIZE: u64 = 4 << 20;

/// Bytes `offset .. offset + len` of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl StoreRange {
    /// `len` bytes from `offset`.
    pub fn new(offset: u64, len: u64) -> Self {
        debug_assert!(offset.checked_add(len).is_some());
        Self { offset, len }
    }

    /// The byte after the last one.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Whether the two ranges have a byte in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

impl std::fmt::Display for StoreRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bytes {} to {}", self.offset, self.end())
    }
}
