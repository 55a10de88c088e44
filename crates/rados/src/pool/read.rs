//! Compound reads.

use std::ffi::{CString, c_char, c_int};
use std::io;
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
    /// Bytes of the object that count.
    end: u64,
    extents: Vec<(u64, &'a mut [u8])>,
    keys: Vec<Vec<u8>>,
    every_key: bool,
    measure: bool,
    /// Bytes that the object has, if that [was asked](Self::measure).
    pub size: u64,
    /// The values of the keys that exist, in the keys' order.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
    /// How it went. An object that does not exist is an error that [says so](RadosError::is_absent).
    pub result: Result<(), RadosError>,
}

impl<'a> ObjectRead<'a> {
    /// Reads of `object`; nothing so far.
    pub fn new(object: &str) -> Result<Self, RadosError> {
        let object = c_string(object.as_bytes(), "the object's name")?;
        Ok(Self {
            object,
            end: u64::MAX,
            extents: Vec::new(),
            keys: Vec::new(),
            every_key: false,
            measure: false,
            size: 0,
            values: Vec::new(),
            result: Ok(()),
        })
    }

    /// Whether Ceph needs not be asked.
    pub(crate) fn is_empty(&self) -> bool {
        let bytes = self.extents.iter().any(|(offset, buf)| self.counting(*offset, buf) > 0);
        !bytes && self.keys.is_empty() && !self.every_key && !self.measure
    }

    /// Zeros wherever bytes were wanted: there is no such object.
    pub(crate) fn clear(&mut self) {
        self.extents.iter_mut().for_each(|(_, buf)| buf.fill(0));
    }

    /// Reads another object instead, of which only the first `end` bytes count: what lies behind them is zeros.
    pub(crate) fn redirect(&mut self, object: &str, end: u64) -> Result<(), RadosError> {
        self.object = c_string(object.as_bytes(), "the object's name")?;
        self.end = end;
        Ok(())
    }

    /// How many bytes of the extent count.
    fn counting(&self, offset: u64, buf: &[u8]) -> usize {
        usize::try_from(self.end.saturating_sub(offset)).map_or(buf.len(), |len| len.min(buf.len()))
    }

    /// Bytes from `offset` on; what lies behind the object's end is zeros.
    pub fn extent(mut self, offset: u64, buf: &'a mut [u8]) -> Self {
        // To Ceph, no bytes mean all of them.
        if !buf.is_empty() {
            self.extents.push((offset, buf));
        }
        self
    }

    /// Its [`size`](Self::size).
    pub fn measure(mut self) -> Self {
        self.measure = true;
        self
    }

    /// The values of all keys, up to [`MOST_KEYS`] of them.
    pub(crate) fn every_key(mut self) -> Self {
        self.every_key = true;
        self
    }

    /// The values of these keys.
    pub fn keys(mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.keys.extend(keys);
        self
    }
}

/// Most keys of an object that are read without naming them. OSDs give no more of them at once by default
/// (`osd_max_omap_entries_per_request`), and the place of the next ones can't be told where keys have zero bytes.
pub(crate) const MOST_KEYS: u64 = 1024;

/// Where Ceph writes how the parts of a read went.
pub(super) struct ReadOutcome {
    librados: &'static Librados,
    extents: Vec<(usize, c_int)>,
    found: KeysHandle,
    more_keys: u8,
    keys_result: c_int,
    size: u64,
    size_result: c_int,
}

impl ReadOutcome {
    pub(super) fn new(librados: &'static Librados, read: &ObjectRead<'_>) -> Self {
        Self {
            librados,
            extents: vec![(0, 0); read.extents.len()],
            found: ptr::null_mut(),
            more_keys: 0,
            keys_result: 0,
            size: 0,
            size_result: 0,
        }
    }

    /// # Safety
    ///
    /// Neither `self` nor the buffers of `read` may move or be used until the operation has ended.
    pub(super) unsafe fn add_to(&mut self, operation: OperationHandle, read: &mut ObjectRead<'_>) {
        let librados = self.librados;
        let counting: Vec<usize> = read.extents.iter().map(|(offset, buf)| read.counting(*offset, buf)).collect();
        for (((offset, buf), counting), (len, result)) in
            read.extents.iter_mut().zip(counting).zip(&mut self.extents).filter(|((_, counting), _)| *counting > 0)
        {
            // SAFETY: as the caller vouches.
            unsafe {
                (librados.rados_read_op_read)(operation, *offset, counting, buf.as_mut_ptr().cast(), len, result);
            }
        }
        if read.measure {
            // SAFETY: as the caller vouches; nobody asks for the time.
            unsafe {
                (librados.rados_read_op_stat)(operation, &mut self.size, ptr::null_mut(), &mut self.size_result);
            }
        }
        if read.every_key {
            let (after, prefix) = (c"".as_ptr(), c"".as_ptr());
            // SAFETY: the strings are constants; the rest is as the caller vouches.
            unsafe {
                (librados.rados_read_op_omap_get_vals2)(
                    operation,
                    after,
                    prefix,
                    MOST_KEYS,
                    &mut self.found,
                    &mut self.more_keys,
                    &mut self.keys_result,
                );
            }
        } else if !read.keys.is_empty() {
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
        let results = self.extents.iter().map(|(_, result)| *result).chain([self.keys_result, self.size_result]);
        for result in results {
            check(result, || what(read))?;
        }
        if self.more_keys != 0 {
            let reason = format!("it has more than {MOST_KEYS} keys");
            return Err(RadosError::new(what(read), io::Error::other(reason)));
        }
        read.size = self.size;
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
