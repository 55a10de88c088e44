//! `header`: save and restore.

use sealdisk_header::{Header as VolumeHeader, HeaderErrorKind, RestoreCheck};
use sealdisk_store::OpenMode;

use crate::arguments::{Header, HeaderBackup, HeaderRestore};
use crate::failure::Failure;
use crate::output;
use crate::question::confirm;
use crate::volume_file::{VolumeFile, locate};

/// Runs one of the commands.
pub fn run(header: &Header, quiet: bool) -> Result<(), Failure> {
    match header {
        Header::Backup(options) => backup(options, quiet),
        Header::Restore(options) => restore(options),
    }
}

/// Allowed while the volume is attached: the header is only read.
fn backup(options: &HeaderBackup, quiet: bool) -> Result<(), Failure> {
    VolumeHeader::load(&locate(&options.volume.path)?)?.backup(&options.file)?;
    if !quiet {
        output::say(&format!(
            "Whoever has {} and a passphrase of today can open the volume, whatever becomes of its key slots.",
            options.file.display()
        ))?;
    }
    Ok(())
}

fn restore(options: &HeaderRestore) -> Result<(), Failure> {
    let file = VolumeFile::open(&options.volume.path, OpenMode::ReadWrite)?;
    let check = if options.force { RestoreCheck::None } else { RestoreCheck::SameVolume };
    if !options.force {
        let shown = options.volume.path.display();
        confirm(&format!("This replaces the key slots of {shown}: only passphrases of the backup will open it."))?;
    }
    match VolumeHeader::restore(&file.path, &options.file, check) {
        Ok(_) => Ok(()),
        Err(error) if *error.kind() == HeaderErrorKind::OtherVolume => {
            let failure = Failure::from(error);
            Err(Failure::new(failure.kind, format_args!("{failure}; --force restores it all the same")))
        }
        Err(error) => Err(error.into()),
    }
}
