//! Where a sector and its seal lie. No I/O and no keys.

mod payload;

pub use payload::{BadCombination, LayoutName, Payload, PlainPayload, SealedPayload, UnknownLayout, check_combination};
