//! The write-ahead log of stores that cannot write data and seals as one: what makes them change together.

pub(crate) mod frame;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod scan;
