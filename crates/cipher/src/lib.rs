//! How a sector is encrypted and authenticated. No I/O, no layout.
//!
//! A volume has one secret, the [`VolumeKey`]. From it and from a [`KeyContext`] (cipher, lineage, geometry, key epoch)
//! come three independent things:
//!
//! * a [`SectorSealer`], which turns a sector's plaintext into ciphertext and a [`Seal`], and back (a [`SectorRun`], those
//!   of a request);
//! * a [`MetadataCipher`], which does the same for the volume's own records;
//! * a [`SuperblockMac`], which vouches for the superblock.
//!
//! [`XtsPlain64`] stands apart: it is the cipher of ordinary LUKS2 volumes, has no seals and takes the volume key as it
//! is.

mod aead;
mod aegis256;
mod associated_data;
mod evp_aead;
mod fold;
mod form;
mod keys;
mod metadata;
mod name;
mod nonce;
mod processor;
mod seal;
mod sector_run;
mod sector_sealer;
mod superblock_mac;
#[cfg(test)]
mod vectors;
mod volume_key;
mod xaes256gcm;
mod xchacha20poly1305;
mod xts;
mod xts128;
mod xts_plain64;
mod xts_random;

pub use associated_data::AssociatedData;
pub use fold::{FoldError, fold, unfold};
pub use form::Form;
pub use keys::{KeyContext, metadata_cipher, sector_sealer, superblock_mac};
pub use metadata::MetadataCipher;
pub use name::{CipherName, UnknownCipher};
pub use nonce::{FreshNonce, Nonces};
pub use seal::{MAX_SEAL_LEN, NotAuthentic, Seal, SealTooLong};
pub use sector_run::SectorRun;
pub use sector_sealer::{Sealed, SealedForm, SectorSealer, is_zero};
pub use superblock_mac::SuperblockMac;
pub use volume_key::{BadKeyLength, VolumeKey};
pub use xts_plain64::{BadXts, XtsPlain64};
