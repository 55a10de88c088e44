//! Key slots as they are listed.

/// One key slot of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    /// 0 to 31.
    pub number: u32,
    /// Whether it holds this volume's key. LUKS2 also keeps keys that belong to nothing.
    pub bound: bool,
    /// When it is tried.
    pub priority: Priority,
    /// How its passphrase is stretched.
    pub pbkdf: SlotPbkdf,
    /// How the volume key is encrypted in it.
    pub encryption: String,
    /// Where its key material lies, in bytes of the device.
    pub(crate) area: std::ops::Range<u64>,
}

/// When a key slot is tried for a passphrase that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Only when it is asked for by number.
    Ignore,
    /// After the preferred ones.
    Normal,
    /// First.
    Prefer,
}

/// A key slot's password-based key derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotPbkdf {
    /// PBKDF2 (RFC 8018).
    Pbkdf2 {
        /// The hash, in libcryptsetup's spelling.
        hash: String,
        /// Iterations.
        iterations: u32,
    },
    /// Argon2 (RFC 9106).
    Argon2 {
        /// `argon2i` or `argon2id`.
        variant: String,
        /// Passes over the memory.
        passes: u32,
        /// Memory in KiB.
        memory_kib: u32,
        /// Threads.
        threads: u32,
    },
}
