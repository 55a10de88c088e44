//! `erase`: destroy the key slots.

use sealdisk_header::Header;
use sealdisk_store::OpenMode;

use crate::arguments::Erase;
use crate::failure::Failure;
use crate::question::confirm;
use crate::volume_file::VolumeFile;

/// Asks first. Refused while the volume is attached: its key would still be in memory, and the data within reach.
pub fn run(options: &Erase) -> Result<(), Failure> {
    let file = VolumeFile::open(&options.volume.path, OpenMode::ReadWrite)?;
    let mut header = Header::load(&file.path)?;
    if !options.force {
        let shown = options.volume.path.display();
        confirm(&format!(
            "This destroys all key slots of {shown}; without a backup of its header nothing opens it again."
        ))?;
    }
    Ok(header.erase()?)
}
