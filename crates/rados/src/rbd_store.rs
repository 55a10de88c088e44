//! An RBD image as a store: its objects are read and written directly, librbd keeps the rest.
//!
//! What one call writes to one object happens at one moment, so nothing shorter than an object is ever torn; and what
//! Ceph has acknowledged is durable.
//!
//! **Snapshots.** Anybody may make one at any time. Its maker waits until nothing is being written here, and the writes
//! after it leave it untouched. So it shows a moment between two calls, as a crash there would have left it.
//!
//! **One writer.** The image's exclusive lock is held for as long as the store is open for writing. Ceph refuses the
//! writes of whoever has lost it.
//!
//! **Clones.** What an image shares with its parent is read there, and copied before it is changed. Anybody may flatten or
//! shrink the image, or remove a parent that is no longer needed, while it is open here.

mod copy_up;
mod inheritance;
mod kind;
mod name;
mod objects;
mod parents;
mod settled;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use sealdisk_store::{ObjectStore, OpenMode, Operation, ReadExtent, Store, StoreError, WriteExtent};
use sealdisk_units::StoreRange;

use crate::image::{Image, ImageEvent, ObjectNames, Watch};
use crate::pool::{ObjectRead, ObjectWrite, Pool};
use crate::{Cluster, RadosError};
use copy_up::Touched;
use kind::{check_kind, to_disable};
use parents::Parents;

pub use kind::ImageError;
pub use name::ImageName;

/// Objects in flight for one call at most.
const AT_ONCE: usize = 64;
/// How long the watching thread sleeps before it looks whether it is still wanted.
const NAP: Duration = Duration::from_millis(200);
/// How long after it was asked to be quiet a store goes on by itself: the maker of the snapshot has gone.
const QUIET: Duration = Duration::from_secs(60);

/// An open image.
pub struct RbdStore {
    inner: Arc<Inner>,
    watcher: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

struct Inner {
    image: Arc<Image>,
    names: ObjectNames,
    object_size: u64,
    size: AtomicU64,
    read_only: bool,
    /// For reading: as it is now, or at the snapshot.
    reads: Pool,
    /// For writing, with the snapshots of now. Writes hold it together; who changes it waits for them.
    writes: RwLock<Pool>,
    /// What it shares with its parents, or why that is no longer known.
    parents: RwLock<Result<Option<Arc<Parents>>, Arc<str>>>,
    /// Why nothing is written any more.
    failed: OnceLock<String>,
}

impl RbdStore {
    /// Opens an image. For writing, this takes its lock.
    pub fn open(cluster: &Arc<Cluster>, name: &ImageName, mode: OpenMode) -> Result<Self, ImageError> {
        let pool = Arc::new(Pool::open(cluster, &name.pool, &name.namespace)?);
        let read_only = mode == OpenMode::ReadOnly || name.snapshot.is_some();
        let image = Arc::new(Image::open(&pool, &name.image, name.snapshot.as_deref(), read_only)?);
        check_kind(&image, name)?;
        let mut reads = image.data_pool()?;
        if let Some(snapshot) = &name.snapshot {
            let snapshots = image.snapshots()?;
            let found = snapshots.iter().find(|found| found.name == *snapshot);
            let gone = || ImageError::Unsupported { image: name.to_string(), reason: "has just been removed" };
            reads = reads.at_snapshot(found.ok_or_else(gone)?.id)?;
        }
        // From before the lock is taken: no snapshot may be missed.
        let watch = if read_only { None } else { Some(Watch::new(&image)?) };
        if !read_only {
            take_lock(&image, name)?;
        }
        let inner = Arc::new(Inner {
            names: image.object_names()?,
            object_size: image.object_size()?,
            size: AtomicU64::new(image.size()?),
            writes: RwLock::new(writing_pool(&image, read_only)?),
            parents: RwLock::new(Ok(Parents::of(&image, &pool)?.map(Arc::new))),
            failed: OnceLock::new(),
            read_only,
            reads,
            image,
        });
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = watch.map(|watch| {
            let (inner, stop) = (Arc::clone(&inner), Arc::clone(&stop));
            std::thread::Builder::new().name("rbd-watcher".into()).spawn(move || inner.follow(&watch, &stop))
        });
        let watcher = watcher.transpose().map_err(|error| RadosError::new("starting a thread", error))?;
        Ok(Self { inner, watcher, stop })
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.inner.image
    }

