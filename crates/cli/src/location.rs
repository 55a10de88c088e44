//! Where a volume lies, and what can be done with it there.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sealdisk_header::Payload;
use sealdisk_store::{OpenMode, Store};

use crate::arguments::Volume;
use crate::failure::Failure;
use crate::header_file::HeaderFile;
use crate::registry::{Identity, Registered, Registry};
use crate::unlocked_store::UnlockedStore;
use crate::volume_name::VolumeName;

pub mod file;
pub mod image;

pub use image::ImageLocation;

/// Something that exists and may be a volume.
pub enum Location {
    /// A file or a block device, at this absolute path without symbolic links: a daemon has another working folder.
    File(PathBuf),
    /// An image on Ceph.
    Image(ImageLocation),
}

/// A volume's store, which is nobody else's until it is dropped.
pub struct OpenVolume {
    /// Where it is.
    pub location: Location,
    /// What it consists of.
    pub store: Arc<dyn Store>,
}

impl Location {
    /// Finds what the user means.
    pub fn find(volume: &Volume) -> Result<Self, Failure> {
        match &volume.name {
            VolumeName::Path(path) => file::locate(path).map(Self::File),
            VolumeName::Image(name) => {
                let image = ImageLocation::connect(name, &volume.ceph)?;
                image.look()?;
                Ok(Self::Image(image))
            }
        }
    }

    /// Which volume it is, whatever it is called.
    pub fn identity(&self) -> Result<Identity, Failure> {
        match self {
            Self::File(path) => Identity::of_file(path).map_err(|e| Failure::path(path, &e)),
            Self::Image(image) => image.identity(),
        }
    }

    /// The volume that is attached from here, or what is left of it, as far as this user can know. Commands that attach
    /// nothing need no registry.
    pub fn attached(&self) -> Option<Registered> {
        let identity = self.identity().ok()?;
        Registry::of_this_user().ok()?.find_volume(&identity).ok()?
    }

    /// Opens it alone, or for reading together with other readers. Fails as busy, naming the holder where that is known,
    /// if somebody has it.
    pub fn open(self, mode: OpenMode) -> Result<OpenVolume, Failure> {
        if let Some(holder) = self.attached().filter(|holder| holder.alive) {
            return Err(holder.in_the_way());
        }
        let store: Arc<dyn Store> = match &self {
            Self::File(path) => Arc::new(file::open(path, mode)?),
            Self::Image(image) => Arc::new(image.open(mode)?),
        };
        Ok(OpenVolume { location: self, store })
    }

    /// Opens it to look at it only. What is seen of an attached volume may be out of date.
    pub fn open_unlocked(&self) -> Result<Box<dyn Store>, Failure> {
        Ok(match self {
            Self::File(path) => Box::new(UnlockedStore::open(path)?),
            Self::Image(image) => Box::new(image.store(OpenMode::ReadOnly)?),
        })
    }

    /// Bytes that a volume takes here, header and all, whose disk has `size` bytes.
    pub fn store_size(&self, payload: &Payload, size: u64) -> u64 {
        match self {
            Self::File(_) => sealdisk_volume::Volume::store_size(payload, size),
            Self::Image(_) => sealdisk_volume::Volume::object_store_size(payload, size),
        }
    }

    /// Where its header can be worked on.
    pub fn header_file(&self) -> Result<HeaderFile, Failure> {
        match self {
            Self::File(path) => Ok(HeaderFile::of_file(path)),
            Self::Image(image) => HeaderFile::of_image(image.clone()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Image(image) => image.fmt(f),
        }
    }
}
