//! The LUKS2 header of a volume: key slots, and what lies behind them.
//!
//! Headers are made and edited with libcryptsetup, so that Debian's `cryptsetup` lists, adds, changes and kills key
//! slots, backs up and restores, and erases. A [`Header`] is one that was loaded and understood: its [`Payload`] is
//! either an ordinary LUKS2 segment (`aes-xts-plain64`) or a sealed one, and every other header is refused with the
//! reason.
//!
//! A sealed payload is one data segment whose cipher no kernel knows, with an `integrity` object whose journal cipher
//! is private as well. Every key, token and backup verb of cryptsetup works on it, and activation is refused before
//! any mapping is made: `LUKS2_activate` asks `LUKS2_integrity_compatible` for a `journal_encryption` of `none`, in
//! every version from 2.4 to 2.8. libcryptsetup keeps members of a segment that it does not know, which is where cipher,
//! layout, folding and lineage stand.
//!
//! The format is described in "LUKS2 On-Disk Format Specification" 1.1.1 (cryptsetup's `docs/on-disk-format-luks2.pdf`).
//!
//! Headers are hostile input. What a sealed header says of its payload is bound to the volume key through the salt of
//! the key's digest (see `binding`), and a second time through the keys that are derived from it: an edited header is
//! refused, or its key slots open with no passphrase. The rest (label, key slots, tokens, and all of an ordinary
//! header) is not authenticated, as in every LUKS2 header.

mod backup;
mod binding;
mod description;
mod error;
mod header;
mod header_copy;
mod key_slot;
mod key_slots;
mod luks1;
mod object_edit;
mod passphrase;
mod pbkdf;
mod rewrite;
mod segment;
mod session;
mod unsupported;

pub use backup::RestoreCheck;
pub use description::Description;
pub use error::{HeaderError, HeaderErrorKind};
pub use header::{FormatOptions, Header, HeaderMap};
pub use header_copy::{BadCopy, HeaderCopy};
pub use key_slot::{KeySlot, Priority, SlotPbkdf};
pub use key_slots::LastSlot;
pub use object_edit::ObjectEdit;
pub use passphrase::Passphrase;
pub use pbkdf::Pbkdf;
pub use sealdisk_layout::Payload;
pub use unsupported::Unsupported;