    /// Makes the image what it was at a snapshot, its size too. Nobody else can while it is open here for writing. What is
    /// known of its content elsewhere, in an open volume, is wrong afterwards.
    pub fn roll_back(&self, snapshot: &str) -> Result<(), ImageError> {
        // Objects vanish that existed, and no write may rely on them before that is noticed.
        let mut pool = self.inner.writes_alone();
        self.inner.image.roll_back(snapshot)?;
        self.inner.look_again(&mut pool).inspect_err(|error| {
            let _ = self.inner.failed.set(error.to_string());
        })
    }
}

impl Drop for RbdStore {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        if !self.inner.read_only {
            // Whoever broke it has it; otherwise it ends with the connection.
            let _ = self.inner.image.unlock();
        }
    }
}

/// The pool to write to, with the snapshots of now.
fn writing_pool(image: &Image, read_only: bool) -> Result<Pool, RadosError> {
    let pool = image.data_pool()?;
    if read_only { Ok(pool) } else { pool.with_snapshots(&image.snapshot_context()?) }
}

fn take_lock(image: &Image, name: &ImageName) -> Result<(), ImageError> {
    let refused = match image.lock() {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    match image.lock_owner() {
        Ok(Some(owner)) => Err(ImageError::Busy { image: name.to_string(), owner }),
        _ => Err(refused.into()),
    }
}

impl Inner {
    /// Follows what happens to the image.
    fn follow(&self, watch: &Watch, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match watch.next(NAP) {
                None | Some(ImageEvent::Unquiesce) => {}
                Some(event) => {
                    // With this lock nothing is in flight.
                    let mut pool = self.writes_alone();
                    if event == ImageEvent::Quiesce {
                        watch.is_quiet();
                        while watch.next(QUIET).is_some_and(|event| event != ImageEvent::Unquiesce) {}
                    }
                    if let Err(error) = self.look_again(&mut pool) {
                        let _ = self.failed.set(error.to_string());
                    }
                }
            }
        }
    }

    /// Adopts what has changed. An error is for good.
    fn look_again(&self, pool: &mut Pool) -> Result<(), ImageError> {
        if !self.image.is_locked_here()? {
            return Err(self.unsupported("is no longer locked here: another client has taken it over"));
        }
        if to_disable(self.image.features()?).is_some() {
            return Err(self.unsupported("was given a feature that does not know of what is written here"));
        }
        *pool = writing_pool(&self.image, false)?;
        self.look_at_parents()?;
        self.size.store(self.image.size()?, Ordering::SeqCst);
        Ok(())
    }

    fn unsupported(&self, reason: &'static str) -> ImageError {
        ImageError::Unsupported { image: self.image.name().to_owned(), reason }
    }

    fn writes_together(&self) -> RwLockReadGuard<'_, Pool> {
        self.writes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writes_alone(&self) -> RwLockWriteGuard<'_, Pool> {
        self.writes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_writable(&self, operation: Operation) -> Result<(), StoreError> {
        if self.read_only {
            return Err(StoreError::new(operation, io::ErrorKind::ReadOnlyFilesystem));
        }
        match self.failed.get() {
            Some(reason) => Err(StoreError::lost(operation, reason)),
            None => Ok(()),
        }
    }

    fn check_inside(&self, operation: Operation, range: StoreRange) -> Result<(), StoreError> {
        let size = self.size.load(Ordering::SeqCst);
        if range.offset.checked_add(range.len).is_none_or(|end| end > size) {
            let reason =
                format!("the image ends at {size}; it was shrunk, or is not the one that the header describes");
            return Err(StoreError::new(operation, io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
        }
        Ok(())
    }

    /// What went wrong with an object, for a caller who knows ranges.
    fn failure(&self, operation: Operation, error: RadosError) -> StoreError {
        if error.is_fenced() {
            let reason = "another client has broken the lock of this image and taken it over";
            let _ = self.failed.set(reason.to_owned());
            return StoreError::lost(operation, reason);
        }
        match error {
            RadosError::Failed { source, .. } => StoreError { operation, source },
            missing @ RadosError::Missing(_) => StoreError::new(operation, io::Error::other(missing)),
        }
    }

    /// The pieces of a range by object: its number, where in it, and how many bytes.
    fn pieces(&self, range: StoreRange) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let object_size = self.object_size;
        let (mut at, end) = (range.offset, range.end());
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (number, offset) = (at / object_size, at % object_size);
                let len = (object_size - offset).min(end - at);
                at += len;
                (number, offset, len)
            })
        })
    }
}

