//! What went wrong in the cluster or on the way to it.

use std::ffi::c_int;
use std::io;

use crate::MissingLibrary;

/// A failed call, with Ceph's reason.
#[derive(Debug, thiserror::Error)]
pub enum RadosError {
    /// This machine has no Ceph.
    #[error(transparent)]
    Missing(#[from] MissingLibrary),
    /// Ceph refused, or could not.
    #[error("{what}: {source}")]
    Failed {
        /// What was being done, with the name of the pool, image or object.
        what: String,
        /// Why it failed; Ceph's error numbers are those of Linux.
        #[source]
        source: io::Error,
    },
}

impl RadosError {
    pub(crate) fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self::Failed { what: what.into(), source }
    }

    /// What has not been looked for yet.
    pub(crate) fn absent() -> Self {
        Self::new("looking for an object", io::Error::from_raw_os_error(libc::ENOENT))
    }

    /// The number of Linux's that Ceph gave.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Missing(_) => None,
            Self::Failed { source, .. } => source.raw_os_error(),
        }
    }

    /// Whether what was asked for does not exist.
    pub fn is_absent(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// Whether the pool is of a kind that cannot do what was asked for.
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// Whether bytes were not what a [write](crate::ObjectWrite::compare) expected. Ceph adds their place to a number
    /// beyond those of Linux.
    pub fn is_mismatch(&self) -> bool {
        self.errno().is_some_and(|errno| errno >= 4095)
    }

    /// Whether somebody else has the lock of an image, and lives.
    pub fn is_locked_elsewhere(&self) -> bool {
        self.errno() == Some(libc::EROFS)
    }

    /// Whether this connection was shut out for good: somebody has broken its lock.
    pub fn is_fenced(&self) -> bool {
        self.errno() == Some(libc::ESHUTDOWN)
    }
}

/// What a function returned that returns a number below zero where it fails.
pub(crate) fn check(result: impl Into<i64>, what: impl FnOnce() -> String) -> Result<u64, RadosError> {
    let result = result.into();
    u64::try_from(result).map_err(|_| {
        let errno = c_int::try_from(-result).unwrap_or(libc::EIO);
        RadosError::new(what(), io::Error::from_raw_os_error(errno))
    })
}
