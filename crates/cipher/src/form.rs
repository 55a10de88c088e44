//! What was sealed.

/// What a seal stands for. It is the first byte of an authenticated seal's nonce and part of the associated data, so a
/// seal of one form cannot pass for another. The numbers are fixed by the format; 0 is none of them, so that a slot
/// never written holds no seal.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The sector reads as zeros; nothing is stored in its place. Sealed text: empty.
    Zero = 1,
    /// The sector's ciphertext is in its place. Sealed text: 4096 bytes.
    Plain = 2,
    /// The sector in its place is folded and carries a seal of its own. Sealed text: empty.
    FoldMark = 3,
    /// The seal that a folded sector carries in its last bytes. Sealed text: 4096 bytes less the seal.
    Folded = 4,
    /// A record of the volume itself. Sealed text: as long as the record.
    Metadata = 5,
}

impl Form {
    /// The form with this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Zero, Self::Plain, Self::FoldMark, Self::Folded, Self::Metadata]
            .into_iter()
            .find(|form| *form as u8 == byte)
    }
}
