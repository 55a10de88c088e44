//! From a header and the user to the volume key.

use sealdisk_cipher::VolumeKey;
use sealdisk_header::{Header, HeaderErrorKind};

use crate::arguments::KeySource;
use crate::failure::Failure;
use crate::header_file::HeaderFile;
use crate::passphrase::{self, Origin, Purpose};

/// How often somebody may mistype. As often as with cryptsetup.
const TRIES: u32 = 3;

/// Asks for the passphrase, again if it is wrong and was typed, and opens the volume key with it.
pub fn unlock(file: &HeaderFile, header: &Header, source: &KeySource) -> Result<VolumeKey, Failure> {
    let key_file = source.key_file.as_deref();
    let prompt = format!("Passphrase for {}", file.shown());
    let tries = if passphrase::origin(key_file) == Origin::Terminal { TRIES } else { 1 };
    for left in (0..tries).rev() {
        let passphrase = passphrase::read(key_file, &prompt, Purpose::Open)?;
        match header.unlock(&passphrase, None) {
            Err(error) if *error.kind() == HeaderErrorKind::WrongPassphrase && left > 0 => {
                eprintln!("No key slot opens with this passphrase.");
            }
            other => return other.map_err(|error| file.failure(error)),
        }
    }
    unreachable!("the last try returns")
}
