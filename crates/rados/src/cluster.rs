//! A connection to a cluster.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use crate::RadosError;
use crate::error::check;
use crate::library::{ClusterHandle, Librados};

/// Who connects to which cluster, as people who use Ceph say it. What is not given is looked for where `ceph` looks:
/// `CEPH_CONF`, `CEPH_ARGS`, `/etc/ceph/ceph.conf`, `client.admin`.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The configuration file.
    pub conf: Option<PathBuf>,
    /// The user, without `client.`.
    pub id: Option<String>,
    /// The file with the user's key.
    pub keyring: Option<PathBuf>,
}

/// How long to look for a monitor, in seconds. (Ceph's own 300 are for machines that boot together.)
const MOUNT_TIMEOUT: &CStr = c"30";

/// A connection to a cluster. Its threads exist from the connection on: connect after `fork`, not before.
pub struct Cluster {
    pub(crate) handle: ClusterHandle,
    pub(crate) librados: &'static Librados,
}

// SAFETY: librados serves one connection to any number of threads.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects.
    pub fn connect(credentials: &Credentials) -> Result<Arc<Self>, RadosError> {
        let librados = Librados::get()?;
        let user = format!("client.{}", credentials.id.as_deref().unwrap_or("admin"));
        let user = c_string(user.as_bytes(), "the user's name")?;
        let mut handle = ptr::null_mut();
        // SAFETY: both strings outlive the call, and `handle` is written on success.
        let created = unsafe { (librados.rados_create2)(&mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        check(created, || "preparing a connection to Ceph".to_owned())?;
        let cluster = Self { handle, librados };
        cluster.configure(credentials)?;
        // SAFETY: the handle was created above and is configured.
        let connected = unsafe { (librados.rados_connect)(cluster.handle) };
        check(connected, || format!("connecting to Ceph as {}", user.to_string_lossy()))?;
        Ok(Arc::new(cluster))
    }

    fn configure(&self, credentials: &Credentials) -> Result<(), RadosError> {
        let path = credentials.conf.as_ref();
        let path =
            path.map(|path| c_string(path.as_os_str().as_bytes(), "the configuration file's name")).transpose()?;
        let told = || match &credentials.conf {
            Some(conf) => format!("reading {}", conf.display()),
            None => "reading Ceph's configuration ($CEPH_CONF, /etc/ceph/ceph.conf)".to_owned(),
        };
        // SAFETY: the handle is this value's; the path, if there is one, outlives the call.
        let read = unsafe {
            (self.librados.rados_conf_read_file)(self.handle, path.as_ref().map_or(ptr::null(), |path| path.as_ptr()))
        };
        check(read, told)?;
        // SAFETY: as above; a null pointer stands for CEPH_ARGS.
        let parsed = unsafe { (self.librados.rados_conf_parse_env)(self.handle, ptr::null()) };
        check(parsed, || "reading $CEPH_ARGS".to_owned())?;
        self.set(c"client_mount_timeout", MOUNT_TIMEOUT)?;
        if let Some(keyring) = &credentials.keyring {
            self.set(c"keyring", &c_string(keyring.as_os_str().as_bytes(), "the keyring's name")?)?;
        }
        Ok(())
    }

    fn set(&self, option: &CStr, value: &CStr) -> Result<(), RadosError> {
        // SAFETY: the handle is this value's, and both strings outlive the call.
        let set = unsafe { (self.librados.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) };
        check(set, || format!("setting {} for Ceph", option.to_string_lossy())).map(drop)
    }

    /// The address of this connection, which locks name as their owner and blocklists shut out.
    pub fn address(&self) -> Result<String, RadosError> {
        let mut addresses: *mut c_char = ptr::null_mut();
        // SAFETY: the handle is connected; on success the pointer is to a string that is ours to free.
        let result = unsafe { (self.librados.rados_getaddrs)(self.handle, &mut addresses) };
        check(result, || "asking for this connection's address".to_owned())?;
        // SAFETY: a string of librados', freed once, after it was copied.
        let text = unsafe {
            let text = CStr::from_ptr(addresses).to_string_lossy().into_owned();
            (self.librados.rados_buffer_free)(addresses);
            text
        };
        Ok(text)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: pools and images hold the cluster, so this is the last use of the handle.
        unsafe { (self.librados.rados_shutdown)(self.handle) };
    }
}

/// A string for C.
pub(crate) fn c_string(bytes: &[u8], what: &str) -> Result<CString, RadosError> {
    CString::new(bytes).map_err(|error| RadosError::new(format!("{what} has a zero byte"), error.into()))
}
