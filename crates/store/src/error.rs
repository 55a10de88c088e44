//! What went wrong below.

use std::io;

use sealdisk_units::StoreRange;

/// What the store was asked to do when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Opening the store.
    Open,
    /// Reading a range.
    Read(StoreRange),
    /// Writing a range.
    Write(StoreRange),
    /// Freeing a range.
    Zero(StoreRange),
    /// Making room for later writes to a range.
    Reserve(StoreRange),
    /// Making completed writes durable.
    Sync,
    /// Asking for or changing the size.
    Resize,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => write!(f, "opening"),
            Self::Read(range) => write!(f, "reading {range}"),
            Self::Write(range) => write!(f, "writing {range}"),
            Self::Zero(range) => write!(f, "freeing {range}"),
            Self::Reserve(range) => write!(f, "reserving room for {range}"),
            Self::Sync => write!(f, "flushing"),
            Self::Resize => write!(f, "resizing"),
        }
    }
}

/// Why a store is lost.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

/// A failed operation of a store, with the operating system's reason.
#[derive(Debug, thiserror::Error)]
#[error("{operation} failed: {source}")]
pub struct StoreError {
    /// What was being done.
    pub operation: Operation,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl StoreError {
    /// `operation` failed for the reason `source`.
    pub fn new(operation: Operation, source: impl Into<io::Error>) -> Self {
        Self { operation, source: source.into() }
    }

    /// `operation` failed because the store is lost to whoever has it open, for good.
    pub fn lost(operation: Operation, reason: impl Into<String>) -> Self {
        Self { operation, source: io::Error::other(Lost(reason.into())) }
    }

    /// Whether nothing that is written to the store from now on will be there, whatever is tried.
    pub fn is_final(&self) -> bool {
        self.source.get_ref().is_some_and(|source| source.is::<Lost>())
    }

    /// Whether the store has no room left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
