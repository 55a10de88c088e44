//! What clients ask of a volume, in batches, so that the store below can do many things at once.

use std::ops::{Deref, DerefMut};

use sealdisk_units::ByteRange;

use crate::VolumeError;

/// One read of a batch.
pub struct ReadRequest<'a> {
    /// Which bytes of the disk.
    pub range: ByteRange,
    /// Where they go; exactly `range.len()` bytes. Unspecified after an error.
    pub buf: &'a mut [u8],
    /// How it went; set by whoever serves the batch.
    pub result: Result<(), VolumeError>,
}

impl<'a> ReadRequest<'a> {
    /// A request to fill `buf` from `range`.
    pub fn new(range: ByteRange, buf: &'a mut [u8]) -> Self {
        debug_assert_eq!(range.len(), buf.len() as u64);
        Self { range, buf, result: Ok(()) }
    }
}

/// One write of a batch.
pub struct WriteRequest<'a> {
    /// Which bytes of the disk.
    pub range: ByteRange,
    /// The bytes; exactly `range.len()` of them.
    pub data: Data<'a>,
    /// How it went; set by whoever serves the batch.
    pub result: Result<(), VolumeError>,
}

impl<'a> WriteRequest<'a> {
    /// A request to write `buf` to `range`.
    pub fn new(range: ByteRange, buf: &'a [u8]) -> Self {
        Self::of(range, Data::Lent(buf))
    }

    /// A request to write what is in `memory`, and to keep that.
    pub fn giving(range: ByteRange, memory: Box<dyn Memory>) -> Self {
        Self::of(range, Data::Given(memory))
    }

    fn of(range: ByteRange, data: Data<'a>) -> Self {
        debug_assert_eq!(range.len(), data.len() as u64);
        Self { range, data, result: Ok(()) }
    }
}

/// Memory that whoever has it may write to.
pub trait Memory: DerefMut<Target = [u8]> + Send + Sync {}

impl<M: DerefMut<Target = [u8]> + Send + Sync> Memory for M {}

/// What is to be written.
pub enum Data<'a> {
    /// In memory that the caller needs again.
    Lent(&'a [u8]),
    /// In memory that goes with it: long requests are encrypted where they lie, which saves room for as much again. It is
    /// dropped when it has been written.
    Given(Box<dyn Memory>),
}

impl Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(buf) => buf,
            Self::Given(memory) => memory,
        }
    }
}

impl Data<'_> {
    /// What was given, if it was; then nothing is left.
    pub(crate) fn take_given(&mut self) -> Option<Box<dyn Memory>> {
        match std::mem::replace(self, Self::Lent(&[])) {
            Self::Given(memory) => Some(memory),
            Self::Lent(buf) => {
                *self = Self::Lent(buf);
                None
            }
        }
    }
}

/// Whether zeroed space is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Free the space where the store can.
    Free,
    /// Leave room for later writes.
    Keep,
}

/// A stretch of the disk as `base:allocation` (NBD) or `SEEK_HOLE` describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes of the stretch.
    pub len: u64,
    /// Whether it takes no space and is known to read as zeros.
    pub hole: bool,
}
