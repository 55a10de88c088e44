//! Stores on clones: librbd's own view of an image and of all its snapshots is the judge.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

mod attached;
mod paused;
mod random;
mod sealed;
mod sharing;
