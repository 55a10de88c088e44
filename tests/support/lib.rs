//! What the tests of the whole share: a disk in memory with a model beside it, repeatable random numbers, and servers.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod ceph;
pub mod images;
mod model;
pub mod programs;
mod random;
pub mod raw_client;
mod scratch;
mod server;
pub mod store_contract;
mod volumes;

pub use model::{Contents, Model, Op};
pub use random::Random;
pub use scratch::Scratch;
pub use server::Server;
pub use volumes::{Fixture, authenticated_ciphers, key, open, payload, read, read_only, write, write_giving};
