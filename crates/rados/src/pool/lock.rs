//! Locks on objects, which only those respect who take them too. (An image's exclusive lock is another.)

use std::ffi::{CStr, CString};
use std::time::Duration;

use super::Pool;
use crate::RadosError;
use crate::cluster::c_string;
use crate::error::check;

/// So long is a lock kept whose owner has died.
const KEPT: libc::timeval = libc::timeval { tv_sec: 30, tv_usec: 0 };
/// How often to try, and how long to wait in between: longer in all than a lock is kept.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);
/// There is one owner, who needs no name of its own beside that of its connection.
const COOKIE: &CStr = c"";

/// A lock on an object. It ends when this is dropped.
pub(crate) struct ObjectLock<'a> {
    pool: &'a Pool,
    object: CString,
    name: &'static CStr,
}

impl Pool {
    /// Takes the lock of this name on an object, when others are done with it.
    pub(crate) fn lock(&self, object: &str, name: &'static CStr) -> Result<ObjectLock<'_>, RadosError> {
        let object = c_string(object.as_bytes(), "the object's name")?;
        let mut left = TRIES;
        loop {
            let mut kept = KEPT;
            let _wait = self.cluster.waits.begin();
            // SAFETY: the pool lives, and the strings and the duration outlive the call.
            let result = unsafe {
                let lock = self.cluster.librados.rados_lock_exclusive;
                lock(self.handle, object.as_ptr(), name.as_ptr(), COOKIE.as_ptr(), c"".as_ptr(), &mut kept, 0)
            };
            left -= 1;
            match check(result, || format!("locking {}", object.to_string_lossy())) {
                Ok(_) => return Ok(ObjectLock { pool: self, object, name }),
                Err(error) if error.errno() == Some(libc::EBUSY) && left > 0 => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for ObjectLock<'_> {
    fn drop(&mut self) {
        let unlock = self.pool.cluster.librados.rados_unlock;
        // SAFETY: as above. What cannot be unlocked ends by itself.
        unsafe { unlock(self.pool.handle, self.object.as_ptr(), self.name.as_ptr(), COOKIE.as_ptr()) };
    }
}