impl Store for RbdStore {
    fn size(&self) -> Result<u64, StoreError> {
        Ok(self.inner.size.load(Ordering::SeqCst))
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        let inner = &self.inner;
        inner.check_writable(Operation::Resize)?;
        // librbd removes what lies behind a new end by itself, and must not meet our writes there.
        let _alone = inner.writes_alone();
        inner.image.resize(size, true).map_err(|error| inner.failure(Operation::Resize, error))?;
        inner.look_at_parents().map_err(|error| {
            let _ = inner.failed.set(error.to_string());
            StoreError::lost(Operation::Resize, error.to_string())
        })?;
        inner.size.store(size, Ordering::SeqCst);
        Ok(())
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        let inner = &self.inner;
        let mut by_object: BTreeMap<u64, (StoreRange, ObjectRead<'_>)> = BTreeMap::new();
        for extent in extents {
            let range = extent.range();
            inner.check_inside(Operation::Read(range), range)?;
            let mut rest = &mut *extent.buf;
            for (number, offset, len) in inner.pieces(range) {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
                rest = after;
                let read = match by_object.remove(&number) {
                    Some((_, read)) => read,
                    None => ObjectRead::new(&inner.names.name(number))
                        .map_err(|error| inner.failure(Operation::Read(range), error))?,
                };
                by_object.insert(number, (range, read.extent(offset, part)));
            }
        }
        let numbers: Vec<u64> = by_object.keys().copied().collect();
        let (ranges, mut reads): (Vec<_>, Vec<_>) = by_object.into_values().unzip();
        let chunks = reads.chunks_mut(AT_ONCE).zip(ranges.chunks(AT_ONCE)).zip(numbers.chunks(AT_ONCE));
        for ((reads, ranges), numbers) in chunks {
            inner.read_objects(numbers, reads);
            for (read, range) in reads.iter_mut().zip(ranges) {
                match std::mem::replace(&mut read.result, Ok(())) {
                    Err(error) if !error.is_absent() => return Err(inner.failure(Operation::Read(*range), error)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        let inner = &self.inner;
        let Some(first) = extents.first() else { return Ok(()) };
        inner.check_writable(Operation::Write(first.range()))?;
        let pool = inner.writes_together();
        let mut by_object: BTreeMap<u64, (StoreRange, ObjectWrite<'_>)> = BTreeMap::new();
        let mut whole = BTreeSet::new();
        for extent in extents {
            let range = extent.range();
            inner.check_inside(Operation::Write(range), range)?;
            let mut rest = extent.buf;
            for (number, offset, len) in inner.pieces(range) {
                let (part, after) = rest.split_at(len as usize);
                rest = after;
                if len == inner.object_size {
                    whole.insert(number);
                }
                let write = match by_object.remove(&number) {
                    Some((_, write)) => write,
                    None => ObjectWrite::new(&pool, &inner.names.name(number))
                        .map_err(|error| inner.failure(Operation::Write(range), error))?,
                };
                by_object.insert(number, (range, write.write(offset, part)));
            }
        }
        let touched = by_object.keys().map(|number| Touched { number: *number, whole: whole.contains(number) });
        inner.copy_up(&pool, touched).map_err(|error| inner.failure(Operation::Write(first.range()), error))?;
        let (ranges, writes): (Vec<_>, Vec<_>) = by_object.into_values().unzip();
        inner.apply(&pool, writes, |index, error| Err(inner.failure(Operation::Write(ranges[index]), error)))
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        let inner = &self.inner;
        let operation = Operation::Zero(range);
        inner.check_writable(operation)?;
        inner.check_inside(operation, range)?;
        let pool = inner.writes_together();
        let mut pieces = inner.pieces(range).peekable();
        while pieces.peek().is_some() {
            let pieces: Vec<_> = pieces.by_ref().take(AT_ONCE).collect();
            let whole = |len| len == inner.object_size;
            let touched = pieces.iter().map(|(number, _, len)| Touched { number: *number, whole: whole(*len) });
            inner.copy_up(&pool, touched).map_err(|error| inner.failure(operation, error))?;
            let writes = pieces.into_iter().map(|(number, offset, len)| {
                let write = ObjectWrite::new(&pool, &inner.names.name(number))?;
                Ok(if whole(len) { inner.clear(write, number) } else { write.zero(offset, len) })
            });
            let writes = writes.collect::<Result<Vec<_>, RadosError>>();
            let writes = writes.map_err(|error| inner.failure(operation, error))?;
            inner.apply(&pool, writes, |_, error| match error.is_absent() {
                true => Ok(()),
                false => Err(inner.failure(operation, error)),
            })?;
        }
        Ok(())
    }

    /// Nothing is left to be done: what was acknowledged is durable. But whoever has lost the image must not be told that
    /// all is well.
    fn sync(&self) -> Result<(), StoreError> {
        if self.inner.read_only { Ok(()) } else { self.inner.check_writable(Operation::Sync) }
    }

    fn write_atomicity(&self) -> u32 {
        self.inner.object_size.min(1 << 30) as u32
    }

    fn objects(&self) -> Option<&dyn ObjectStore> {
        Some(self)
    }

    fn object_size(&self) -> Option<u64> {
        Some(self.inner.object_size)
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        let inner = &self.inner;
        let mut pieces = inner.pieces(range).peekable();
        while pieces.peek().is_some() {
            let numbers: Vec<u64> = pieces.by_ref().take(AT_ONCE).map(|(number, ..)| number).collect();
            let mut first_bytes = vec![0u8; numbers.len()];
            let reads = numbers
                .iter()
                .zip(first_bytes.chunks_mut(1))
                .map(|(number, byte)| Ok(ObjectRead::new(&inner.names.name(*number))?.extent(0, byte)));
            let reads = reads.collect::<Result<Vec<_>, RadosError>>();
            let mut reads = reads.map_err(|error| inner.failure(Operation::Read(range), error))?;
            inner.read_objects(&numbers, &mut reads);
            for read in reads {
                match read.result {
                    Ok(()) => return Ok(true),
                    Err(error) if error.is_absent() => {}
                    Err(error) => return Err(inner.failure(Operation::Read(range), error)),
                }
            }
        }
        Ok(false)
    }
}

impl Inner {
    /// Writes objects, not too many at once. `judge` says of each failure whether it is one.
    fn apply(
        &self,
        pool: &Pool,
        mut writes: Vec<ObjectWrite<'_>>,
        judge: impl Fn(usize, RadosError) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (chunk, writes) in writes.chunks_mut(AT_ONCE).enumerate() {
            pool.write(writes);
            for (index, write) in writes.iter_mut().enumerate() {
                if let Err(error) = std::mem::replace(&mut write.result, Ok(0)) {
                    judge(chunk * AT_ONCE + index, error)?;
                }
            }
        }
        Ok(())
    }
}
