//! What it costs to try a passphrase.

use std::os::raw::{c_int, c_void};

use libcryptsetup_rs::consts::flags::CryptPbkdf;
use libcryptsetup_rs::consts::vals::{CryptKdf, LuksType};
use libcryptsetup_rs::{CryptPbkdfType, CryptPbkdfTypeRef, CryptSettingsHandle, LibcryptErr};
use libcryptsetup_rs_sys as sys;

use crate::luks1;
use crate::session::Session;

/// How a new key slot stretches its passphrase: Argon2id (RFC 9106).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pbkdf {
    /// About as costly as this machine computes in a time, with up to 1 GiB of memory and 4 threads, less where the
    /// machine has less.
    Calibrated {
        /// The time in milliseconds, 1 or more.
        time_ms: u32,
    },
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

/// The fewest passes that LUKS2 allows.
const LEAST_PASSES: u32 = 4;
/// However slow the machine, calibration goes no lower. cryptsetup's limit, and RFC 9106's second recommendation.
const LEAST_CALIBRATED_KIB: u32 = 64 << 10;
/// Memory of the trial that calibration begins with: too much for a processor's cache, and done in a moment.
const TRIAL_KIB: u32 = 32 << 10;
/// Bytes that Argon2 is to yield: the key of a key slot.
const SLOT_KEY_LEN: usize = 64;

impl Pbkdf {
    /// The time of [`Pbkdf::default`] in milliseconds.
    pub const DEFAULT_TIME_MS: u32 = 800;
    /// The least that LUKS2 allows. Protects nothing but a passphrase that cannot be guessed anyway; makes tests fast.
    pub const CHEAPEST: Self = Self::Fixed { passes: LEAST_PASSES, memory_kib: 32, threads: 1 };

    /// What the digest of a volume key is made with.
    ///
    /// Left to itself, libcryptsetup finds out in 1.5 seconds how many iterations take 125 milliseconds, which everyone
    /// then waits for who opens the volume. Whatever forbids the benchmark makes it 1000 iterations, NIST SP 800-132's
    /// least: what the digest hides are no passphrases, but 256 random bits and more.
    pub(crate) fn of_digest() -> CryptPbkdfType {
        parameters(LEAST_PASSES, 32, 1)
    }
}

impl Default for Pbkdf {
    fn default() -> Self {
        Self::Calibrated { time_ms: Self::DEFAULT_TIME_MS }
    }
}

/// In libcryptsetup's terms.
fn parameters(passes: u32, memory_kib: u32, threads: u32) -> CryptPbkdfType {
    CryptPbkdfType {
        type_: CryptKdf::Argon2Id,
        hash: Some("sha256".to_owned()),
        time_ms: 0,
        iterations: passes,
        max_memory_kb: memory_kib,
        parallel_threads: threads,
        flags: CryptPbkdf::NO_BENCHMARK,
    }
}

impl Session {
    /// Makes the key slots that are stored from now on cost this.
    pub(crate) fn set_pbkdf(&mut self, pbkdf: Pbkdf) -> Result<(), LibcryptErr> {
        let parameters = match pbkdf {
            _ if self.is_luks1() => luks1::pbkdf2(pbkdf),
            Pbkdf::Calibrated { time_ms } => self.calibrate(time_ms)?,
            Pbkdf::Fixed { passes, memory_kib, threads } => parameters(passes, memory_kib, threads),
        };
        self.device.settings_handle().set_pbkdf_type(&parameters)
    }

