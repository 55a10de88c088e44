//! AES-256-XTS (IEEE 1619) from AWS-LC.
//!
//! AWS-LC's contexts hold the tweak beside the key schedule, so one serves one thread at a time; setting up a schedule
//! costs as much as encrypting a few hundred bytes. So each key has a few contexts, set up once, and a thread keeps to
//! the one that is its own as long as there are not more threads than contexts.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate, EVP_aes_256_xts,
};
use zeroize::Zeroizing;

/// Key 1 (data) and key 2 (tweak) of AES-256-XTS; wiped when dropped.
pub(crate) type XtsKey = Zeroizing<[u8; 64]>;

/// The tweak of one data unit, before it is encrypted: 128 bits, little-endian.
#[derive(Clone, Copy)]
pub(crate) struct Tweak(pub(crate) [u8; 16]);

/// The two halves of an XTS key are the same, which IEEE 1619 forbids: it makes ciphertexts leak equalities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EqualHalves;

/// AES-256-XTS with its key, for many threads.
pub(crate) struct Aes256Xts {
    encrypt: Contexts,
    decrypt: Contexts,
}

impl Aes256Xts {
    pub(crate) fn new(key: &XtsKey) -> Result<Self, EqualHalves> {
        let (data, tweak) = key.split_at(32);
        if aws_lc_rs::constant_time::verify_slices_are_equal(data, tweak).is_ok() {
            return Err(EqualHalves);
        }
        Ok(Self { encrypt: Contexts::new(key, Direction::Encrypt), decrypt: Contexts::new(key, Direction::Decrypt) })
    }

    /// Encrypts one data unit of 16 bytes to 16 MiB into `out`, which has the same length.
    pub(crate) fn encrypt(&self, tweak: Tweak, text: &[u8], out: &mut [u8]) {
        assert_eq!(text.len(), out.len(), "a sealed text is as long as the text");
        // SAFETY: both are valid for `text.len()` bytes and do not overlap.
        self.encrypt.with(|context| unsafe { context.run(tweak, text.as_ptr(), out.as_mut_ptr(), text.len()) });
    }

    /// Encrypts one data unit in place.
    pub(crate) fn encrypt_in_place(&self, tweak: Tweak, text: &mut [u8]) {
        self.encrypt.with(|context| context.run_in_place(tweak, text));
    }

    /// Decrypts one data unit in place.
    pub(crate) fn decrypt(&self, tweak: Tweak, text: &mut [u8]) {
        self.decrypt.with(|context| context.run_in_place(tweak, text));
    }

    pub(crate) fn implementation(&self) -> &'static str {
        crate::processor::aws_lc_aes(
            "AES-256-XTS by AWS-LC, with VAES and AVX-512",
            "AES-256-XTS by AWS-LC, with the CPU's AES instructions",
            "AES-256-XTS by AWS-LC, in software (this CPU has no AES instructions)",
        )
    }
}

/// Contexts of one key and direction.
struct Contexts(Box<[Mutex<Context>]>);

thread_local! {
    /// Which context this thread takes.
    static TURN: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed))
    };
}

impl Contexts {
    fn new(key: &XtsKey, direction: Direction) -> Self {
        let threads =
            std::thread::available_parallelism().map_or(4, |cores| cores.get()).next_power_of_two().clamp(4, 64);
        Self((0..threads).map(|_| Mutex::new(Context::new(key, direction))).collect())
    }

    fn with(&self, work: impl FnOnce(&mut Context)) {
        let context = &self.0[TURN.get() % self.0.len()];
        // A panic in the middle leaves a tweak behind, and `run` sets its own.
        work(&mut context.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Decrypt = 0,
    Encrypt = 1,
}

/// A key schedule and room for a tweak.
struct Context(NonNull<EVP_CIPHER_CTX>);

// SAFETY: a context is plain memory, not tied to the thread that made it.
unsafe impl Send for Context {}

impl Context {
    fn new(key: &XtsKey, direction: Direction) -> Self {
        // SAFETY: no arguments.
        let context = Self(NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).expect("a few hundred bytes of memory"));
        // SAFETY: the key has the 64 bytes of AES-256-XTS; a null engine is the only one; the tweak comes later.
        let keyed = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                std::ptr::null_mut(),
                key.as_ptr(),
                std::ptr::null(),
                direction as i32,
            )
        };
        assert_eq!(keyed, 1, "AWS-LC takes any key with two different halves");
        context
    }

    fn run_in_place(&mut self, tweak: Tweak, text: &mut [u8]) {
        let bytes = text.as_mut_ptr();
        // SAFETY: AWS-LC allows input and output to be the same buffer; it is valid for `text.len()` bytes.
        unsafe { self.run(tweak, bytes, bytes, text.len()) };
    }

    /// # Safety
    /// `text` must be readable and `out` writable for `len` bytes; they are the same or do not overlap.
    unsafe fn run(&mut self, tweak: Tweak, text: *const u8, out: *mut u8, len: usize) {
        let int_len = i32::try_from(len).expect("a data unit has 16 MiB at most");
        let mut written = 0;
        // SAFETY: no new cipher or key, a tweak of 16 bytes, -1 keeps the direction; buffers by the caller's word.
        let done = unsafe {
            EVP_CipherInit_ex(
                self.0.as_ptr(),
                std::ptr::null(),
                std::ptr::null_mut(),
                std::ptr::null(),
                tweak.0.as_ptr(),
                -1,
            ) == 1
                && EVP_CipherUpdate(self.0.as_ptr(), out, &mut written, text, int_len) == 1
        };
        assert!(done && written == int_len, "AWS-LC takes any data unit of 16 bytes to 16 MiB");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new. AWS-LC wipes what it frees.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}
