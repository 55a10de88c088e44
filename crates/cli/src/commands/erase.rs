//! `erase`: destroy the key slots.

use sealdisk_header::Header;
use sealdisk_store::OpenMode;

use crate::arguments::Erase;
use crate::failure::Failure;
use crate::location::Location;
use crate::question::confirm;

/// Asks first. Refused while the volume is attached: its key would still be in memory, and the data within reach.
pub fn run(options: &Erase) -> Result<(), Failure> {
    let open = Location::find(&options.volume)?.open(OpenMode::ReadWrite)?;
    let mut file = open.location.header_file()?;
    file.load()?;
    if !options.force {
        let shown = &options.volume.name;
        confirm(&format!(
            "This destroys all key slots of {shown}; without a backup of its header nothing opens it again."
        ))?;
    }
    file.change(|path| Header::load(path)?.erase())
}