    /// What takes about `time_ms` on this machine.
    ///
    /// libcryptsetup's benchmark approaches the time by deriving keys until one takes as long, which takes longer than
    /// twice the time altogether. Its first trial is precise enough.
    fn calibrate(&mut self, time_ms: u32) -> Result<CryptPbkdfType, LibcryptErr> {
        // Given its defaults, libcryptsetup lowers them to what the machine has: half of its free memory, its processors.
        let defaults = CryptSettingsHandle::get_pbkdf_default(&LuksType::Luks2)?;
        let defaults = CryptPbkdfType { type_: CryptKdf::Argon2Id, ..defaults };
        self.device.settings_handle().set_pbkdf_type(&defaults)?;
        let most = self.device.settings_handle().get_pbkdf_type()?;
        let trial = CryptPbkdfType { max_memory_kb: TRIAL_KIB, time_ms, ..most };
        let (work, took_ms) = self.first_trial(&trial)?;
        let (passes, memory_kib) = scale(work, took_ms, time_ms, most.max_memory_kb);
        Ok(parameters(passes, memory_kib, most.parallel_threads))
    }

    /// How much work the first trial of libcryptsetup's benchmark is, in passes over a KiB, and how long it took, in
    /// milliseconds.
    fn first_trial(&mut self, parameters: &CryptPbkdfType) -> Result<(u64, u32), LibcryptErr> {
        let mut parameters: CryptPbkdfTypeRef<'_> = parameters.try_into()?;
        let (password, salt) = ("passphrase", [0u8; 32]);
        let mut took_ms = 0u32;
        // SAFETY: the device is alive as long as `self`; everything else outlives the call. `stop` writes to `took_ms`,
        // which nobody else uses meanwhile.
        let code = unsafe {
            sys::crypt_benchmark_pbkdf(
                self.raw(),
                &mut parameters.inner,
                password.as_ptr().cast(),
                password.len(),
                salt.as_ptr().cast(),
                salt.len(),
                SLOT_KEY_LEN,
                Some(stop),
                (&raw mut took_ms).cast(),
            )
        };
        if took_ms == 0 && code < 0 {
            return Err(LibcryptErr::IOError(std::io::Error::from_raw_os_error(-code)));
        }
        let work = u64::from(parameters.inner.iterations) * u64::from(parameters.inner.max_memory_kb);
        Ok((work, took_ms.max(1)))
    }
}

/// Called after each trial; notes how long it took, and wants no other.
unsafe extern "C" fn stop(time_ms: u32, took_ms: *mut c_void) -> c_int {
    // SAFETY: this is the pointer that `first_trial` passed.
    unsafe { *took_ms.cast::<u32>() = time_ms.max(1) };
    1
}

/// Passes and memory in KiB for `time_ms`, if `work` took `took_ms`. Memory is what attackers pay most for, so there are
/// more than the fewest passes only where all memory is used.
fn scale(work: u64, took_ms: u32, time_ms: u32, most_kib: u32) -> (u32, u32) {
    let work = work * u64::from(time_ms) / u64::from(took_ms);
    let memory_kib = (work / u64::from(LEAST_PASSES)).max(LEAST_CALIBRATED_KIB.into()).min(most_kib.into());
    let passes = (work / memory_kib).clamp(LEAST_PASSES.into(), u32::MAX.into());
    (passes as u32, memory_kib as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u32 = 1 << 10;
    const TRIAL: u64 = (LEAST_PASSES * TRIAL_KIB) as u64;

    #[test]
    fn more_time_buys_memory_and_then_passes() {
        let most = 1024 * MEBIBYTE;
        assert_eq!(scale(TRIAL, 100, 800, most), (4, 256 * MEBIBYTE));
        assert_eq!(scale(TRIAL, 100, 3200, most), (4, most));
        assert_eq!(scale(TRIAL, 100, 8000, most), (10, most));
        assert_eq!(scale(TRIAL, 100, 8000, 100 * MEBIBYTE), (102, 100 * MEBIBYTE));
    }

    #[test]
    fn a_slow_machine_takes_longer_and_is_as_safe() {
        for (took_ms, time_ms) in [(1000, 800), (u32::MAX, 800), (100, 1), (u32::MAX, 1)] {
            assert_eq!(scale(TRIAL, took_ms, time_ms, 1024 * MEBIBYTE), (4, 64 * MEBIBYTE));
        }
        let (passes, _) = scale(TRIAL, 1, u32::MAX, 64 * MEBIBYTE);
        assert!(passes > 1 << 20);
    }
}
