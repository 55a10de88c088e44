//! Objects of a pool: what is read and written of one object happens at one moment, and many objects are in flight at once.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use crate::RadosError;
use crate::cluster::{Cluster, c_string};
use crate::error::check;
use crate::library::{CompletionHandle, KeysHandle, Librados, OperationHandle, PoolHandle};

/// `LIBRADOS_OPERATION_ORDERSNAP`: a write with an older snapshot context than the object has seen is refused.
const ORDER_SNAPSHOTS: c_int = 512;
/// `LIBRADOS_OPERATION_FULL_TRY`: where the pool is full, an error at once instead of a wait.
const FULL_TRY: c_int = 64;
/// `LIBRADOS_CREATE_EXCLUSIVE`
const EXCLUSIVE: c_int = 1;

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
        let mut handle = ptr::null_mut();
        // SAFETY: as in `open`.
        let result = unsafe { (self.cluster.librados.rados_ioctx_create2)(self.cluster.handle, id, &mut handle) };
        check(result, || format!("opening pool number {id}"))?;
        Ok(Self::new(&self.cluster, handle, &format!("number {id}"), self.namespace.clone()))
    }

    fn new(cluster: &Arc<Cluster>, handle: PoolHandle, name: &str, namespace: CString) -> Self {
        // SAFETY: the handle is new, and the string outlives the call.
        unsafe { (cluster.librados.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) };
        Self { cluster: Arc::clone(cluster), handle, name: name.to_owned(), namespace }
    }

    /// The pool's number.
    pub fn id(&self) -> i64 {
        // SAFETY: the handle is this value's.
        unsafe { (self.cluster.librados.rados_ioctx_get_id)(self.handle) }
    }

    /// The same pool, whose writes leave these snapshots untouched. What is in flight on `self` keeps its own context: let
    /// it end before the first write here, or a snapshot may see it.
    pub fn with_snapshots(&self, context: &SnapshotContext) -> Result<Self, RadosError> {
        let pool = self.other(self.id())?;
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
    pub fn read(&self, reads: &mut [ObjectRead<'_>]) {
        let librados = self.cluster.librados;
        let mut in_flight: Vec<(usize, Submitted<'_>, Box<ReadOutcome>)> = Vec::with_capacity(reads.len());
        // To Ceph, an operation without parts is a mistake.
        for (index, read) in reads.iter_mut().enumerate().filter(|(_, read)| !read.is_empty()) {
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
                Ok(submitted) => in_flight.push((index, submitted, outcome)),
                Err(error) => read.result = Err(error),
            }
        }
        for (index, submitted, mut outcome) in in_flight {
            let read = &mut reads[index];
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
            let submit = self.cluster.librados.rados_aio_write_op_operate;
            let flags = ORDER_SNAPSHOTS | if write.frees { FULL_TRY } else { 0 };
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

/// A compound operation; released when dropped.
struct Operation<'a> {
    pool: &'a Pool,
    handle: OperationHandle,
    write: bool,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let librados = self.pool.cluster.librados;
        let release = if self.write { librados.rados_release_write_op } else { librados.rados_release_read_op };
        // SAFETY: the operation is this value's, and is of this kind.
        unsafe { release(self.handle) };
    }
}

/// An operation in flight. Waits for its end when dropped: until then, memory is being written.
struct Submitted<'a> {
    completion: CompletionHandle,
    operation: Operation<'a>,
}

impl<'a> Submitted<'a> {
    fn new(
        operation: Operation<'a>,
        object: &CString,
        submit: impl FnOnce(PoolHandle, OperationHandle, CompletionHandle, *const c_char) -> c_int,
    ) -> Result<Self, RadosError> {
        let librados = operation.pool.cluster.librados;
        let mut completion = ptr::null_mut();
        // SAFETY: without a callback there is nothing that must outlive the call.
        let made = unsafe { (librados.rados_aio_create_completion2)(ptr::null_mut(), None, &mut completion) };
        check(made, || "preparing to wait for Ceph".to_owned())?;
        let result = submit(operation.pool.handle, operation.handle, completion, object.as_ptr());
        if let Err(error) = check(result, || format!("submitting an operation on {}", object.to_string_lossy())) {
            // SAFETY: nothing was submitted that refers to it.
            unsafe { (librados.rados_aio_release)(completion) };
            return Err(error);
        }
        Ok(Self { completion, operation })
    }

    /// Waits for the end. Returns the object's version.
    fn wait(self, what: impl FnOnce() -> String) -> Result<u64, RadosError> {
        let librados = self.operation.pool.cluster.librados;
        // SAFETY: the completion is this value's.
        let result = unsafe {
            (librados.rados_aio_wait_for_complete)(self.completion);
            (librados.rados_aio_get_return_value)(self.completion)
        };
        check(result, what)?;
        // SAFETY: as above.
        Ok(unsafe { (librados.rados_aio_get_version)(self.completion) })
    }
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        let librados = self.operation.pool.cluster.librados;
        // SAFETY: the completion is this value's, and is released once.
        unsafe {
            (librados.rados_aio_wait_for_complete)(self.completion);
            (librados.rados_aio_release)(self.completion);
        }
    }
}

