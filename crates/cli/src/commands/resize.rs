//! `resize`: change the usable size.

use sealdisk_store::OpenMode;
use sealdisk_volume::Volume;

use crate::arguments::Resize;
use crate::failure::Failure;
use crate::location::{Location, OpenVolume};
use crate::unlock::unlock;

/// Grows, or with `--force` shrinks.
pub fn run(options: &Resize) -> Result<(), Failure> {
    let OpenVolume { location, store } = Location::find(&options.volume)?.open(OpenMode::ReadWrite)?;
    let file = location.header_file()?;
    let header = file.load()?;
    super::format::check_size(options.size, header.payload())?;
    let key = unlock(&file, &header, &options.key)?;
    let shown = location.to_string();
    Ok(Volume::resize(store, &shown, header.payload(), &key, options.size.0, options.force)?)
}
