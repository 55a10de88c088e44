//! What a sector's seal is bound to besides its text.

use sealdisk_units::{Lba, Lineage};

use crate::Form;

/// Tells this layout from every other use of a key, and from later layouts.
const DOMAIN: &[u8; 18] = b"sealdisk sector 1\0";

/// Bytes of associated data.
const LEN: usize = 47;

/// The place and time of a sector: which volume, which sector of it, which key epoch, which form. Authenticated with the
/// text, never stored. Little-endian, no padding:
///
/// | bytes | field | without it |
/// |---|---|---|
/// | 0..18 | `"sealdisk sector 1\0"` | a seal of another use of the key would pass |
/// | 18..34 | lineage | a sector of another volume with the same key would pass |
/// | 34..42 | sector number, u64 | a sector moved within the volume would pass |
/// | 42..46 | key epoch, u32 | a sector from before a change of key would pass, were the epochs' keys the same |
/// | 46 | form | an empty text sealed as "folded" would pass as "zeros" |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssociatedData([u8; LEN]);

impl AssociatedData {
    /// For one sector and form.
    pub fn new(lineage: Lineage, lba: Lba, epoch: u32, form: Form) -> Self {
        let mut bytes = [0; LEN];
        bytes[..18].copy_from_slice(DOMAIN);
        bytes[18..34].copy_from_slice(&lineage.0);
        bytes[34..42].copy_from_slice(&lba.0.to_le_bytes());
        bytes[42..46].copy_from_slice(&epoch.to_le_bytes());
        bytes[46] = form as u8;
        Self(bytes)
    }

    /// The bytes as the cipher authenticates them.
    pub fn as_bytes(&self) -> &[u8; LEN] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_documented_one() {
        let data = AssociatedData::new(Lineage([0x11; 16]), Lba(0x0102_0304_0506_0708), 0xa0b0_c0d0, Form::Folded);
        let expected =
            [&b"sealdisk sector 1\0"[..], &[0x11; 16], &[8, 7, 6, 5, 4, 3, 2, 1], &[0xd0, 0xc0, 0xb0, 0xa0, 4]]
                .concat();
        assert_eq!(&data.as_bytes()[..], expected);
    }
}
