//! `header`: save and restore.

use sealdisk_header::{Header as VolumeHeader, HeaderErrorKind, RestoreCheck};
use sealdisk_store::OpenMode;

use crate::arguments::{Header, HeaderBackup, HeaderRestore};
use crate::failure::Failure;
use crate::location::Location;
use crate::output;
use crate::question::confirm;

/// Runs one of the commands.
pub fn run(header: &Header, quiet: bool) -> Result<(), Failure> {
    match header {
        Header::Backup(options) => backup(options, quiet),
        Header::Restore(options) => restore(options),
    }
}

/// Allowed while the volume is attached: the header is only read.
fn backup(options: &HeaderBackup, quiet: bool) -> Result<(), Failure> {
    let file = Location::find(&options.volume)?.header_file()?;
    file.read(|path| VolumeHeader::load(path)?.backup(&options.file))?;
    if !quiet {
        output::say(&format!(
            "Whoever has {} and a passphrase of today can open the volume, whatever becomes of its key slots.",
            options.file.display()
        ))?;
    }
    Ok(())
}

fn restore(options: &HeaderRestore) -> Result<(), Failure> {
    let open = Location::find(&options.volume)?.open(OpenMode::ReadWrite)?;
    let check = if options.force { RestoreCheck::None } else { RestoreCheck::SameVolume };
    if !options.force {
        let shown = &options.volume.name;
        confirm(&format!("This replaces the key slots of {shown}: only passphrases of the backup will open it."))?;
    }
    let mut other_volume = false;
    let restored = open.location.header_file()?.change(|path| {
        let restored = VolumeHeader::restore(path, &options.file, check);
        other_volume = restored.as_ref().is_err_and(|error| *error.kind() == HeaderErrorKind::OtherVolume);
        restored.map(drop)
    });
    match restored {
        Err(failure) if other_volume => {
            Err(Failure::new(failure.kind, format_args!("{failure}; --force restores it all the same")))
        }
        other => other,
    }
}
