//! Operations on objects, and waiting for them.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::Pool;
use crate::RadosError;
use crate::error::check;
use crate::library::{CompletionHandle, OperationHandle, PoolHandle};
use crate::waits::Wait;

/// A compound operation; released when dropped.
pub(super) struct Operation<'a> {
    pub(super) pool: &'a Pool,
    pub(super) handle: OperationHandle,
    pub(super) write: bool,
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
pub(super) struct Submitted<'a> {
    completion: CompletionHandle,
    operation: Operation<'a>,
    _wait: Wait<'a>,
}

impl<'a> Submitted<'a> {
    pub(super) fn new(
        operation: Operation<'a>,
        object: &CString,
        submit: impl FnOnce(PoolHandle, OperationHandle, CompletionHandle, *const c_char) -> c_int,
    ) -> Result<Self, RadosError> {
        let pool = operation.pool;
        let librados = pool.cluster.librados;
        let mut completion = ptr::null_mut();
        let wait = pool.cluster.waits.begin();
        // SAFETY: without a callback there is nothing that must outlive the call.
        let made = unsafe { (librados.rados_aio_create_completion2)(ptr::null_mut(), None, &mut completion) };
        check(made, || "preparing to wait for Ceph".to_owned())?;
        let result = submit(pool.handle, operation.handle, completion, object.as_ptr());
        if let Err(error) = check(result, || format!("submitting an operation on {}", object.to_string_lossy())) {
            // SAFETY: nothing was submitted that refers to it.
            unsafe { (librados.rados_aio_release)(completion) };
            return Err(error);
        }
        Ok(Self { completion, operation, _wait: wait })
    }

    /// Waits for the end. Returns the object's version.
    pub(super) fn wait(self, what: impl FnOnce() -> String) -> Result<u64, RadosError> {
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

/// Texts as Ceph takes them.
pub(super) fn pointers_and_lens<'k>(texts: impl Iterator<Item = &'k [u8]>) -> (Vec<*const c_char>, Vec<usize>) {
    texts.map(|text| (text.as_ptr().cast(), text.len())).unzip()
}
