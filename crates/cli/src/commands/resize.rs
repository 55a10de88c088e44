//! `resize`: change the usable size.

use std::sync::Arc;

use sealdisk_header::Header;
use sealdisk_store::OpenMode;
use sealdisk_volume::Volume;

use crate::arguments::Resize;
use crate::failure::Failure;
use crate::unlock::unlock;
use crate::volume_file::VolumeFile;

/// Grows, or with `--force` shrinks.
pub fn run(options: &Resize) -> Result<(), Failure> {
    let file = VolumeFile::open(&options.volume.path, OpenMode::ReadWrite)?;
    let header = Header::load(&file.path)?;
    super::format::check_size(options.size, header.payload())?;
    let key = unlock(&header, &options.key)?;
    let VolumeFile { path, store } = file;
    let shown = path.display().to_string();
    Ok(Volume::resize(Arc::new(store), &shown, header.payload(), &key, options.size.0, options.force)?)
}
