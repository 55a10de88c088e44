//! The numbers of the NBD protocol.
//!
//! Source: "The NBD protocol", `doc/proto.md` of the NetworkBlockDevice project, under the names used there less the
//! `NBD_` prefix. Everything on the wire is big-endian.

/// Opens the server's greeting: "NBDMAGIC".
pub(super) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting, and first of every option: "IHAVEOPT".
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string, in bytes ("Strings" in the protocol's conventions).
pub(super) const MAX_STRING: usize = 4096;
/// Largest payload of a read or write, in bytes: what every client may count on.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Most bytes of data that are sent as one chunk. Longer reads are answered with several.
pub(super) const MAX_CHUNK: u32 = 1 << 20;

/// Handshake flags (16 bits) and, with the same values, client flags (32 bits).
pub(super) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags.
pub(super) mod transmission_flag {
    pub(crate) const HAS_FLAGS: u16 = 1 << 0;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub(super) mod option_reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub(crate) const ERR_POLICY: u32 = (1 << 31) + 2;
    pub(crate) const ERR_INVALID: u32 = (1 << 31) + 3;
    pub(crate) const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub(crate) const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// What `OPT_INFO` and `OPT_GO` tell.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Commands.
pub(super) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(super) mod command_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Types of a structured reply's chunks.
pub(super) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
    pub(crate) const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Set on the last chunk of a structured reply.
pub(super) const CHUNK_DONE: u16 = 1 << 0;

/// The only metadata context on offer.
pub(super) const ALLOCATION_CONTEXT: &str = "base:allocation";
/// The id under which it is selected.
pub(super) const ALLOCATION_CONTEXT_ID: u32 = 1;

/// States of `base:allocation`.
pub(super) mod allocation_state {
    pub(crate) const HOLE: u32 = 1 << 0;
    pub(crate) const ZERO: u32 = 1 << 1;
}

/// The error values that the protocol allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// `NBD_EPERM`: a write to a read-only disk.
    NotPermitted = 1,
    /// `NBD_EIO`: the disk failed, or its bytes are not authentic.
    Io = 5,
    /// `NBD_EINVAL`: a malformed request, or a read beyond the end.
    Invalid = 22,
    /// `NBD_ENOSPC`: the store is full, or a write reaches beyond the end.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: a read that must not be fragmented is too long.
    Overflow = 75,
    /// `NBD_ENOTSUP`: zeroing would be no faster than writing.
    NotSupported = 95,
}
