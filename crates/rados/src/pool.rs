//! Objects of a pool: what is read and written of one object happens at one moment, and many objects are in flight at once.

mod in_flight;
mod lock;
mod read;
mod write;

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;

use crate::RadosError;
use crate::cluster::{Cluster, c_string};
use crate::error::check;
use crate::library::PoolHandle;
use in_flight::{Operation, Submitted};
use read::ReadOutcome;

pub use read::ObjectRead;
pub use write::ObjectWrite;

/// `LIBRADOS_OPERATION_ORDERSNAP`: a write with an older snapshot context than the object has seen is refused.
const ORDER_SNAPSHOTS: c_int = 512;

/// Which snapshots a write must leave untouched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotContext {
    /// Rises with every change of the image's snapshots.
    pub sequence: u64,
    /// Their ids, newest first.
    pub snapshots: Vec<u64>,
}

/// A pool, or a namespace in one, in a state of its snapshots.
pub struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) handle: PoolHandle,
    name: String,
    namespace: CString,
    has_snapshots: bool,
}

// SAFETY: operations on a pool may be submitted by many threads. What changes the handle itself (namespace, snapshots)
// happens before anybody else has it.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// The pool of this name; `namespace` may be empty.
    pub fn open(cluster: &Arc<Cluster>, name: &str, namespace: &str) -> Result<Self, RadosError> {
        let c_name = c_string(name.as_bytes(), "the pool's name")?;
        let mut handle = ptr::null_mut();
        // SAFETY: the connection lives, the name outlives the call, and `handle` is written on success.
        let result = unsafe { (cluster.librados.rados_ioctx_create)(cluster.handle, c_name.as_ptr(), &mut handle) };
        check(result, || format!("opening pool {name}"))?;
        Ok(Self::new(cluster, handle, name, c_string(namespace.as_bytes(), "the namespace")?))
    }

    /// The pool of this number, in this pool's namespace.
    pub fn other(&self, id: i64) -> Result<Self, RadosError> {
        self.elsewhere(id, self.namespace.clone())
    }

    /// The pool of this number, in a namespace of its own.
    pub(crate) fn in_namespace(&self, id: i64, namespace: &str) -> Result<Self, RadosError> {
        self.elsewhere(id, c_string(namespace.as_bytes(), "the namespace")?)
    }

    fn elsewhere(&self, id: i64, namespace: CString) -> Result<Self, RadosError> {
        let mut handle = ptr::null_mut();
        // SAFETY: as in `open`.
        let result = unsafe { (self.cluster.librados.rados_ioctx_create2)(self.cluster.handle, id, &mut handle) };
        check(result, || format!("opening pool number {id}"))?;
        Ok(Self::new(&self.cluster, handle, &format!("number {id}"), namespace))
    }

    fn new(cluster: &Arc<Cluster>, handle: PoolHandle, name: &str, namespace: CString) -> Self {
        // SAFETY: the handle is new, and the string outlives the call.
        unsafe {
            (cluster.librados.rados_ioctx_set_namespace)(handle, namespace.as_ptr());
            // Where the pool is full, an error for what would make it fuller, instead of a wait for everything: what
            // overwrites, gives back space or unlocks goes on.
            (cluster.librados.rados_set_pool_full_try)(handle);
        }
        Self { cluster: Arc::clone(cluster), handle, name: name.to_owned(), namespace, has_snapshots: false }
    }

    /// The pool's number.
    pub fn id(&self) -> i64 {
        // SAFETY: the handle is this value's.
        unsafe { (self.cluster.librados.rados_ioctx_get_id)(self.handle) }
    }

    /// The same pool, whose writes leave these snapshots untouched. What is in flight on `self` keeps its own context: let
    /// it end before the first write here, or a snapshot may see it.
    pub fn with_snapshots(&self, context: &SnapshotContext) -> Result<Self, RadosError> {
        let mut pool = self.other(self.id())?;
        pool.has_snapshots = !context.snapshots.is_empty();
        let mut ids = context.snapshots.clone();
        let count = ids.len() as c_int;
        // SAFETY: the handle is new and nobody else's; the ids outlive the call, which copies them.
        let result = unsafe {
            let set = self.cluster.librados.rados_ioctx_selfmanaged_snap_set_write_ctx;
            set(pool.handle, context.sequence, ids.as_mut_ptr(), count)
        };
        check(result, || format!("adopting the snapshots of an image in pool {}", self.name))?;
        Ok(pool)
    }

    /// Whether there are snapshots that writes leave untouched.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.has_snapshots
    }

    /// The same pool, read as it was at a snapshot.
    pub fn at_snapshot(&self, id: u64) -> Result<Self, RadosError> {
        let pool = self.other(self.id())?;
        // SAFETY: the handle is new and nobody else's.
        unsafe { (self.cluster.librados.rados_ioctx_snap_set_read)(pool.handle, id) };
        Ok(pool)
    }

    /// Calls a method that the OSDs have for objects of a class. Returns what it answers, at most `most` bytes.
    pub(crate) fn execute(
        &self,
        object: &str,
        class: &str,
        method: &str,
        input: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, RadosError> {
        let [name, c_class, c_method] = [object, class, method].map(|text| c_string(text.as_bytes(), "a name"));
        let (name, c_class, c_method) = (name?, c_class?, c_method?);
        let mut output = vec![0u8; most];
        let _wait = self.cluster.waits.begin();
        // SAFETY: all strings and buffers outlive the call, with the lengths that are given.
        let result = unsafe {
            (self.cluster.librados.rados_exec)(
                self.handle,
                name.as_ptr(),
                c_class.as_ptr(),
                c_method.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                most,
            )
        };
        let len = check(result, || format!("asking {object} for {class}.{method}"))?;
        output.truncate(len as usize);
        Ok(output)
    }

    /// Reads objects, all at once; each gets its own result.
    pub fn read<'r, 'a: 'r>(&self, reads: impl IntoIterator<Item = &'r mut ObjectRead<'a>>) {
        let librados = self.cluster.librados;
        let mut in_flight: Vec<(&mut ObjectRead<'_>, Submitted<'_>, Box<ReadOutcome>)> = Vec::new();
        // To Ceph, an operation without parts is a mistake.
        for read in reads.into_iter().filter(|read| !read.is_empty()) {
            // SAFETY: makes a new operation, which `Operation` releases.
            let handle = unsafe { (librados.rados_create_read_op)() };
            let operation = Operation { pool: self, handle, write: false };
            let mut outcome = Box::new(ReadOutcome::new(librados, read));
            // SAFETY: buffers and outcomes are written until the operation has ended. `Submitted` waits for that when it is
            // dropped, and both outlive it: the buffers are borrowed for this call, the outcome is dropped after it.
            unsafe { outcome.add_to(operation.handle, read) };
            let submit = librados.rados_aio_read_op_operate;
            match Submitted::new(operation, &read.object, |pool, operation, completion, object| {
                // SAFETY: all four are valid and live until the completion is released.
                unsafe { submit(operation, pool, completion, object, 0) }
            }) {
                Ok(submitted) => in_flight.push((read, submitted, outcome)),
                Err(error) => read.result = Err(error),
            }
        }
        for (read, submitted, mut outcome) in in_flight {
            let ended = submitted.wait(|| format!("reading {} in pool {}", read.object.to_string_lossy(), self.name));
            read.result = ended.and_then(|_| outcome.give(self, read));
        }
    }

    /// Writes objects, all at once; each happens as a whole or not at all, and gets its own result. When it is `Ok` the
    /// write is durable.
    pub fn write(&self, writes: &mut [ObjectWrite<'_>]) {
        let mut in_flight = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter_mut().enumerate() {
            let Some(operation) = write.operation.take() else { continue };
            let flags = if write.behind_snapshots { 0 } else { ORDER_SNAPSHOTS };
            let submit = self.cluster.librados.rados_aio_write_op_operate;
            match Submitted::new(operation, &write.object, |pool, operation, completion, object| {
                // SAFETY: all four are valid and live until the completion is released; the time is the OSD's.
                unsafe { submit(operation, pool, completion, object, ptr::null_mut(), flags) }
            }) {
                Ok(submitted) => in_flight.push((index, submitted)),
                Err(error) => write.result = Err(error),
            }
        }
        for (index, submitted) in in_flight {
            let write = &mut writes[index];
            write.result =
                submitted.wait(|| format!("writing {} in pool {}", write.object.to_string_lossy(), self.name));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: operations in flight have ended: whoever submitted them waited.
        unsafe { (self.cluster.librados.rados_ioctx_destroy)(self.handle) };
    }
}
