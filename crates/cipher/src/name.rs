//! The ciphers by name.

use crate::{Form, Seal, processor};

/// How sectors are encrypted. The names are fixed: they stand in headers and scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CipherName {
    /// `aegis-256`: AEGIS-256 (RFC 10032), a 32-byte nonce and a 16-byte tag.
    Aegis256,
    /// `aegis-256x4`: AEGIS-256X4 (RFC 10032), four AEGIS-256 side by side, a 32-byte nonce and a 16-byte tag.
    Aegis256X4,
    /// `aes-256-gcm`: AES-256-GCM with a 24-byte nonce (XAES-256-GCM, C2SP) and a 16-byte tag.
    Aes256Gcm,
    /// `xchacha20-poly1305`: a 24-byte nonce and a 16-byte tag.
    XChaCha20Poly1305,
    /// `aes-256-xts-random`: AES-256-XTS with a random 16-byte IV. Hides what changed; does not authenticate.
    Aes256XtsRandom,
    /// `aes-256-xts`: AES-XTS with the sector number as IV, as in LUKS2. Deterministic, not authenticated.
    Aes256Xts,
}

/// A cipher that Sealdisk does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown cipher '{0}'; known are aegis-256, aegis-256x4, aes-256-gcm, xchacha20-poly1305, aes-256-xts-random, aes-256-xts"
)]
pub struct UnknownCipher(pub String);

impl CipherName {
    /// All of them, the strongest default first.
    pub const ALL: [Self; 6] = [
        Self::Aegis256,
        Self::Aegis256X4,
        Self::Aes256Gcm,
        Self::XChaCha20Poly1305,
        Self::Aes256XtsRandom,
        Self::Aes256Xts,
    ];

    /// The name in headers, options and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aegis256 => "aegis-256",
            Self::Aegis256X4 => "aegis-256x4",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::XChaCha20Poly1305 => "xchacha20-poly1305",
            Self::Aes256XtsRandom => "aes-256-xts-random",
            Self::Aes256Xts => "aes-256-xts",
        }
    }

    /// Bytes of a sector's seal: 0 where the cipher keeps none.
    pub fn seal_len(self) -> usize {
        match self {
            Self::Aegis256 | Self::Aegis256X4 => 32 + 16,
            Self::Aes256Gcm | Self::XChaCha20Poly1305 => 24 + 16,
            Self::Aes256XtsRandom => 16,
            Self::Aes256Xts => 0,
        }
    }

    /// What a slot under this cipher claims of its sector, **unverified** and readable without a key: [`Form::Zero`],
    /// [`Form::Plain`] or [`Form::FoldMark`]. `None`: nothing was ever sealed there, or it is nonsense.
    pub fn claimed_form(self, slot: &Seal) -> Option<Form> {
        match self {
            Self::Aes256Xts => None,
            Self::Aes256XtsRandom => crate::xts_random::claimed_form(slot),
            Self::Aegis256 | Self::Aegis256X4 | Self::Aes256Gcm | Self::XChaCha20Poly1305 => {
                let form = Form::from_byte(*slot.as_bytes().first()?)?;
                matches!(form, Form::Zero | Form::Plain | Form::FoldMark).then_some(form)
            }
        }
    }

    /// Whether a changed sector is noticed.
    pub fn is_authenticated(self) -> bool {
        !matches!(self, Self::Aes256XtsRandom | Self::Aes256Xts)
    }
}

impl std::fmt::Display for CipherName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for CipherName {
    type Err = UnknownCipher;

    fn from_str(name: &str) -> Result<Self, UnknownCipher> {
        Self::ALL.into_iter().find(|cipher| cipher.as_str() == name).ok_or_else(|| UnknownCipher(name.to_owned()))
    }
}

impl CipherName {
    /// What `format` chooses when it is not told, the fastest that authenticates: `aegis-256x4` on a CPU with AES
    /// instructions for several blocks, `aegis-256` on one with those for one block, `xchacha20-poly1305` on one without.
    pub fn default_for_this_cpu() -> Self {
        if processor::has_wide_aes() {
            Self::Aegis256X4
        } else if processor::has_aes() {
            Self::Aegis256
        } else {
            Self::XChaCha20Poly1305
        }
    }
}
