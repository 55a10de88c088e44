//! How a disk is offered to clients: NBD, and FUSE (one file, which a loop device turns into a disk).
//!
//! [`Disk`] is what an export offers and [`Export`] is what a new export implements. Errno exists only in this crate.

mod disk;
mod errno;
mod export;
mod helper;
mod io_flusher;
mod loop_device;

pub mod fuse;
pub mod nbd;

pub use disk::{Disk, ReadQueue, is_short};
pub use export::{Export, ExportError};
pub use helper::{Helper, run_helper};
pub use io_flusher::become_io_flusher;
pub use loop_device::{LoopDevice, LoopOptions};