/// What is to be read of one object at one moment.
pub struct ObjectRead<'a> {
    object: CString,
    extents: Vec<(u64, &'a mut [u8])>,
    keys: Vec<Vec<u8>>,
    /// The values of the keys that exist, in the keys' order.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
    /// How it went. An object that does not exist is an error that [says so](RadosError::is_absent).
    pub result: Result<(), RadosError>,
}

impl<'a> ObjectRead<'a> {
    /// Reads of `object`; nothing so far.
    pub fn new(object: &str) -> Result<Self, RadosError> {
        let object = c_string(object.as_bytes(), "the object's name")?;
        Ok(Self { object, extents: Vec::new(), keys: Vec::new(), values: Vec::new(), result: Ok(()) })
    }

    fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.keys.is_empty()
    }

    /// Bytes from `offset` on; what lies behind the object's end is zeros.
    pub fn extent(mut self, offset: u64, buf: &'a mut [u8]) -> Self {
        // To Ceph, no bytes mean all of them.
        if !buf.is_empty() {
            self.extents.push((offset, buf));
        }
        self
    }

    /// The values of these keys.
    pub fn keys(mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.keys.extend(keys);
        self
    }
}

/// Where Ceph writes how the parts of a read went.
struct ReadOutcome {
    librados: &'static Librados,
    extents: Vec<(usize, c_int)>,
    found: KeysHandle,
    keys_result: c_int,
}

impl ReadOutcome {
    fn new(librados: &'static Librados, read: &ObjectRead<'_>) -> Self {
        Self { librados, extents: vec![(0, 0); read.extents.len()], found: ptr::null_mut(), keys_result: 0 }
    }

    /// # Safety
    ///
    /// Neither `self` nor the buffers of `read` may move or be used until the operation has ended.
    unsafe fn add_to(&mut self, operation: OperationHandle, read: &mut ObjectRead<'_>) {
        let librados = self.librados;
        for ((offset, buf), (len, result)) in read.extents.iter_mut().zip(&mut self.extents) {
            // SAFETY: as the caller vouches.
            unsafe {
                (librados.rados_read_op_read)(operation, *offset, buf.len(), buf.as_mut_ptr().cast(), len, result);
            }
        }
        if !read.keys.is_empty() {
            let (pointers, lens) = pointers_and_lens(read.keys.iter().map(Vec::as_slice));
            // SAFETY: the keys are copied by the call; the rest is as the caller vouches.
            unsafe {
                (librados.rados_read_op_omap_get_vals_by_keys2)(
                    operation,
                    pointers.as_ptr(),
                    pointers.len(),
                    lens.as_ptr(),
                    &mut self.found,
                    &mut self.keys_result,
                );
            }
        }
    }

    /// After a successful operation: zeros behind what was read, and the values.
    fn give(&mut self, pool: &Pool, read: &mut ObjectRead<'_>) -> Result<(), RadosError> {
        let what = |read: &ObjectRead<'_>| format!("reading {} in pool {}", read.object.to_string_lossy(), pool.name);
        let results = self.extents.iter().map(|(_, result)| *result).chain([self.keys_result]);
        for result in results {
            check(result, || what(read))?;
        }
        for ((_, buf), (len, _)) in read.extents.iter_mut().zip(&self.extents) {
            buf[*len..].fill(0);
        }
        while !self.found.is_null() {
            let (mut key, mut value) = (ptr::null_mut(), ptr::null_mut());
            let (mut key_len, mut value_len) = (0, 0);
            // SAFETY: the list is valid until it is ended, and so is what it gives out.
            let result = unsafe {
                let next = self.librados.rados_omap_get_next2;
                next(self.found, &mut key, &mut value, &mut key_len, &mut value_len)
            };
            check(result, || what(read))?;
            if key.is_null() {
                break;
            }
            // SAFETY: librados says how long they are.
            let [key, value] = unsafe { [bytes(key, key_len), bytes(value, value_len)] };
            read.values.push((key, value));
        }
        Ok(())
    }
}

