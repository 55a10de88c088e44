//! How a sector is encrypted and authenticated. No I/O, no layout.

mod name;
mod volume_key;

pub use name::{CipherName, UnknownCipher};
pub use volume_key::{BadKeyLength, VolumeKey};
