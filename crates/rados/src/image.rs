//! RBD images: what their objects are called, who may write them, and their snapshots.

mod change;
mod lock;
mod snapshots;
mod watch;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use crate::RadosError;
use crate::cluster::c_string;
use crate::error::check;
use crate::library::{ImageHandle, ImageInfo, Librbd};
use crate::pool::Pool;
use crate::waits::Wait;

pub use change::ObjectChange;
pub use snapshots::{ImageSnapshot, Parent};
pub use watch::{ImageEvent, Watch};

/// What an image is made with, as bits. Source: `rbd/features.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// Clones.
    pub const LAYERING: Self = Self(1);
    /// One writer at a time.
    pub const EXCLUSIVE_LOCK: Self = Self(4);
    /// A map of existing objects, which whoever writes beside librbd makes untrue.
    pub const OBJECT_MAP: Self = Self(8);
    /// Differences from the object map.
    pub const FAST_DIFF: Self = Self(16);
    /// Flattening reaches snapshots too.
    pub const DEEP_FLATTEN: Self = Self(32);
    /// Every write goes through librbd's journal.
    pub const JOURNALING: Self = Self(64);
    /// The image is on the way to another pool.
    pub const MIGRATING: Self = Self(512);
    /// The image is a mirror.
    pub const NON_PRIMARY: Self = Self(1024);
    /// Another client's cache has newer data.
    pub const DIRTY_CACHE: Self = Self(2048);

    /// What is asked of a new image.
    pub const OF_NEW_IMAGES: Self = Self(Self::LAYERING.0 | Self::EXCLUSIVE_LOCK.0 | Self::DEEP_FLATTEN.0);

    /// Whether all of `other` are here.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `rbd_image_option`
mod image_option {
    use std::ffi::c_int;

    pub(super) const FEATURES: c_int = 1;
    pub(super) const ORDER: c_int = 2;
    pub(super) const DATA_POOL: c_int = 10;
}

/// Long enough for every name that librbd makes.
const NAME_LEN: usize = 256;

/// An open image.
pub struct Image {
    handle: ImageHandle,
    librbd: &'static Librbd,
    name: String,
    /// Lives as long as the handle.
    pool: Arc<Pool>,
}

