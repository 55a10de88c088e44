//! Compound writes.

use std::ffi::{CString, c_int};
use std::ptr;

use super::Pool;
use super::in_flight::{Operation, pointers_and_lens};
use crate::RadosError;
use crate::cluster::c_string;

/// `LIBRADOS_CREATE_EXCLUSIVE`
const EXCLUSIVE: c_int = 1;
/// `LIBRADOS_CREATE_IDEMPOTENT`
const IDEMPOTENT: c_int = 0;

/// What is to be done to one object as a whole. Ceph copies what it is given.
pub struct ObjectWrite<'a> {
    pub(super) object: CString,
    /// Until it is submitted.
    pub(super) operation: Option<Operation<'a>>,
    pub(super) behind_snapshots: bool,
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
        Ok(Self { object, operation, behind_snapshots: false, result: Ok(0) })
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

    /// Leaves an object without bytes and keys, whether there was one or not.
    pub fn empty(self) -> Self {
        // Removing what does not exist would be an error. Cut off to nothing, it would keep its keys.
        self.create_if_absent().remove().create_if_absent()
    }

    fn create_if_absent(self) -> Self {
        // SAFETY: as above.
        self.add(|op| unsafe { (op.pool.cluster.librados.rados_write_op_create)(op.handle, IDEMPOTENT, ptr::null()) })
    }

    /// Lets snapshots that the pool's context does not know see what is written, too: only for what belongs to their time.
    pub(crate) fn behind_snapshots(mut self) -> Self {
        self.behind_snapshots = true;
        self
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

    /// Only if these bytes are there, from `offset` on; otherwise the error [says so](crate::RadosError::is_mismatch).
    pub fn compare(self, offset: u64, bytes: &[u8]) -> Self {
        // SAFETY: as above; the bytes are copied by the call, and nobody asks for this part's own result.
        self.add(|op| unsafe {
            let compare = op.pool.cluster.librados.rados_write_op_cmpext;
            compare(op.handle, bytes.as_ptr().cast(), bytes.len(), offset, ptr::null_mut());
        })
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
    pub fn remove(self) -> Self {
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
}
