//! The two libraries and the functions in them.
//!
//! Opened at run time, so that one program serves machines with Ceph and without. Never closed: they have threads.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Ceph's libraries are not here, or too old.
#[derive(Debug, Clone, thiserror::Error)]
#[error("volumes on Ceph need {library}: install the Debian package {package} ({reason})")]
pub struct MissingLibrary {
    library: &'static str,
    package: &'static str,
    reason: String,
}

/// A connection (`rados_t`).
pub(crate) type ClusterHandle = *mut c_void;
/// A pool in a connection (`rados_ioctx_t`).
pub(crate) type PoolHandle = *mut c_void;
/// A compound read or write (`rados_read_op_t`, `rados_write_op_t`).
pub(crate) type OperationHandle = *mut c_void;
/// What is waited for (`rados_completion_t`).
pub(crate) type CompletionHandle = *mut c_void;
/// Keys and values that were read (`rados_omap_iter_t`).
pub(crate) type KeysHandle = *mut c_void;
/// An open image (`rbd_image_t`).
pub(crate) type ImageHandle = *mut c_void;
/// How an image is to be made (`rbd_image_options_t`).
pub(crate) type OptionsHandle = *mut c_void;
/// What librbd calls when something happens to an image.
pub(crate) type UpdateCallback = unsafe extern "C" fn(*mut c_void);

/// What librbd calls during long work; not optional.
pub(crate) type ProgressCallback = unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int;

/// `rbd_image_info_t`
#[repr(C)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) object_size: u64,
    pub(crate) object_count: u64,
    pub(crate) order: c_int,
    deprecated_prefix: [c_char; 24],
    deprecated_parent_pool: i64,
    deprecated_parent_name: [c_char; 96],
}

/// `rbd_snap_info_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SnapshotInfo {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) name: *const c_char,
}

/// `rbd_linked_image_spec_t`
#[repr(C)]
pub(crate) struct LinkedImage {
    pub(crate) pool_id: i64,
    pub(crate) pool_name: *mut c_char,
    pub(crate) namespace: *mut c_char,
    pub(crate) image_id: *mut c_char,
    pub(crate) image_name: *mut c_char,
    pub(crate) trash: bool,
}

/// `rbd_snap_spec_t`
#[repr(C)]
pub(crate) struct LinkedSnapshot {
    pub(crate) id: u64,
    pub(crate) namespace_type: c_int,
    pub(crate) name: *mut c_char,
}

/// `rbd_image_watcher_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Watcher {
    pub(crate) address: *mut c_char,
    pub(crate) id: i64,
    pub(crate) cookie: u64,
}

