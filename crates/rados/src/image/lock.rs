//! The exclusive lock of an image.

use std::ffi::{CStr, c_int};
use std::ptr;

use super::{Image, text_of};
use crate::RadosError;
use crate::cluster::c_string;
use crate::library::Watcher;

/// `RBD_LOCK_MODE_EXCLUSIVE`
const EXCLUSIVE: c_int = 0;
/// The name of the lock on the object of an image's header: `RBD_LOCK_NAME` in `librbd/Types.h`.
const LOCK: &CStr = c"rbd_lock";
/// Room for the names of all owners: there is one at most.
const LONGEST: usize = 512;

impl Image {
    /// Takes the exclusive lock, which nobody gets until it is released or broken. If its owner lives, that is an error
    /// ([`lock_owner`](Self::lock_owner) tells who); after one that died it takes half a minute, unless the lock is broken
    /// first.
    pub fn lock(&self) -> Result<(), RadosError> {
        let _wait = self.begin_wait();
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_lock_acquire)(self.handle, EXCLUSIVE) };
        self.check(result, "locking").map(drop)
    }

    /// Releases the lock.
    pub fn unlock(&self) -> Result<(), RadosError> {
        let _wait = self.begin_wait();
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
        // From the image's header itself: librbd does not say when the image is open read-only.
        let header = c_string(format!("rbd_header.{}", self.id()?).as_bytes(), "the header's name")?;
        let (mut exclusive, mut buffers) = (0, [[0u8; LONGEST]; 4]);
        let mut lens = [LONGEST; 4];
        let [tag, clients, cookies, addresses] = &mut buffers;
        let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
        let _wait = self.begin_wait();
        // SAFETY: the pool lives, the names outlive the call, and every length is its buffer's.
        let count = unsafe {
            (self.pool.cluster.librados.rados_list_lockers)(
                self.pool.handle,
                header.as_ptr(),
                LOCK.as_ptr(),
                &mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_len,
                clients.as_mut_ptr().cast(),
                clients_len,
                cookies.as_mut_ptr().cast(),
                cookies_len,
                addresses.as_mut_ptr().cast(),
                addresses_len,
            )
        };
        match self.check(count as i64, "looking at the lock of") {
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
            Ok(0) => Ok(None),
            Ok(_) => {
                let first = CStr::from_bytes_until_nul(addresses).unwrap_or_default();
                let first = first.to_string_lossy();
                // Elsewhere addresses stand without the version of the protocol.
                let address = ["v1:", "v2:", "any:"].iter().find_map(|version| first.strip_prefix(version));
                Ok(Some(address.unwrap_or(&first).to_owned()))
            }
        }
    }

    /// The addresses of those who have the image open for writing. One that died stays for half a minute.
    pub fn watchers(&self) -> Result<Vec<String>, RadosError> {
        let mut most = 16;
        loop {
            let none = Watcher { address: ptr::null_mut(), id: 0, cookie: 0 };
            let mut watchers = vec![none; most];
            // SAFETY: the handle is this value's, and `most` is how many there is room for.
            let result = unsafe { (self.librbd.rbd_watchers_list)(self.handle, watchers.as_mut_ptr(), &mut most) };
            if result == -libc::ERANGE {
                continue; // `most` says now how many there are
            }
            self.check(result, "listing who watches")?;
            // SAFETY: so many strings of librbd's, which are freed once, after they were copied.
            return Ok(unsafe {
                let addresses = watchers[..most].iter().map(|watcher| text_of(watcher.address)).collect();
                (self.librbd.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), most);
                addresses
            });
        }
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
