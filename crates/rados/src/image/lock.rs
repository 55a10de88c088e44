//! The exclusive lock of an image.

use std::ffi::c_int;
use std::ptr;

use super::{Image, text_of};
use crate::RadosError;
use crate::cluster::c_string;

/// `RBD_LOCK_MODE_EXCLUSIVE`
const EXCLUSIVE: c_int = 0;

impl Image {
    /// Takes the exclusive lock, which nobody gets until it is released or broken. If its owner lives, that is an error
    /// ([`lock_owner`](Self::lock_owner) tells who); after one that died it takes half a minute, unless the lock is broken
    /// first.
    pub fn lock(&self) -> Result<(), RadosError> {
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_lock_acquire)(self.handle, EXCLUSIVE) };
        self.check(result, "locking").map(drop)
    }

    /// Releases the lock.
    pub fn unlock(&self) -> Result<(), RadosError> {
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_lock_release)(self.handle) };
        self.check(result, "unlocking").map(drop)
    }

    /// Whether the lock is held by this very image.
    pub fn is_locked_here(&self) -> Result<bool, RadosError> {
        let mut owner = 0;
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_is_exclusive_lock_owner)(self.handle, &mut owner) };
        self.check(result, "looking at the lock of")?;
        Ok(owner != 0)
    }

    /// The address of whoever has the lock.
    pub fn lock_owner(&self) -> Result<Option<String>, RadosError> {
        const MOST: usize = 8;
        let mut owners = [ptr::null_mut(); MOST];
        let (mut mode, mut count) = (EXCLUSIVE, MOST);
        // SAFETY: the handle is this value's, and `count` is how many there is room for.
        let result =
            unsafe { (self.librbd.rbd_lock_get_owners)(self.handle, &mut mode, owners.as_mut_ptr(), &mut count) };
        match self.check(result, "looking at the lock of") {
            Err(error) if error.is_absent() => return Ok(None),
            other => other?,
        };
        // SAFETY: so many strings of librbd's, which are freed once, after the first was copied.
        let owner = unsafe {
            let owner = owners[..count].first().map(|owner| text_of(*owner));
            (self.librbd.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            owner
        };
        Ok(owner)
    }

    /// Takes the lock away from its owner, whose writes Ceph refuses from now on. Only when the owner is known to be gone,
    /// or to have to go.
    pub fn break_lock(&self, owner: &str) -> Result<(), RadosError> {
        let owner = c_string(owner.as_bytes(), "the owner's address")?;
        // SAFETY: the handle is this value's, and the address outlives the call.
        let result = unsafe { (self.librbd.rbd_lock_break)(self.handle, EXCLUSIVE, owner.as_ptr()) };
        self.check(result, "breaking the lock of").map(drop)
    }
}
