//! What a sector's slot holds.

/// The longest seal of any cipher: AEGIS-256 with a 32-byte nonce and a 16-byte tag.
pub const MAX_SEAL_LEN: usize = 48;

/// A seal as it stands in its slot: nonce, then tag; for `aes-256-xts-random` the 16-byte IV. Public data: it is stored
/// in the clear, and says nothing by itself until a sealer has verified it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    bytes: [u8; MAX_SEAL_LEN],
    len: u8,
}

/// The text is not what was sealed: it, its seal, or the place where they were found is another one. There is nothing
/// more to say, and nothing of the text is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not authentic: changed, misplaced or never sealed")]
pub struct NotAuthentic;

/// More than [`MAX_SEAL_LEN`] bytes are no seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a seal has at most {MAX_SEAL_LEN} bytes, not {0}")]
pub struct SealTooLong(pub usize);

impl Seal {
    /// The seal whose slot holds these bytes; [`MAX_SEAL_LEN`] at most.
    ///
    /// # Panics
    /// If there are more. Use `Seal::try_from` where the length is not the program's own.
    pub fn from_slice(slot: &[u8]) -> Self {
        Self::try_from(slot).expect("the caller's slots are no longer than the longest seal")
    }

    /// `nonce` followed by `tag`.
    pub(crate) fn of_parts(nonce: &[u8], tag: &[u8]) -> Self {
        let mut bytes = [0; MAX_SEAL_LEN];
        let len = nonce.len() + tag.len();
        bytes[..nonce.len()].copy_from_slice(nonce);
        bytes[nonce.len()..len].copy_from_slice(tag);
        Self { bytes, len: len as u8 }
    }

    /// The bytes of the slot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl TryFrom<&[u8]> for Seal {
    type Error = SealTooLong;

    fn try_from(slot: &[u8]) -> Result<Self, SealTooLong> {
        if slot.len() > MAX_SEAL_LEN { Err(SealTooLong(slot.len())) } else { Ok(Self::of_parts(slot, &[])) }
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_its_slot() {
        for len in 0..=MAX_SEAL_LEN {
            let slot = vec![0xa5; len];
            assert_eq!(Seal::from_slice(&slot).as_bytes(), slot);
        }
        assert_eq!(Seal::try_from(&[0; MAX_SEAL_LEN + 1][..]), Err(SealTooLong(MAX_SEAL_LEN + 1)));
    }
}
