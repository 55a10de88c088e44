//! What every authenticated cipher offers, and how its nonce and tag become a seal.

use crate::{Form, FreshNonce, NotAuthentic, Seal};

/// Bytes of every cipher's authentication tag.
pub(crate) const TAG_LEN: usize = 16;

/// Proof that a text was made by a holder of the key. A type of its own, so that it cannot change places with a nonce.
pub(crate) struct Tag(pub(crate) [u8; TAG_LEN]);

/// A number that one key uses once.
pub(crate) struct Nonce<const N: usize>(pub(crate) [u8; N]);

/// A 256-bit key of one cipher and one purpose; wiped when dropped.
pub(crate) type Key256 = zeroize::Zeroizing<[u8; 32]>;

/// An authenticated cipher with nonces of `N` bytes. One algorithm a file implements it.
pub(crate) trait Aead<const N: usize>: Send + Sync {
    /// Encrypts `text` into `out`, which has the same length.
    fn seal(&self, nonce: &Nonce<N>, ad: &[u8], text: &[u8], out: &mut [u8]) -> Tag;

    /// Encrypts `text` in place.
    fn seal_in_place(&self, nonce: &Nonce<N>, ad: &[u8], text: &mut [u8]) -> Tag;

    /// Verifies and decrypts `text` in place. What is in `text` after a failure is not defined.
    fn open(&self, nonce: &Nonce<N>, ad: &[u8], tag: &Tag, text: &mut [u8]) -> Result<(), NotAuthentic>;

    /// The algorithm, the library and what of the CPU it uses.
    fn implementation(&self) -> &'static str;
}

/// An [`Aead`] in terms of forms and seals, whatever the length of its nonce.
pub(crate) trait SealingAead: Send + Sync {
    /// Bytes of a seal.
    fn seal_len(&self) -> usize;
    /// [`Aead::seal`].
    fn seal(&self, form: Form, nonce: FreshNonce, ad: &[u8], text: &[u8], out: &mut [u8]) -> Seal;
    /// [`Aead::seal_in_place`].
    fn seal_in_place(&self, form: Form, nonce: FreshNonce, ad: &[u8], text: &mut [u8]) -> Seal;
    /// [`Aead::open`], for a seal of that form and no other.
    fn open(&self, form: Form, seal: &Seal, ad: &[u8], text: &mut [u8]) -> Result<(), NotAuthentic>;
    /// [`Aead::implementation`].
    fn implementation(&self) -> &'static str;
}

/// The one [`SealingAead`].
pub(crate) struct Sealing<A, const N: usize>(pub(crate) A);

impl<A: Aead<N>, const N: usize> SealingAead for Sealing<A, N> {
    fn seal_len(&self) -> usize {
        N + TAG_LEN
    }

    fn seal(&self, form: Form, nonce: FreshNonce, ad: &[u8], text: &[u8], out: &mut [u8]) -> Seal {
        let nonce = Nonce(nonce.into_bytes(form));
        let tag = self.0.seal(&nonce, ad, text, out);
        Seal::of_parts(&nonce.0, &tag.0)
    }

    fn seal_in_place(&self, form: Form, nonce: FreshNonce, ad: &[u8], text: &mut [u8]) -> Seal {
        let nonce = Nonce(nonce.into_bytes(form));
        let tag = self.0.seal_in_place(&nonce, ad, text);
        Seal::of_parts(&nonce.0, &tag.0)
    }

    fn open(&self, form: Form, seal: &Seal, ad: &[u8], text: &mut [u8]) -> Result<(), NotAuthentic> {
        let (nonce, tag) = seal.as_bytes().split_first_chunk().ok_or(NotAuthentic)?;
        let tag = tag.try_into().map_err(|_| NotAuthentic)?;
        // It would not open anyway, the form being part of the nonce and of a sector's associated data.
        if nonce[0] != form as u8 {
            return Err(NotAuthentic);
        }
        self.0.open(&Nonce(*nonce), ad, &Tag(tag), text)
    }

    fn implementation(&self) -> &'static str {
        self.0.implementation()
    }
}
