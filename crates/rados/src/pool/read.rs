//! Compound reads.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::Pool;
use super::in_flight::pointers_and_lens;
use crate::RadosError;
use crate::cluster::c_string;
use crate::error::check;
use crate::library::{KeysHandle, Librados, OperationHandle};

/// What is to be read of one object at one moment.
pub struct ObjectRead<'a> {
    pub(super) object: CString,
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

    pub(super) fn is_empty(&self) -> bool {
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
pub(super) struct ReadOutcome {
    librados: &'static Librados,
    extents: Vec<(usize, c_int)>,
    found: KeysHandle,
    keys_result: c_int,
}

impl ReadOutcome {
    pub(super) fn new(librados: &'static Librados, read: &ObjectRead<'_>) -> Self {
        Self { librados, extents: vec![(0, 0); read.extents.len()], found: ptr::null_mut(), keys_result: 0 }
    }

    /// # Safety
    ///
    /// Neither `self` nor the buffers of `read` may move or be used until the operation has ended.
    pub(super) unsafe fn add_to(&mut self, operation: OperationHandle, read: &mut ObjectRead<'_>) {
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
    pub(super) fn give(&mut self, pool: &Pool, read: &mut ObjectRead<'_>) -> Result<(), RadosError> {
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
