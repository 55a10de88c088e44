//! A volume: the only place where cipher, layout and store meet.

mod buffers;
mod error;
mod journal;
mod keeper;
mod kind;
mod metadata;
mod objects;
mod open_error;
mod plain;
mod read_queue;
mod request;
mod sealed;
mod standing;
mod volume;

#[cfg(fuzzing)]
pub use journal::fuzzing::parse_journal;

pub use error::{VolumeError, VolumeErrorKind};
pub use open_error::{OpenError, OpenErrorKind};
pub use read_queue::{FinishedRead, ReadQueue};
pub use request::{Allocation, Data, Memory, ReadRequest, Space, WriteRequest};
pub use sealed::SectorForms;
pub use volume::{CheckReport, Inspection, OpenOptions, State, Status, Volume};
