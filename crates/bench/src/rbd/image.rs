//! The benchmark's images in the pool: made for a subject, removed whatever happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealdisk_rados::{Cluster, Credentials, Image, ImageName, Pool, RadosError, RbdStore};
use sealdisk_store::OpenMode;

use super::failure;
use crate::BenchError;

/// How long the cluster believes in a client that is no longer there, and keeps an image for it.
const BELIEF: Duration = Duration::from_secs(40);

/// The pool that is measured, and a connection to it.
pub(super) struct Place {
    cluster: Arc<Cluster>,
    pool: Arc<Pool>,
    name: String,
    /// What the names of this benchmark's images begin with.
    prefix: String,
}

impl Place {
    pub(super) fn new(credentials: &Credentials, pool: &str, prefix: String) -> Result<Self, BenchError> {
        let cluster = Cluster::connect(credentials).map_err(failure)?;
        let opened = Pool::open(&cluster, pool, "").map_err(failure)?;
        Ok(Self { cluster, pool: Arc::new(opened), name: pool.to_owned(), prefix })
    }

    /// Makes an image of `size` bytes in objects of `object_size` for a subject, with the features of Sealdisk's images.
    pub(super) fn create(&self, subject: &str, size: u64, object_size: u64) -> Result<OwnImage, BenchError> {
        let name = format!("{}-{subject}", self.prefix);
        Image::create(&self.pool, &name, size, object_size, None).map_err(failure)?;
        let name = ImageName { pool: self.name.clone(), namespace: String::new(), image: name, snapshot: None };
        Ok(OwnImage { pool: Arc::clone(&self.pool), name, removed: false })
    }

    /// An image as a store.
    pub(super) fn open(&self, image: &OwnImage, mode: OpenMode) -> Result<RbdStore, BenchError> {
        RbdStore::open(&self.cluster, &image.name, mode).map_err(failure)
    }
}

/// An image that goes when this is dropped.
pub(super) struct OwnImage {
    pool: Arc<Pool>,
    name: ImageName,
    removed: bool,
}

impl OwnImage {
    pub(super) fn name(&self) -> &ImageName {
        &self.name
    }

    /// Removes it.
    pub(super) fn remove(mut self) -> Result<(), BenchError> {
        self.removed = true;
        self.try_to_remove().map_err(failure)
    }

    /// Whoever served it may have been killed.
    fn try_to_remove(&self) -> Result<(), RadosError> {
        let began = Instant::now();
        loop {
            match Image::remove(&self.pool, &self.name.image) {
                Err(error) if error.errno() == Some(EBUSY) && began.elapsed() < BELIEF => {
                    std::thread::sleep(Duration::from_millis(500));
                }
                other => return other,
            }
        }
    }
}

/// "Device or resource busy", of Linux.
const EBUSY: i32 = 16;

impl Drop for OwnImage {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        if let Err(error) = self.try_to_remove() {
            eprintln!("sealdisk: warning: {error}; `rbd rm {}` removes it", self.name);
        }
    }
}
