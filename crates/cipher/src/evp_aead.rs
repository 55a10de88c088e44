//! AWS-LC's authenticated ciphers, called directly: `aws-lc-rs` cannot seal from one buffer into another, and has no
//! XChaCha20-Poly1305.

use std::mem::MaybeUninit;

use aws_lc_sys::{
    EVP_AEAD, EVP_AEAD_CTX, EVP_AEAD_CTX_cleanup, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter,
};

use crate::NotAuthentic;
use crate::aead::{TAG_LEN, Tag};

/// Room for a keyed cipher. AWS-LC aligns its state inside the room, so a keyed room must not move.
pub(crate) struct Room(MaybeUninit<EVP_AEAD_CTX>);

/// A cipher keyed in a [`Room`]; the key is wiped when it is dropped.
pub(crate) struct EvpAead<'room>(&'room mut EVP_AEAD_CTX);

impl Room {
    pub(crate) fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Sets up `algorithm`, one of AWS-LC's static `EVP_aead_*` tables with 256-bit keys and 128-bit tags.
    pub(crate) fn key(&mut self, algorithm: &'static EVP_AEAD, key: &[u8; 32]) -> EvpAead<'_> {
        // SAFETY: the room has the context's size and alignment, the key its length; a null engine is the only one.
        let keyed = unsafe {
            EVP_AEAD_CTX_init(self.0.as_mut_ptr(), algorithm, key.as_ptr(), key.len(), TAG_LEN, std::ptr::null_mut())
        };
        assert_eq!(keyed, 1, "AWS-LC takes a 256-bit key and a 128-bit tag");
        // SAFETY: initialised by the call above.
        EvpAead(unsafe { self.0.assume_init_mut() })
    }
}

impl EvpAead<'_> {
    /// Encrypts `text` into `out`, which has the same length.
    pub(crate) fn seal(&self, nonce: &[u8], ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag {
        assert_eq!(text.len(), out.len(), "a sealed text is as long as the text");
        // SAFETY: both are valid for `text.len()` bytes and do not overlap.
        unsafe { self.seal_raw(nonce, ad, text.as_ptr(), out.as_mut_ptr(), text.len()) }
    }

    /// Encrypts `text` in place.
    pub(crate) fn seal_in_place(&self, nonce: &[u8], ad: &[u8], text: &mut [u8]) -> Tag {
        let out = text.as_mut_ptr();
        // SAFETY: AWS-LC allows input and output to be the same buffer; it is valid for `text.len()` bytes.
        unsafe { self.seal_raw(nonce, ad, out, out, text.len()) }
    }

    /// # Safety
    /// `text` must be readable and `out` writable for `len` bytes; they are the same or do not overlap.
    unsafe fn seal_raw(&self, nonce: &[u8], ad: &[u8], text: *const u8, out: *mut u8, len: usize) -> Tag {
        let mut tag = [0; TAG_LEN];
        let mut tag_len = 0;
        // SAFETY: every pointer goes with the length of its slice; `text` and `out` by the caller's word.
        let sealed = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                self.0,
                out,
                tag.as_mut_ptr(),
                &mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                text,
                len,
                std::ptr::null(),
                0,
                ad.as_ptr(),
                ad.len(),
            )
        };
        assert!(sealed == 1 && tag_len == TAG_LEN, "AWS-LC seals a text of this length with a nonce of this length");
        Tag(tag)
    }

    /// Verifies and decrypts `text` in place.
    pub(crate) fn open(&self, nonce: &[u8], ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic> {
        let out = text.as_mut_ptr();
        // SAFETY: every pointer goes with the length of its slice; AWS-LC allows `out` to be the input.
        let opened = unsafe {
            EVP_AEAD_CTX_open_gather(
                self.0,
                out,
                nonce.as_ptr(),
                nonce.len(),
                out,
                text.len(),
                tag.0.as_ptr(),
                TAG_LEN,
                ad.as_ptr(),
                ad.len(),
            )
        };
        if opened == 1 {
            return Ok(());
        }
        // SAFETY: no argument. A failure leaves a record in the thread's error queue, which nobody else would clear.
        unsafe { aws_lc_sys::ERR_clear_error() };
        Err(NotAuthentic)
    }
}

impl Drop for EvpAead<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised in `Room::key`, and nobody can use it after this. GCM's clean-up does not wipe the key
        // schedule by itself.
        unsafe {
            EVP_AEAD_CTX_cleanup(self.0);
            aws_lc_sys::OPENSSL_cleanse(std::ptr::from_mut(self.0).cast(), size_of::<EVP_AEAD_CTX>());
        }
    }
}

/// A cipher that keeps its key for long, in a room on the heap, and serves many threads at once.
pub(crate) struct OwnedEvpAead {
    /// Borrows the room; dropped by hand, before it.
    keyed: std::mem::ManuallyDrop<EvpAead<'static>>,
    room: *mut Room,
}

impl OwnedEvpAead {
    /// `algorithm` must be one of those that `openssl/aead.h` lists, at `EVP_AEAD_CTX_seal`, as safe for concurrent
    /// use of one context: the GCMs and the ChaChas are.
    pub(crate) fn new(algorithm: &'static EVP_AEAD, key: &[u8; 32]) -> Self {
        let room = Box::into_raw(Box::new(Room::new()));
        // SAFETY: the room lives until `drop`, which ends this borrow first, and is reached by nothing else.
        let keyed = unsafe { (*room).key(algorithm, key) };
        Self { keyed: std::mem::ManuallyDrop::new(keyed), room }
    }
}

impl std::ops::Deref for OwnedEvpAead {
    type Target = EvpAead<'static>;

    fn deref(&self) -> &Self::Target {
        &self.keyed
    }
}

impl Drop for OwnedEvpAead {
    fn drop(&mut self) {
        // SAFETY: both are dropped once, the borrower before the room it borrows.
        unsafe {
            std::mem::ManuallyDrop::drop(&mut self.keyed);
            drop(Box::from_raw(self.room));
        }
    }
}

// SAFETY: AWS-LC's contexts are not tied to a thread, and sealing and opening only read them.
unsafe impl Send for OwnedEvpAead {}
// SAFETY: as above, and `new` asks for algorithms that AWS-LC documents as safe for concurrent use of one context.
unsafe impl Sync for OwnedEvpAead {}