// SAFETY: librbd serves one handle to any number of threads.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Makes an image of `size` bytes in objects of `object_size` bytes (a power of two from 4096 on) with
    /// [`Features::OF_NEW_IMAGES`], whose data is in `data_pool` if that is given.
    pub fn create(
        pool: &Pool,
        name: &str,
        size: u64,
        object_size: u64,
        data_pool: Option<&str>,
    ) -> Result<(), RadosError> {
        let librbd = Librbd::get()?;
        let c_name = c_string(name.as_bytes(), "the image's name")?;
        let data_pool = data_pool.map(|name| c_string(name.as_bytes(), "the data pool's name")).transpose()?;
        let mut options = ptr::null_mut();
        // SAFETY: the options are made, filled, used and destroyed here, and all strings outlive the calls.
        let result = unsafe {
            (librbd.rbd_image_options_create)(&mut options);
            (librbd.rbd_image_options_set_uint64)(options, image_option::FEATURES, Features::OF_NEW_IMAGES.0);
            (librbd.rbd_image_options_set_uint64)(options, image_option::ORDER, object_size.ilog2().into());
            if let Some(data_pool) = &data_pool {
                (librbd.rbd_image_options_set_string)(options, image_option::DATA_POOL, data_pool.as_ptr());
            }
            let result = (librbd.rbd_create4)(pool.handle, c_name.as_ptr(), size, options);
            (librbd.rbd_image_options_destroy)(options);
            result
        };
        check(result, || format!("creating image {name}")).map(drop)
    }

    /// Removes an image that nobody has open.
    pub fn remove(pool: &Pool, name: &str) -> Result<(), RadosError> {
        let librbd = Librbd::get()?;
        let c_name = c_string(name.as_bytes(), "the image's name")?;
        // SAFETY: the pool lives, and the name outlives the call.
        let result = unsafe { (librbd.rbd_remove)(pool.handle, c_name.as_ptr()) };
        check(result, || format!("removing image {name}")).map(drop)
    }

    /// Opens an image, or a snapshot of it. Opened for writing it is watched, so that nobody removes it meanwhile; a
    /// snapshot is always read-only.
    pub fn open(pool: &Arc<Pool>, name: &str, snapshot: Option<&str>, read_only: bool) -> Result<Self, RadosError> {
        let librbd = Librbd::get()?;
        let open = if read_only { librbd.rbd_open_read_only } else { librbd.rbd_open };
        Self::open_by(pool, librbd, open, name, snapshot)
    }

    /// Opens the image of this id, read-only.
    pub fn open_by_id(pool: &Arc<Pool>, id: &str) -> Result<Self, RadosError> {
        let librbd = Librbd::get()?;
        Self::open_by(pool, librbd, librbd.rbd_open_by_id_read_only, id, None)
    }

    fn open_by(
        pool: &Arc<Pool>,
        librbd: &'static Librbd,
        open: OpenFunction,
        name: &str,
        snapshot: Option<&str>,
    ) -> Result<Self, RadosError> {
        let c_name = c_string(name.as_bytes(), "the image's name")?;
        let c_snapshot = snapshot.map(|name| c_string(name.as_bytes(), "the snapshot's name")).transpose()?;
        let c_snapshot = c_snapshot.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut handle = ptr::null_mut();
        let _wait = pool.cluster.waits.begin();
        // SAFETY: the pool lives as long as the image, and the names outlive the call.
        let result = unsafe { open(pool.handle, c_name.as_ptr(), &mut handle, c_snapshot) };
        check(result, || match snapshot {
            Some(snapshot) => format!("opening snapshot {snapshot} of image {name}"),
            None => format!("opening image {name}"),
        })?;
        Ok(Self { handle, librbd, name: name.to_owned(), pool: Arc::clone(pool) })
    }

    /// The name, or id, under which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool of its header.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Notes that librbd is asked for something that takes the cluster to answer.
    fn begin_wait(&self) -> Wait<'_> {
        self.pool.cluster.waits.begin()
    }

    fn check(&self, result: impl Into<i64>, doing: &str) -> Result<u64, RadosError> {
        check(result, || format!("{doing} image {}", self.name))
    }

    fn info(&self) -> Result<ImageInfo, RadosError> {
        // SAFETY: the structure is plain numbers and bytes, for which zeros are values.
        let mut info: ImageInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the handle is this value's, and the length is the structure's.
        let result = unsafe { (self.librbd.rbd_stat)(self.handle, &mut info, size_of::<ImageInfo>()) };
        self.check(result, "looking at")?;
        Ok(info)
    }

    /// Size in bytes.
    pub fn size(&self) -> Result<u64, RadosError> {
        Ok(self.info()?.size)
    }

    /// Bytes of an object.
    pub fn object_size(&self) -> Result<u64, RadosError> {
        Ok(self.info()?.object_size)
    }

    /// Whether each object holds consecutive bytes of the image.
    pub fn is_striped(&self) -> Result<bool, RadosError> {
        let mut count = 0;
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_get_stripe_count)(self.handle, &mut count) };
        self.check(result, "looking at")?;
        // Stripes across one object follow each other, whatever their size: a clone has that of its parent's objects.
        Ok(count != 1)
    }

    /// What it was made with.
    pub fn features(&self) -> Result<Features, RadosError> {
        let mut features = 0;
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_get_features)(self.handle, &mut features) };
        self.check(result, "looking at")?;
        Ok(Features(features))
    }

    /// Its id, which stays when it is renamed.
    pub fn id(&self) -> Result<String, RadosError> {
        self.text(self.librbd.rbd_get_id)
    }

    /// What the names of its data objects begin with.
    fn object_prefix(&self) -> Result<String, RadosError> {
        self.text(self.librbd.rbd_get_block_name_prefix)
    }

    fn text(&self, get: unsafe extern "C" fn(ImageHandle, *mut c_char, usize) -> c_int) -> Result<String, RadosError> {
        let mut text = [0u8; NAME_LEN];
        // SAFETY: the handle is this value's, and the length is the buffer's.
        let result = unsafe { get(self.handle, text.as_mut_ptr().cast(), text.len()) };
        self.check(result, "looking at")?;
        Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// How its data objects are called.
    pub fn object_names(&self) -> Result<ObjectNames, RadosError> {
        Ok(ObjectNames { prefix: self.object_prefix()? })
    }

    /// The pool of its data objects, before any snapshot context is set.
    pub fn data_pool(&self) -> Result<Pool, RadosError> {
        // SAFETY: the handle is this value's.
        let id = unsafe { (self.librbd.rbd_get_data_pool_id)(self.handle) };
        self.check(id, "looking for the data pool of")?;
        self.pool.other(id)
    }

    /// Changes the size.
    pub fn resize(&self, size: u64, may_shrink: bool) -> Result<(), RadosError> {
        let _wait = self.begin_wait();
        // SAFETY: the handle is this value's, and the callback needs no argument.
        let result = unsafe { (self.librbd.rbd_resize2)(self.handle, size, may_shrink, go_on, ptr::null_mut()) };
        self.check(result, "resizing").map(drop)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's, and watches hold the image. What it could not write back, nobody wrote through
        // it; the lock goes with the connection.
        unsafe { (self.librbd.rbd_close)(self.handle) };
    }
}

/// Nobody is told of progress.
unsafe extern "C" fn go_on(_done: u64, _all: u64, _argument: *mut c_void) -> c_int {
    0
}

type OpenFunction =
    unsafe extern "C" fn(crate::library::PoolHandle, *const c_char, *mut ImageHandle, *const c_char) -> c_int;

/// How an image's data objects are called.
#[derive(Debug, Clone)]
pub struct ObjectNames {
    prefix: String,
}

impl ObjectNames {
    /// The name of the object with this number.
    pub fn name(&self, number: u64) -> String {
        format!("{}.{number:016x}", self.prefix)
    }
}

/// # Safety
///
/// `text` is null or a C string.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller vouches.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
