//! `/dev/sealdisk/NAME`: a name for a device whose number nobody can foresee.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use crate::ExportError;

const DIRECTORY: &str = "/dev/sealdisk";

/// A link in `/dev/sealdisk`.
#[derive(Debug)]
pub(super) struct DeviceLink(PathBuf);

impl DeviceLink {
    /// Links `/dev/sealdisk/NAME` to `device`. A link that leads to no disk is replaced.
    pub fn make(name: &str, device: &Path) -> Result<Self, ExportError> {
        let path = Path::new(DIRECTORY).join(name);
        let linking = |error| ExportError::new(format!("making {}", path.display()), error);
        if path.file_name().is_none_or(|file_name| file_name != name) {
            return Err(linking(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a name"))));
        }
        match DirBuilder::new().mode(0o755).create(DIRECTORY) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(linking(error)),
            _ => {}
        }
        match symlink(device, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !leads_to_a_disk(&path) => {
                fs::remove_file(&path).and_then(|()| symlink(device, &path)).map_err(linking)?;
            }
            other => other.map_err(linking)?,
        }
        Ok(Self(path))
    }

    /// The link that leads to `device`, if there is one.
    pub fn find(device: &Path) -> Option<Self> {
        let mut links = fs::read_dir(DIRECTORY).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        links.find(|link| fs::read_link(link).is_ok_and(|target| target == device)).map(Self)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the link, and the directory with the last one.
    pub fn remove(&self) -> Result<(), ExportError> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ExportError::new(format!("removing {}", self.0.display()), error));
            }
            _ => {}
        }
        let _ = fs::remove_dir(DIRECTORY); // fails while there are others
        Ok(())
    }
}

/// Whether the link's device has a size: a loop device without a backing file has none.
fn leads_to_a_disk(link: &Path) -> bool {
    use std::io::{Seek, SeekFrom};
    fs::File::open(link).and_then(|mut device| device.seek(SeekFrom::End(0))).is_ok_and(|size| size > 0)
}
