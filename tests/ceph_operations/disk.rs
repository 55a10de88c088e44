//! A volume on an image, and whether a copy of the image is the same disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_layout::{LayoutName, Payload, SealedPayload};
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, Space, Volume};
use support::images::Images;
use support::{Random, key, read, write};

/// Sectors of the disk: its last object is used only in part.
const SECTORS: u64 = 2300;
/// Bytes of the disk.
pub const SIZE: u64 = SECTORS * SECTOR_SIZE as u64;
const OBJECT: u64 = 4 << 20;
const MEMORY: usize = 4 << 20;

/// What a disk holds.
pub type Content = Arc<Vec<u8>>;

/// A volume on an image.
pub struct Disk<'a> {
    images: &'a Images,
    folder: &'a Path,
    /// The image.
    pub image: String,
    payload: Payload,
    /// What is on it now.
    pub content: Content,
    changes: u64,
}

impl<'a> Disk<'a> {
    /// A new volume that is full but for what was discarded.
    pub fn new(images: &'a Images, folder: &'a Path, image: &str, payload: Payload) -> Self {
        Self::with_options(images, folder, image, "", payload)
    }

    /// As [`new`](Self::new), on an image that is made with these options of `rbd create`.
    fn with_options(images: &'a Images, folder: &'a Path, image: &str, options: &str, payload: Payload) -> Self {
        let image = image.to_owned();
        images.create(&format!("{image} {options}"), Volume::object_store_size(&payload, SIZE), OBJECT);
        Volume::format(&*images.open(&image), &payload, &key(), SIZE).unwrap();
        let mut disk = Self { images, folder, image, payload, content: Content::default(), changes: 0 };
        let mut content = vec![0; SIZE as usize];
        for (lba, sector) in content.chunks_mut(SECTOR_SIZE).enumerate() {
            // Every third sector can be folded.
            let len = if lba % 3 == 0 { 300 } else { SECTOR_SIZE };
            Random::new(lba as u64).fill(&mut sector[..len]);
        }
        let volume = disk.open(&disk.image, OpenMode::ReadWrite).unwrap();
        write(&volume, 0, &content).unwrap();
        volume.flush().unwrap();
        let discarded = ByteRange::checked(50 << 12, 60 << 12, SIZE).unwrap();
        volume.zero(discarded, Space::Free).unwrap();
        content[50 << 12..110 << 12].fill(0);
        volume.close().unwrap();
        disk.content = Arc::new(content);
        disk.change(&disk.image.clone());
        disk
    }

    /// Overwrites sectors all over the disk that this image holds. Returns what was there before. (An image that does not
    /// open stays as it is, and is found out when it is compared.)
    pub fn change(&mut self, image: &str) -> Content {
        let before = Arc::clone(&self.content);
        self.changes += 1;
        let Ok(volume) = self.open(image, OpenMode::ReadWrite) else { return before };
        let content = Arc::make_mut(&mut self.content);
        for lba in (self.changes..SECTORS).step_by(17) {
            let at = lba as usize * SECTOR_SIZE;
            let sector = &mut content[at..at + SECTOR_SIZE];
            Random::new(self.changes << 32 | lba).fill(sector);
            write(&volume, at as u64, sector).unwrap();
        }
        volume.close().unwrap();
        before
    }

    /// The same on another image whose data is in an erasure-coded pool. `None` for a layout that needs another one.
    pub fn coded(&self, data_pool: &str) -> Option<Self> {
        let Payload::Sealed(SealedPayload { layout: LayoutName::Omap, .. }) = self.payload else {
            let (image, options) = (format!("{}-coded", self.image), format!("--data-pool {data_pool}"));
            return Some(Self::with_options(self.images, self.folder, &image, &options, self.payload));
        };
        None
    }

    /// Makes all sectors of the second object zeros, one part after the other: the object stays.
    pub fn clear_an_object(&mut self) {
        let volume = self.open(&self.image, OpenMode::ReadWrite).unwrap();
        let content = Arc::make_mut(&mut self.content);
        for lbas in [1000..1500, 1500..2100] {
            let bytes = lbas.start * SECTOR_SIZE..lbas.end * SECTOR_SIZE;
            let range = ByteRange::checked(bytes.start as u64, bytes.len() as u64, SIZE).unwrap();
            volume.zero(range, Space::Free).unwrap();
            content[bytes].fill(0);
        }
        volume.close().unwrap();
    }

    /// Runs `rbd`.
    #[track_caller]
    pub fn rbd(&self, command: &str) {
        self.images.rbd(command);
    }

    fn image_name(&self) -> &str {
        self.image.rsplit('/').next().unwrap()
    }

    /// Another image of a like name, in a pool.
    pub fn other(&self, pool: &str, suffix: &str) -> String {
        format!("{pool}/{}-{suffix}", self.image_name())
    }

    /// A file for this disk.
    pub fn file(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}-{suffix}", self.image_name()))
    }

    /// The image's id.
    pub fn id(&self) -> String {
        self.images.open(&self.image).image().id().unwrap()
    }

    /// Bytes of the image.
    pub fn image_size(&self) -> u64 {
        Volume::object_store_size(&self.payload, SIZE)
    }

    /// Why an image or a snapshot is not this disk.
    pub fn loss(&self, image: &str, content: &[u8]) -> Option<String> {
        let mode = if image.contains('@') { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let volume = match self.open(image, mode) {
            Ok(volume) => volume,
            Err(error) => return Some(format!("{image}: {error}")),
        };
        let mut sector = vec![0; SECTOR_SIZE];
        let lost = |lba: &u64| {
            let at = *lba as usize * SECTOR_SIZE;
            read(&volume, at as u64, &mut sector).is_err() || sector != content[at..at + SECTOR_SIZE]
        };
        match (0..SECTORS).filter(lost).count() {
            0 => None,
            lost => Some(format!("{image}: {lost} sectors of {SECTORS}")),
        }
    }

    fn open(&self, image: &str, mode: OpenMode) -> Result<Volume, String> {
        let store: Arc<dyn Store> = self.images.try_open(image, mode).map_err(|error| error.to_string())?;
        let options = OpenOptions { read_only: mode == OpenMode::ReadOnly, memory: MEMORY };
        Volume::open(store, image, &self.payload, &key(), options).map_err(|error| error.to_string())
    }
}
