//! A volume: the only place where cipher, layout and store meet.

mod error;
mod request;

pub use error::{VolumeError, VolumeErrorKind};
pub use request::{Allocation, ReadRequest, Space, WriteRequest};
