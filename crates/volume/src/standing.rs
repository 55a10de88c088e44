//! Whether a volume takes writes, and the errors that are told in its name.

use std::sync::OnceLock;

use sealdisk_cipher::{FreshNonce, Nonces};
use sealdisk_store::StoreError;
use sealdisk_units::Lba;

use crate::VolumeError;

/// What every kind of open volume knows of itself.
pub(crate) struct Standing {
    name: String,
    read_only: bool,
    /// Why the volume takes no more writes.
    failed: OnceLock<String>,
}

impl Standing {
    /// Of a volume that has just been opened.
    pub(crate) fn new(name: &str, read_only: bool) -> Self {
        Self { name: name.to_owned(), read_only, failed: OnceLock::new() }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Why the volume takes no more writes, if it does not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Whether writes are taken at all.
    pub(crate) fn check_writable(&self) -> Result<(), VolumeError> {
        if self.read_only {
            return Err(VolumeError::ReadOnly { volume: self.name.clone() });
        }
        match self.failed.get() {
            Some(reason) => Err(VolumeError::Failed { volume: self.name.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// The store has failed. Some of its errors are final.
    pub(crate) fn store_error(&self, source: StoreError) -> VolumeError {
        if source.is_final() {
            return self.final_store_error(source);
        }
        VolumeError::Store { volume: self.name.clone(), source }
    }

    /// The store has failed, and the volume with it. So it is with every sync: nothing that was written since the last good
    /// one can be trusted to be there, and no later one can be trusted to say so.
    pub(crate) fn final_store_error(&self, source: StoreError) -> VolumeError {
        let _ = self.failed.set(source.to_string());
        VolumeError::Store { volume: self.name.clone(), source }
    }

    pub(crate) fn unreadable(&self, sector: Lba, source: StoreError) -> VolumeError {
        VolumeError::Unreadable { volume: self.name.clone(), sector, source }
    }

    pub(crate) fn not_authentic(&self, sector: Lba) -> VolumeError {
        VolumeError::NotAuthentic { volume: self.name.clone(), sector }
    }

    pub(crate) fn draw_nonces(&self, count: usize) -> Result<impl Iterator<Item = FreshNonce> + use<>, VolumeError> {
        Nonces::draw(count).map_err(|source| VolumeError::NoRandomness { volume: self.name.clone(), source })
    }
}
