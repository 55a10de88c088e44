//! A connection to a cluster.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use crate::RadosError;
use crate::error::check;
use crate::library::{ClusterHandle, Librados};
use crate::waits::Waits;

/// Who connects to which cluster, as people who use Ceph say it. What is not given is looked for where `ceph` looks:
/// `CEPH_CONF`, `CEPH_ARGS`, `/etc/ceph/ceph.conf`, `client.admin`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// What is being waited for.
    pub(crate) waits: Waits,
}

// SAFETY: librados serves one connection to any number of threads.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Connects.
    pub fn connect(credentials: &Credentials) -> Result<Arc<Self>, RadosError> {
        let librados = Librados::get()?;
        let id = credentials.id.clone().or_else(|| id_in(&std::env::var("CEPH_ARGS").ok()?));
        let user = format!("client.{}", id.as_deref().unwrap_or("admin"));
        let user = c_string(user.as_bytes(), "the user's name")?;
        let mut handle = ptr::null_mut();
        // SAFETY: both strings outlive the call, and `handle` is written on success.
        let created = unsafe { (librados.rados_create2)(&mut handle, c"ceph".as_ptr(), user.as_ptr(), 0) };
        check(created, || "preparing a connection to Ceph".to_owned())?;
        let cluster = Self { handle, librados, waits: Waits::default() };
        cluster.configure(credentials)?;
        let wait = cluster.waits.begin();
        // SAFETY: the handle was created above and is configured.
        let connected = unsafe { (librados.rados_connect)(cluster.handle) };
        check(connected, || format!("connecting to Ceph as {}", user.to_string_lossy()))?;
        drop(wait);
        Ok(Arc::new(cluster))
    }

    /// Since when the oldest operation waits for the cluster that has not ended yet.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.waits.oldest()
    }

    /// The cluster's identity, a UUID.
    pub fn fsid(&self) -> Result<String, RadosError> {
        // A UUID's 36 characters and the terminating zero.
        let mut text = [0u8; 37];
        // SAFETY: the handle is connected, and the length is the buffer's.
        let result = unsafe { (self.librados.rados_cluster_fsid)(self.handle, text.as_mut_ptr().cast(), text.len()) };
        check(result, || "asking which cluster this is".to_owned())?;
        Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned())
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

/// The user that `CEPH_ARGS` names. librados reads everything else from there by itself.
fn id_in(arguments: &str) -> Option<String> {
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        let is_name = matches!(option, "--name" | "-n");
        if !is_name && !matches!(option, "--id" | "--user") {
            continue;
        }
        let value = value.or_else(|| words.next())?;
        return Some(if is_name { value.strip_prefix("client.")? } else { value }.to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::id_in;

    #[test]
    fn the_user_in_cephs_own_variable_is_found() {
        for (arguments, id) in [
            ("--id guest", Some("guest")),
            ("--keyring /k --id=guest -m host", Some("guest")),
            ("-n client.guest", Some("guest")),
            ("--name=client.guest", Some("guest")),
            ("--user guest", Some("guest")),
            ("--name mon.", None),
            ("--id", None),
            ("--keyring /k", None),
            ("", None),
        ] {
            assert_eq!(id_in(arguments).as_deref(), id, "{arguments}");
        }
    }
}
