//! From a header and the user to the volume key.

use sealdisk_cipher::VolumeKey;
use sealdisk_header::{Header, HeaderErrorKind};

use crate::arguments::KeySource;
use crate::failure::Failure;
use crate::passphrase::{self, Origin, Purpose};

/// How often somebody may mistype. As often as with cryptsetup.
const TRIES: u32 = 3;

/// Asks for the passphrase, again if it is wrong and was typed, and opens the volume key with it.
pub fn unlock(header: &Header, source: &KeySource) -> Result<VolumeKey, Failure> {
    let key_file = source.key_file.as_deref();
    let prompt = format!("Passphrase for {}", header.device().display());
    let tries = if passphrase::origin(key_file) == Origin::Terminal { TRIES } else { 1 };
    for left in (0..tries).rev() {
        let passphrase = passphrase::read(key_file, &prompt, Purpose::Open)?;
        match header.unlock(&passphrase, None) {
            Err(error) if *error.kind() == HeaderErrorKind::WrongPassphrase && left > 0 => {
                eprintln!("No key slot opens with this passphrase.");
            }
            other => return Ok(other?),
        }
    }
    unreachable!("the last try returns")
}
