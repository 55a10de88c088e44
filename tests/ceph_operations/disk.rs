//! A volume on an image, and whether a copy of the image is the same disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_layout::{LayoutName, Payload, SealedPayload};
use sealdisk_rados::{Image, Pool};
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, ReadRequest, Space, Volume, VolumeError, WriteRequest};
use support::images::{Images, name};
use support::{Random, key, write};

use crate::operations::FEATURES;

/// Sectors of the disk: its last object is used only in part.
const SECTORS: u64 = 1300;
/// Bytes of the disk.
pub const SIZE: u64 = SECTORS * SECTOR_SIZE as u64;
const MEMORY: usize = 4 << 20;
/// Sectors that are read at once: each costs a way to Ceph otherwise.
const AT_ONCE: usize = 128;

/// What a disk holds.
pub type Content = Arc<Vec<u8>>;

/// A volume on an image.
pub struct Disk<'a> {
    /// Where it is.
    pub images: &'a Images,
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
        Self::with_data_in(images, folder, image, None, payload)
    }

    /// As [`new`](Self::new), with the data in a pool of its own.
    fn with_data_in(images: &'a Images, folder: &'a Path, image: &str, data: Option<&str>, payload: Payload) -> Self {
        let place = name(image);
        let pool = Pool::open(&images.connection, &place.pool, "").unwrap();
        Image::create(&pool, &place.image, Volume::object_store_size(&payload, SIZE), payload.object_size(), data)
            .unwrap();
        Volume::format(&*images.open(image), &payload, &key(), SIZE).unwrap();
        let image = image.to_owned();
        let mut disk = Self { images, folder, image, payload, content: Content::default(), changes: 0 };
        let mut content = vec![0; SIZE as usize];
        for (lba, sector) in content.chunks_mut(SECTOR_SIZE).enumerate() {
            // Every third sector can be folded.
            let len = if lba % 3 == 0 { 300 } else { SECTOR_SIZE };
            Random::new(lba as u64).fill(&mut sector[..len]);
        }
        let volume = disk.attach(&disk.image);
        write(&volume, 0, &content).unwrap();
        volume.flush().unwrap();
        let discarded = ByteRange::checked(50 << 12, 60 << 12, SIZE).unwrap();
        volume.zero(discarded, Space::Free).unwrap();
        content[50 << 12..110 << 12].fill(0);
        disk.content = Arc::new(content);
        disk.overwrite(&volume).unwrap();
        volume.close().unwrap();
        disk
    }

    /// The same volume in the eyes of another client.
    pub fn of_client<'b>(&self, images: &'b Images) -> Disk<'b>
    where
        'a: 'b,
    {
        let (image, content) = (self.image.clone(), Arc::clone(&self.content));
        Disk { images, folder: self.folder, image, payload: self.payload, content, changes: self.changes }
    }

    /// Overwrites sectors all over the disk that this image holds. Returns what was there before. (An image that does not
    /// open stays as it is, and is found out when it is compared.)
    pub fn change(&mut self, image: &str) -> Content {
        let before = Arc::clone(&self.content);
        let Ok(volume) = self.open(image, OpenMode::ReadWrite) else { return before };
        self.overwrite(&volume).unwrap();
        volume.close().unwrap();
        before
    }

    /// Overwrites sectors all over this disk.
    pub fn overwrite(&mut self, volume: &Volume) -> Result<(), VolumeError> {
        self.changes += 1;
        let mut content = Vec::clone(&self.content);
        let chosen = content.chunks_mut(SECTOR_SIZE).enumerate().skip(self.changes as usize).step_by(17);
        let mut batch: Vec<_> = chosen
            .map(|(lba, sector)| {
                Random::new(self.changes << 32 | lba as u64).fill(sector);
                WriteRequest::new(sector_range(lba), &*sector)
            })
            .collect();
        volume.write(&mut batch);
        batch.into_iter().try_for_each(|request| request.result)?;
        volume.flush()?;
        self.content = Arc::new(content);
        Ok(())
    }

    /// The same on another image whose data is in an erasure-coded pool. `None` for a layout that needs another one.
    pub fn coded(&self, data_pool: &str) -> Option<Self> {
        let Payload::Sealed(SealedPayload { layout: LayoutName::Omap, .. }) = self.payload else {
            let image = format!("{}-coded", self.image);
            return Some(Self::with_data_in(self.images, self.folder, &image, Some(data_pool), self.payload));
        };
        None
    }

    /// Makes all sectors of the second object zeros, one part after the other: the object stays.
    pub fn clear_an_object(&mut self) {
        let volume = self.open(&self.image, OpenMode::ReadWrite).unwrap();
        let content = Arc::make_mut(&mut self.content);
        for lbas in [1000..1150, 1150..SECTORS as usize] {
            let bytes = lbas.start * SECTOR_SIZE..lbas.end * SECTOR_SIZE;
            let range = ByteRange::checked(bytes.start as u64, bytes.len() as u64, SIZE).unwrap();
            volume.zero(range, Space::Free).unwrap();
            content[bytes].fill(0);
        }
        volume.close().unwrap();
    }

    /// What `rbd` must be told of an image that it makes for this disk's bytes.
    pub fn options(&self) -> String {
        format!("{FEATURES} --object-size {}B", self.payload.object_size())
    }

    /// Runs `rbd`.
    #[track_caller]
    pub fn rbd(&self, command: &str) {
        self.images.rbd(command);
    }

    /// The pool that the image is in.
    pub fn pool(&self) -> String {
        name(&self.image).pool
    }

    fn image_name(&self) -> String {
        name(&self.image).image
    }

    /// Another image of a like name in the same pool.
    pub fn beside(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.image)
    }

    /// Another image of a like name in the pool for that.
    pub fn elsewhere(&self, suffix: &str) -> String {
        format!("{}-other/{}-{suffix}", self.pool(), self.image_name())
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
        match self.open(image, mode) {
            Ok(volume) => lost(&volume, content).map(|lost| format!("{image}: {lost}")),
            Err(error) => Some(format!("{image}: {error}")),
        }
    }

    /// The volume on an image that it must open on.
    #[track_caller]
    pub fn attach(&self, image: &str) -> Volume {
        self.open(image, OpenMode::ReadWrite).unwrap()
    }

    /// Opens the volume on an image.
    pub fn open(&self, image: &str, mode: OpenMode) -> Result<Volume, String> {
        let store: Arc<dyn Store> = self.images.try_open(image, mode).map_err(|error| error.to_string())?;
        let options = OpenOptions { read_only: mode == OpenMode::ReadOnly, memory: MEMORY };
        Volume::open(store, image, &self.payload, &key(), options).map_err(|error| error.to_string())
    }
}

/// Which sector of a volume is not what it should be.
pub fn lost(volume: &Volume, content: &[u8]) -> Option<String> {
    let mut found = vec![0; SIZE as usize];
    let sectors = found.chunks_mut(SECTOR_SIZE).enumerate();
    let mut batch: Vec<_> = sectors.map(|(lba, buf)| ReadRequest::new(sector_range(lba), buf)).collect();
    batch.chunks_mut(AT_ONCE).zip(content.chunks(AT_ONCE * SECTOR_SIZE)).find_map(|(batch, content)| {
        volume.read(batch);
        batch.iter().zip(content.chunks(SECTOR_SIZE)).find_map(|(request, expected)| match &request.result {
            Err(error) => Some(error.to_string()),
            Ok(()) => (*request.buf != *expected).then(|| format!("bytes {:?} differ", request.range)),
        })
    })
}

fn sector_range(lba: usize) -> ByteRange {
    ByteRange::checked((lba * SECTOR_SIZE) as u64, SECTOR_SIZE as u64, SIZE).unwrap()
}
