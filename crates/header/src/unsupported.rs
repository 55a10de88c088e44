//! Headers that are not for us, and what to do about them.

use sealdisk_layout::BadCombination;

/// Why a LUKS2 header is refused although libcryptsetup accepts it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The JSON lacks something that LUKS2 demands, or has it in another form.
    #[error("its metadata is malformed ({0}); restore the header from a backup")]
    Malformed(String),
    /// More than one segment, or a segment with flags: data is being moved or re-encrypted.
    #[error("it has {0} data segments and only one is supported; finish what `cryptsetup reencrypt` began")]
    Segments(usize),
    /// A re-encryption has begun and not ended.
    #[error("a re-encryption is under way; finish it with `cryptsetup reencrypt --resume-only`")]
    Reencryption,
    /// A mandatory requirement that a reader must know.
    #[error("it requires '{0}', which this version does not know; open it with the program that set the requirement")]
    Requirement(String),
    /// The data segment is of a type other than `crypt`.
    #[error("its data segment is of type '{0}', not crypt; use cryptsetup for it")]
    SegmentType(String),
    /// The data is authenticated by dm-integrity.
    #[error("it uses dm-integrity ({0}); use cryptsetup for it")]
    DmIntegrity(String),
    /// A data cipher other than AES-XTS.
    #[error("its cipher is '{0}', and of plain LUKS2 only aes-xts-plain64 is supported; use cryptsetup for it")]
    Cipher(String),
    /// A volume key that no supported cipher takes.
    #[error("its volume key has {0} bits, not 256 or 512; use cryptsetup for it")]
    KeyBits(u64),
    /// Sector size that dm-crypt does not have either.
    #[error("its encryption sectors have {0} bytes, not 512, 1024, 2048 or 4096; restore the header from a backup")]
    SectorSize(u64),
    /// The data begins inside the header: the header of a volume whose data lies elsewhere.
    #[error(
        "its data begins at byte {offset}, before the header ends at {header_end}: a detached header; use cryptsetup for it"
    )]
    Detached {
        /// First byte of data.
        offset: u64,
        /// First byte behind the key slots.
        header_end: u64,
    },
    /// A sealed segment of a format that is newer than this program.
    #[error("it is sealed in format {0}, and this version knows format 1; use a newer sealdisk")]
    Format(u64),
    /// A sealed segment that names something unknown.
    #[error("its sealed segment is not one of ours: {0}; use a newer sealdisk, or restore the header from a backup")]
    Unknown(String),
    /// A sealed segment with a member that is not as it was written.
    #[error("its sealed segment was edited: '{0}' is not as sealdisk writes it; restore the header from a backup")]
    Edited(String),
    /// A sealed segment that is well made, but not the one that the volume key's digest was made for.
    #[error("its sealed segment was edited: the volume key vouches for another one; restore the header from a backup")]
    NotVouchedFor,
    /// An ordinary segment with the digest of a sealed one.
    #[error("it is a sealed volume's header, edited to look like an ordinary one; restore the header from a backup")]
    Disguised,
    /// A sealed segment whose cipher and layout do not go together.
    #[error("its sealed segment makes no sense: {0}; restore the header from a backup")]
    Combination(#[from] BadCombination),
    /// A key slot that neither LUKS2 nor Sealdisk describes.
    #[error("key slot {slot} is of type '{kind}', which this version does not know; use the program that made it")]
    KeySlot {
        /// Its number.
        slot: u32,
        /// Its type.
        kind: String,
    },
}
