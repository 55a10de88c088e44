//! Ceph's client libraries, opened when they are first needed: a safe face on the parts of librados and librbd that a
//! volume needs. Knows nothing of sectors, seals or keys.
//!
//! ```text
//! library     librados.so.2 and librbd.so.1, found at run time; the functions in them
//! cluster     a connection: credentials, its address, which is what a lock is broken by
//! pool        objects: compound reads and writes, many in flight; snapshot contexts
//! image       RBD: names of objects, features, the exclusive lock, snapshots, parents
//! rbd_store   an image as a store for volumes
//! ```
//!
//! One [`Cluster`] serves both: whoever breaks the exclusive lock of an [`Image`] shuts out the address of its connection,
//! and with it every write to a [`Pool`] of the same one. A second connection would not be fenced.
//!
//! Source: `rados/librados.h` and `rbd/librbd.h` of Ceph 16.2 ("Pacific"); later versions keep these functions.

mod cluster;
mod error;
mod image;
mod library;
mod pool;
mod rbd_store;
mod waits;

pub use cluster::{Cluster, Credentials};
pub use error::RadosError;
pub use image::{Features, Image, ImageEvent, ImageSnapshot, ObjectChange, ObjectNames, Parent, Watch};
pub use library::MissingLibrary;
pub use pool::{ObjectRead, ObjectWrite, Pool, SnapshotContext};
pub use rbd_store::{ImageError, ImageName, RbdStore};
