//! The one secret of a volume.

use zeroize::Zeroizing;

/// 256 or 512 random bits from which everything else is derived. Wiped when dropped; cannot be printed, copied or
/// compared by accident.
pub struct VolumeKey(Zeroizing<Box<[u8]>>);

/// A key that is neither 32 nor 64 bytes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a volume key has 32 or 64 bytes, not {0}")]
pub struct BadKeyLength(pub usize);

impl VolumeKey {
    /// Takes over `bytes`, which must be 32 or 64.
    pub fn new(bytes: Zeroizing<Box<[u8]>>) -> Result<Self, BadKeyLength> {
        match bytes.len() {
            32 | 64 => Ok(Self(bytes)),
            len => Err(BadKeyLength(len)),
        }
    }

    /// 512 fresh bits from the operating system.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new(vec![0; 64].into_boxed_slice());
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The secret itself, for key derivation and for wrapping in a key slot.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeKey({} bits)", self.0.len() * 8)
    }
}
