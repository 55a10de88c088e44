//! What the tests of the whole share: a disk in memory with a model beside it, and repeatable random numbers.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

mod model;
pub mod programs;
mod random;
mod volumes;

pub use model::{Contents, Model, Op};
pub use random::Random;
pub use volumes::{Fixture, key, open, payload, read, read_only, write};
