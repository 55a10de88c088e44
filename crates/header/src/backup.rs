//! Copies of a header, for the day the first sectors of a disk are lost.

use std::fs::File;
use std::path::Path;

use libcryptsetup_rs::consts::vals::EncryptionFormat;

use crate::session::Session;
use crate::{Header, HeaderError, HeaderErrorKind};

/// What must be true of a device before a backup is written over its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreCheck {
    /// The device still has a header, of the same volume: same UUID and same payload.
    SameVolume,
    /// Nothing: the header is lost, or known to be another one.
    None,
}

impl Header {
    /// Writes header and key slots to the new file `backup`, readable by its owner only. Whoever has it and a passphrase
    /// of today opens the volume, even after that passphrase was removed.
    pub fn backup(&self, backup: &Path) -> Result<(), HeaderError> {
        if backup.exists() {
            return Err(HeaderError::new(backup, HeaderErrorKind::Exists, "it exists already; choose another file"));
        }
        let (mut session, _) = self.session()?;
        let format = session.format();
        let written = session.device.backup_handle().header_backup(Some(format), backup);
        written.map_err(|error| session.failure("backing up the header", error))?;
        // Someone may be about to destroy the original.
        let synced = File::open(backup).and_then(|file| file.sync_all());
        synced.map_err(|error| HeaderError::io(backup, "syncing the backup", &error))
    }

    /// Writes the header and key slots in `backup` to `device`, over those that are there, and loads them.
    ///
    /// A crash in the midst of it may leave neither the old key slots nor the new ones; restore again.
    pub fn restore(device: &Path, backup: &Path, check: RestoreCheck) -> Result<Self, HeaderError> {
        let saved = Self::load(backup)?;
        if check == RestoreCheck::SameVolume {
            refuse_another_volume(device, &saved)?;
        }
        let mut session = Session::new(device)?;
        let format = if saved.is_luks1 { EncryptionFormat::Luks1 } else { EncryptionFormat::Luks2 };
        let restored = session.device.backup_handle().header_restore(Some(format), backup);
        restored.map_err(|error| session.failure("restoring the header", error))?;
        drop(session);
        Self::load(device)
    }
}

fn refuse_another_volume(device: &Path, saved: &Header) -> Result<(), HeaderError> {
    let other = |story: &str| HeaderError::new(device, HeaderErrorKind::OtherVolume, story);
    let present = match Header::load(device) {
        Ok(header) => header,
        Err(error) if *error.kind() == HeaderErrorKind::NoHeader => {
            return Err(other("it has no header that would tell which volume it is; restore by force if you are sure"));
        }
        Err(error) => return Err(error),
    };
    if present.uuid() != saved.uuid() || present.payload() != saved.payload() {
        return Err(other("the backup is of another volume, whose key opens nothing here"));
    }
    Ok(())
}