impl Drop for ReadOutcome {
    fn drop(&mut self) {
        if !self.found.is_null() {
            // SAFETY: the list is this value's, and is ended once. Its operation has ended.
            unsafe { (self.librados.rados_omap_get_end)(self.found) };
        }
    }
}

/// # Safety
///
/// `start` points to `len` bytes, or `len` is 0.
unsafe fn bytes(start: *const c_char, len: usize) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    // SAFETY: as the caller vouches.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec()
}

fn pointers_and_lens<'k>(texts: impl Iterator<Item = &'k [u8]>) -> (Vec<*const c_char>, Vec<usize>) {
    texts.map(|text| (text.as_ptr().cast(), text.len())).unzip()
}

/// What is to be done to one object as a whole. Ceph copies what it is given.
pub struct ObjectWrite<'a> {
    object: CString,
    /// Until it is submitted.
    operation: Option<Operation<'a>>,
    frees: bool,
    /// How it went, with the object's version.
    pub result: Result<u64, RadosError>,
}

impl<'a> ObjectWrite<'a> {
    /// Changes of `object` in `pool`; none so far.
    pub fn new(pool: &'a Pool, object: &str) -> Result<Self, RadosError> {
        let object = c_string(object.as_bytes(), "the object's name")?;
        // SAFETY: makes a new operation, which `Operation` releases.
        let handle = unsafe { (pool.cluster.librados.rados_create_write_op)() };
        let operation = Some(Operation { pool, handle, write: true });
        Ok(Self { object, operation, frees: false, result: Ok(0) })
    }

    fn add(mut self, add: impl FnOnce(&Operation<'_>)) -> Self {
        if let Some(operation) = &mut self.operation {
            add(operation);
        }
        self
    }

    /// Only if the object does not exist yet.
    pub fn create(self) -> Self {
        // SAFETY: the operation is ours and not submitted.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_create)(op.handle, EXCLUSIVE, ptr::null()) })
    }

    /// Only if the object exists.
    pub fn assert_exists(self) -> Self {
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_assert_exists)(op.handle) })
    }

    /// Only if the object has this version.
    pub fn assert_version(self, version: u64) -> Self {
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_assert_version)(op.handle, version) })
    }

    /// Writes bytes from `offset` on.
    pub fn write(self, offset: u64, bytes: &[u8]) -> Self {
        // SAFETY: as above; the bytes are copied by the call.
        self.add(|op| unsafe {
            (op.pool.cluster.librados.rados_write_op_write)(op.handle, bytes.as_ptr().cast(), bytes.len(), offset);
        })
    }

    /// Makes bytes zero.
    pub fn zero(self, offset: u64, len: u64) -> Self {
        // Of length 0, this brings down the OSD, and then the next one that is asked.
        if len == 0 {
            return self;
        }
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_zero)(op.handle, offset, len) })
    }

    /// Cuts the object off, or lengthens it with zeros.
    pub fn truncate(self, size: u64) -> Self {
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_truncate)(op.handle, size) })
    }

    /// Removes the object.
    pub fn remove(mut self) -> Self {
        self.frees = true;
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_remove)(op.handle) })
    }

    /// Sets values of keys. Not in erasure-coded pools, which have no keys.
    pub fn set_keys(self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let (keys, key_lens) = pointers_and_lens(pairs.iter().map(|(key, _)| key.as_slice()));
        let (values, value_lens) = pointers_and_lens(pairs.iter().map(|(_, value)| value.as_slice()));
        // SAFETY: as above; keys and values are copied by the call.
        self.add(|op| unsafe {
            (op.pool.cluster.librados.rados_write_op_omap_set2)(
                op.handle,
                keys.as_ptr(),
                values.as_ptr(),
                key_lens.as_ptr(),
                value_lens.as_ptr(),
                pairs.len(),
            );
        })
    }

    /// Removes keys with their values.
    pub fn remove_keys(self, keys: &[Vec<u8>]) -> Self {
        let (pointers, lens) = pointers_and_lens(keys.iter().map(Vec::as_slice));
        // SAFETY: as above; the keys are copied by the call.
        self.add(|op| unsafe {
            let remove = op.pool.cluster.librados.rados_write_op_omap_rm_keys2;
            remove(op.handle, pointers.as_ptr(), lens.as_ptr(), keys.len());
        })
    }

    /// Where the pool is full it fails at once, instead of waiting for room: for writes that make room.
    pub fn fail_if_full(mut self) -> Self {
        self.frees = true;
        self
    }
}
