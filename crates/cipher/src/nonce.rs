//! Numbers used once.

use crate::Form;

/// Bytes drawn for every seal; a cipher with a shorter nonce uses the first of them.
const LEN: usize = 32;

/// 32 random bytes for one seal. Sealing consumes it, and it can be neither copied nor made by hand, so no two seals
/// share one.
pub struct FreshNonce([u8; LEN]);

impl FreshNonce {
    /// The nonce of a seal of this form: the form, then random bytes. 248 random bits for AEGIS-256 and 184 for the
    /// ciphers with 24-byte nonces: two seals in 2^72 (AEGIS: 2^104) share a nonce with a chance below 2^-40.
    pub(crate) fn into_bytes<const N: usize>(self, form: Form) -> [u8; N] {
        const { assert!(N <= LEN) };
        let mut bytes = self.into_iv();
        bytes[0] = form as u8;
        bytes
    }

    /// The first `N` bytes, all of them random.
    pub(crate) fn into_iv<const N: usize>(self) -> [u8; N] {
        const { assert!(N <= LEN) };
        std::array::from_fn(|i| self.0[i])
    }

    /// A nonce that the kernel hardly ever draws.
    #[cfg(test)]
    pub(crate) fn unlikely(byte: u8) -> Self {
        Self([byte; LEN])
    }
}

/// Where fresh nonces come from.
pub struct Nonces;

impl Nonces {
    /// `count` nonces straight from the kernel's generator, in one call.
    ///
    /// Draw them for one request and **after its plaintext has been received**. Then a virtual machine that is resumed
    /// twice from one memory snapshot repeats a nonce only with the plaintext that it was drawn for, and sealing the
    /// same text twice under one nonce gives the same bytes twice and tells nothing. For the same reason nothing is
    /// kept here for later requests, as a generator in user space would do. What is drawn after the resumption is only
    /// as fresh as the kernel's generator, which Linux reseeds on resumption where the hypervisor offers a VM
    /// generation id (`vmgenid`, Linux 5.18).
    pub fn draw(count: usize) -> Result<impl ExactSizeIterator<Item = FreshNonce>, getrandom::Error> {
        let mut bytes = vec![[0; LEN]; count];
        getrandom::fill(bytes.as_flattened_mut())?;
        Ok(bytes.into_iter().map(FreshNonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nonce_of_a_request_is_another_one() {
        let drawn: std::collections::HashSet<[u8; 24]> =
            Nonces::draw(1000).unwrap().map(|nonce| nonce.into_bytes(Form::Plain)).collect();
        assert_eq!(drawn.len(), 1000);
        assert!(drawn.iter().all(|nonce| nonce[0] == Form::Plain as u8));
        assert_eq!(Nonces::draw(0).unwrap().len(), 0);
    }
}
