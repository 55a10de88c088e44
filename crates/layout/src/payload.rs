//! What the header says of the bytes behind it.

use sealdisk_cipher::CipherName;
use sealdisk_units::{Lineage, OBJECT_SIZE};

/// Where the seals of an object's sectors lie. The names are fixed: they stand in headers and scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayoutName {
    /// `packed`: seals in pages at the end of each 4 MiB object, inside it.
    Packed,
    /// `object-end`: seals in pages behind the 4 MiB of sectors in each 8 MiB object.
    ObjectEnd,
    /// `omap`: seals in the object's key-value map.
    Omap,
    /// `unaligned`: each sector followed by its seal, 4 MiB of sectors in each 8 MiB object.
    Unaligned,
    /// `length-preserving`: no seals.
    LengthPreserving,
}

/// A layout that Sealdisk does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown layout '{0}'; known are packed, object-end, omap, unaligned, length-preserving")]
pub struct UnknownLayout(pub String);

impl LayoutName {
    /// All of them, the default first.
    pub const ALL: [Self; 5] = [Self::Packed, Self::ObjectEnd, Self::Omap, Self::Unaligned, Self::LengthPreserving];

    /// Whether it asks more of a store than to keep bytes: objects that change as a whole.
    pub fn needs_objects(self) -> bool {
        matches!(self, Self::ObjectEnd | Self::Omap | Self::Unaligned)
    }

    /// Bytes of an object of a store that holds such a volume without a journal.
    pub fn object_size(self) -> u64 {
        match self {
            Self::Packed | Self::Omap | Self::LengthPreserving => OBJECT_SIZE,
            // Data alone are 4 MiB.
            Self::ObjectEnd | Self::Unaligned => 2 * OBJECT_SIZE,
        }
    }

    /// The name in headers, options and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::ObjectEnd => "object-end",
            Self::Omap => "omap",
            Self::Unaligned => "unaligned",
            Self::LengthPreserving => "length-preserving",
        }
    }
}

impl std::fmt::Display for LayoutName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for LayoutName {
    type Err = UnknownLayout;

    fn from_str(name: &str) -> Result<Self, UnknownLayout> {
        Self::ALL.into_iter().find(|layout| layout.as_str() == name).ok_or_else(|| UnknownLayout(name.to_owned()))
    }
}

/// What lies behind the header. An ordinary LUKS2 volume or a sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// Cipher `aes-256-xts`, layout `length-preserving`: a LUKS2 volume that any LUKS2 implementation opens.
    Plain(PlainPayload),
    /// Everything else.
    Sealed(SealedPayload),
}

impl Payload {
    /// Bytes of an object of an image that is made for it.
    pub fn object_size(&self) -> u64 {
        match self {
            Self::Plain(_) => OBJECT_SIZE,
            Self::Sealed(sealed) => sealed.layout.object_size(),
        }
    }
}

/// An ordinary LUKS2 data segment with cipher `aes-xts-plain64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainPayload {
    /// First byte of the data in the store.
    pub offset: u64,
    /// Bytes of data; `None`: up to the end of the store.
    pub size: Option<u64>,
    /// Bytes per encryption sector: 512, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// Added to the sector's IV, which counts 512-byte units from the start of the data (dm-crypt's `iv_offset`).
    pub iv_tweak: u64,
}

/// A sealed volume. All of it is bound into the key derivation: an edited header opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedPayload {
    /// How sectors are sealed.
    pub cipher: CipherName,
    /// Where seals lie.
    pub layout: LayoutName,
    /// Whether sectors that can give up the room carry their own seal.
    pub fold: bool,
    /// Which volumes this one is a copy of.
    pub lineage: Lineage,
    /// First byte of the payload in the store, a multiple of 4 MiB.
    pub offset: u64,
}

/// Cipher, layout and folding that make no sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCombination {
    /// A cipher with seals on a layout without a place for them.
    #[error(
        "cipher {0} keeps a seal of {len} bytes for every sector and layout length-preserving has no place for it; \
         use --layout packed, or --cipher aes-256-xts",
        len = .0.seal_len()
    )]
    NoPlaceForSeals(CipherName),
    /// A layout with a place for seals and a cipher without.
    #[error(
        "cipher aes-256-xts has no seals for layout {0} to keep; use --layout length-preserving, or --cipher aes-256-xts-random"
    )]
    NothingToSeal(LayoutName),
    /// Folding without seals.
    #[error("--fold puts a sector's seal into the sector, and cipher aes-256-xts has no seals")]
    NothingToFold,
}

/// Whether cipher, layout and folding make sense together.
pub fn check_combination(cipher: CipherName, layout: LayoutName, fold: bool) -> Result<(), BadCombination> {
    match (cipher.seal_len() > 0, layout) {
        (true, LayoutName::LengthPreserving) => Err(BadCombination::NoPlaceForSeals(cipher)),
        (false, _) if fold => Err(BadCombination::NothingToFold),
        (true, _) | (false, LayoutName::LengthPreserving) => Ok(()),
        (false, layout) => Err(BadCombination::NothingToSeal(layout)),
    }
}