/// A table of functions and how they are found in their library.
macro_rules! functions {
    (
        $(#[$documentation:meta])*
        $table:ident of $file:literal in $package:literal:
        $( fn $name:ident( $($argument:ident: $type:ty),* $(,)? ) $(-> $result:ty)?; )*
    ) => {
        $(#[$documentation])*
        pub(crate) struct $table {
            $( pub(crate) $name: unsafe extern "C" fn($($argument: $type),*) $(-> $result)?, )*
        }

        impl $table {
            fn load() -> Result<Self, MissingLibrary> {
                let missing = |error: libloading::Error| MissingLibrary {
                    library: $file,
                    package: $package,
                    reason: error.to_string(),
                };
                // SAFETY: Ceph's libraries have no initialisers that expect anything of whoever opens them.
                let library = unsafe { Library::open(Some($file), RTLD_NOW | RTLD_LOCAL) }.map_err(missing)?;
                let library = std::mem::ManuallyDrop::new(library);
                Ok(Self {
                    // SAFETY: the functions have these signatures in the headers named above, and C functions do not
                    // change theirs under the same name of the same version of a library.
                    $( $name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.map_err(missing)?, )*
                })
            }

            /// The library, opened when it is first asked for.
            pub(crate) fn get() -> Result<&'static Self, MissingLibrary> {
                static LOADED: OnceLock<Result<$table, MissingLibrary>> = OnceLock::new();
                LOADED.get_or_init(Self::load).as_ref().map_err(Clone::clone)
            }
        }
    };
}

functions! {
    /// What is used of librados.
    Librados of "librados.so.2" in "librados2":
    fn rados_create2(cluster: *mut ClusterHandle, name: *const c_char, user: *const c_char, flags: u64) -> c_int;
    fn rados_conf_read_file(cluster: ClusterHandle, path: *const c_char) -> c_int;
    fn rados_conf_parse_env(cluster: ClusterHandle, variable: *const c_char) -> c_int;
    fn rados_conf_set(cluster: ClusterHandle, option: *const c_char, value: *const c_char) -> c_int;
    fn rados_connect(cluster: ClusterHandle) -> c_int;
    fn rados_shutdown(cluster: ClusterHandle);
    fn rados_cluster_fsid(cluster: ClusterHandle, text: *mut c_char, len: usize) -> c_int;
    fn rados_getaddrs(cluster: ClusterHandle, addresses: *mut *mut c_char) -> c_int;
    fn rados_buffer_free(buffer: *mut c_char);
    fn rados_ioctx_create(cluster: ClusterHandle, pool: *const c_char, handle: *mut PoolHandle) -> c_int;
    fn rados_ioctx_create2(cluster: ClusterHandle, pool: i64, handle: *mut PoolHandle) -> c_int;
    fn rados_ioctx_destroy(pool: PoolHandle);
    fn rados_ioctx_get_id(pool: PoolHandle) -> i64;
    fn rados_ioctx_set_namespace(pool: PoolHandle, namespace: *const c_char);
    fn rados_set_pool_full_try(pool: PoolHandle);
    fn rados_ioctx_snap_set_read(pool: PoolHandle, snapshot: u64);
    fn rados_ioctx_selfmanaged_snap_set_write_ctx(
        pool: PoolHandle, sequence: u64, snapshots: *mut u64, count: c_int,
    ) -> c_int;
    fn rados_exec(
        pool: PoolHandle, object: *const c_char, class: *const c_char, method: *const c_char,
        input: *const c_char, input_len: usize, output: *mut c_char, output_len: usize,
    ) -> c_int;

    fn rados_list_lockers(
        pool: PoolHandle, object: *const c_char, lock: *const c_char, exclusive: *mut c_int,
        tag: *mut c_char, tag_len: *mut usize, clients: *mut c_char, clients_len: *mut usize,
        cookies: *mut c_char, cookies_len: *mut usize, addresses: *mut c_char, addresses_len: *mut usize,
    ) -> isize;

    fn rados_lock_exclusive(
        pool: PoolHandle, object: *const c_char, lock: *const c_char, cookie: *const c_char,
        description: *const c_char, duration: *mut libc::timeval, flags: u8,
    ) -> c_int;
    fn rados_unlock(
        pool: PoolHandle, object: *const c_char, lock: *const c_char, cookie: *const c_char,
    ) -> c_int;

    fn rados_aio_create_completion2(
        argument: *mut c_void, callback: Option<UpdateCallback>, completion: *mut CompletionHandle,
    ) -> c_int;
    fn rados_aio_wait_for_complete(completion: CompletionHandle) -> c_int;
    fn rados_aio_get_return_value(completion: CompletionHandle) -> c_int;
    fn rados_aio_get_version(completion: CompletionHandle) -> u64;
    fn rados_aio_release(completion: CompletionHandle);

    fn rados_create_read_op() -> OperationHandle;
    fn rados_release_read_op(operation: OperationHandle);
    fn rados_read_op_read(
        operation: OperationHandle, offset: u64, len: usize, buffer: *mut c_char, read: *mut usize, result: *mut c_int,
    );
    fn rados_read_op_stat(operation: OperationHandle, size: *mut u64, modified: *mut libc::time_t, result: *mut c_int);
    fn rados_read_op_omap_get_vals2(
        operation: OperationHandle, after: *const c_char, prefix: *const c_char, most: u64,
        found: *mut KeysHandle, more: *mut u8, result: *mut c_int,
    );
    fn rados_read_op_omap_get_vals_by_keys2(
        operation: OperationHandle, keys: *const *const c_char, count: usize, key_lens: *const usize,
        found: *mut KeysHandle, result: *mut c_int,
    );
    fn rados_aio_read_op_operate(
        operation: OperationHandle, pool: PoolHandle, completion: CompletionHandle, object: *const c_char, flags: c_int,
    ) -> c_int;
    fn rados_omap_get_next2(
        keys: KeysHandle, key: *mut *mut c_char, value: *mut *mut c_char, key_len: *mut usize, value_len: *mut usize,
    ) -> c_int;
    fn rados_omap_get_end(keys: KeysHandle);

    fn rados_create_write_op() -> OperationHandle;
    fn rados_release_write_op(operation: OperationHandle);
    fn rados_write_op_create(operation: OperationHandle, exclusive: c_int, category: *const c_char);
    fn rados_write_op_assert_exists(operation: OperationHandle);
    fn rados_write_op_assert_version(operation: OperationHandle, version: u64);
    fn rados_write_op_cmpext(
        operation: OperationHandle, bytes: *const c_char, len: usize, offset: u64, result: *mut c_int,
    );
    fn rados_write_op_write(operation: OperationHandle, buffer: *const c_char, len: usize, offset: u64);
    fn rados_write_op_zero(operation: OperationHandle, offset: u64, len: u64);
    fn rados_write_op_truncate(operation: OperationHandle, size: u64);
    fn rados_write_op_remove(operation: OperationHandle);
    fn rados_write_op_omap_set2(
        operation: OperationHandle, keys: *const *const c_char, values: *const *const c_char,
        key_lens: *const usize, value_lens: *const usize, count: usize,
    );
    fn rados_write_op_omap_rm_keys2(
        operation: OperationHandle, keys: *const *const c_char, key_lens: *const usize, count: usize,
    );
    fn rados_aio_write_op_operate(
        operation: OperationHandle, pool: PoolHandle, completion: CompletionHandle, object: *const c_char,
        modified: *mut libc::time_t, flags: c_int,
    ) -> c_int;
}

functions! {
    /// What is used of librbd.
    Librbd of "librbd.so.1" in "librbd1":
    fn rbd_image_options_create(options: *mut OptionsHandle);
    fn rbd_image_options_destroy(options: OptionsHandle);
    fn rbd_image_options_set_uint64(options: OptionsHandle, option: c_int, value: u64) -> c_int;
    fn rbd_image_options_set_string(options: OptionsHandle, option: c_int, value: *const c_char) -> c_int;
    fn rbd_create4(pool: PoolHandle, name: *const c_char, size: u64, options: OptionsHandle) -> c_int;
    fn rbd_remove(pool: PoolHandle, name: *const c_char) -> c_int;
    fn rbd_open(pool: PoolHandle, name: *const c_char, image: *mut ImageHandle, snapshot: *const c_char) -> c_int;
    fn rbd_open_read_only(
        pool: PoolHandle, name: *const c_char, image: *mut ImageHandle, snapshot: *const c_char,
    ) -> c_int;
    fn rbd_open_by_id_read_only(
        pool: PoolHandle, id: *const c_char, image: *mut ImageHandle, snapshot: *const c_char,
    ) -> c_int;
    fn rbd_close(image: ImageHandle) -> c_int;
    fn rbd_stat(image: ImageHandle, info: *mut ImageInfo, len: usize) -> c_int;
    fn rbd_get_features(image: ImageHandle, features: *mut u64) -> c_int;
    fn rbd_get_id(image: ImageHandle, id: *mut c_char, len: usize) -> c_int;
    fn rbd_get_block_name_prefix(image: ImageHandle, prefix: *mut c_char, len: usize) -> c_int;
    fn rbd_get_data_pool_id(image: ImageHandle) -> i64;
    fn rbd_get_stripe_count(image: ImageHandle, count: *mut u64) -> c_int;
    fn rbd_resize2(
        image: ImageHandle, size: u64, allow_shrink: bool,
        progress: ProgressCallback, argument: *mut c_void,
    ) -> c_int;
    fn rbd_snap_create(image: ImageHandle, name: *const c_char) -> c_int;
    fn rbd_snap_remove(image: ImageHandle, name: *const c_char) -> c_int;
    fn rbd_snap_rollback(image: ImageHandle, name: *const c_char) -> c_int;
    fn rbd_snap_rollback_with_progress(
        image: ImageHandle, name: *const c_char, progress: ProgressCallback, argument: *mut c_void,
    ) -> c_int;
    fn rbd_snap_list(image: ImageHandle, snapshots: *mut SnapshotInfo, count: *mut c_int) -> c_int;
    fn rbd_snap_list_end(snapshots: *mut SnapshotInfo);
    fn rbd_snap_set_by_id(image: ImageHandle, snapshot: u64) -> c_int;
    fn rbd_get_parent(image: ImageHandle, parent: *mut LinkedImage, snapshot: *mut LinkedSnapshot) -> c_int;
    fn rbd_linked_image_spec_cleanup(image: *mut LinkedImage);
    fn rbd_snap_spec_cleanup(snapshot: *mut LinkedSnapshot);
    fn rbd_get_overlap(image: ImageHandle, overlap: *mut u64) -> c_int;
    fn rbd_lock_acquire(image: ImageHandle, mode: c_int) -> c_int;
    fn rbd_lock_release(image: ImageHandle) -> c_int;
    fn rbd_lock_break(image: ImageHandle, mode: c_int, owner: *const c_char) -> c_int;
    fn rbd_watchers_list(image: ImageHandle, watchers: *mut Watcher, count: *mut usize) -> c_int;
    fn rbd_watchers_list_cleanup(watchers: *mut Watcher, count: usize);
    fn rbd_is_exclusive_lock_owner(image: ImageHandle, owner: *mut c_int) -> c_int;
    fn rbd_update_watch(
        image: ImageHandle, handle: *mut u64, callback: UpdateCallback, argument: *mut c_void,
    ) -> c_int;
    fn rbd_update_unwatch(image: ImageHandle, handle: u64) -> c_int;
    fn rbd_quiesce_watch(
        image: ImageHandle, quiesce: UpdateCallback, unquiesce: UpdateCallback, argument: *mut c_void, handle: *mut u64,
    ) -> c_int;
    fn rbd_quiesce_complete(image: ImageHandle, handle: u64, result: c_int);
    fn rbd_quiesce_unwatch(image: ImageHandle, handle: u64) -> c_int;
}

// As a C compiler lays it out: rbd_stat is told the length.
const _: () = assert!(size_of::<ImageInfo>() == 160);
