//! What opens a key slot.

use zeroize::Zeroizing;

/// A passphrase, or the contents of a key file, byte for byte. Wiped when dropped; cannot be printed or copied.
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    /// Takes over `bytes`. Any bytes and any length are a passphrase, as for `cryptsetup --key-file`.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The secret itself.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Zeroizing<Vec<u8>>> for Passphrase {
    fn from(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }
}
