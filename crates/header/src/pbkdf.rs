//! What it costs to try a passphrase.

use libcryptsetup_rs::CryptPbkdfType;
use libcryptsetup_rs::consts::flags::CryptPbkdf;
use libcryptsetup_rs::consts::vals::CryptKdf;

/// How a new key slot stretches its passphrase: Argon2id (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pbkdf {
    /// What cryptsetup does by default: as many passes as this machine makes in 2 seconds, with up to 1 GiB of memory
    /// and 4 threads, less where the machine has less.
    #[default]
    Calibrated,
    /// This cost and no other, without a benchmark. For tests, and for hosts that a header must still open on.
    Fixed {
        /// Passes over the memory, 4 or more.
        passes: u32,
        /// Memory in KiB, 32 or more.
        memory_kib: u32,
        /// Threads, 1 to 4.
        threads: u32,
    },
}

impl Pbkdf {
    /// The least that LUKS2 allows. Protects nothing but a passphrase that cannot be guessed anyway; makes tests fast.
    pub const CHEAPEST: Self = Self::Fixed { passes: 4, memory_kib: 32, threads: 1 };

    /// In libcryptsetup's terms; `None` for its own default.
    pub(crate) fn parameters(self) -> Option<CryptPbkdfType> {
        match self {
            Self::Calibrated => None,
            Self::Fixed { passes, memory_kib, threads } => Some(CryptPbkdfType {
                type_: CryptKdf::Argon2Id,
                hash: Some("sha256".to_owned()),
                time_ms: 0,
                iterations: passes,
                max_memory_kb: memory_kib,
                parallel_threads: threads,
                flags: CryptPbkdf::NO_BENCHMARK,
            }),
        }
    }
}
