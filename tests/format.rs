//! `docs/format.md` says enough to read a volume, and to write one: a second implementation, in Python, was made from it.
//!
//! Each reads what the other writes. Beside them are test vectors, made by the second and opened by the first.
#![allow(clippy::unwrap_used)]

#[path = "format/exchange.rs"]
mod exchange;
#[path = "format/objects.rs"]
mod objects;
#[path = "format/objects_folder.rs"]
mod objects_folder;
#[path = "format/objects_tampered.rs"]
mod objects_tampered;
#[path = "format/python.rs"]
mod python;
#[path = "format/vectors.rs"]
mod vectors;
