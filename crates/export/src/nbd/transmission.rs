//! Requests of the transmission phase: 28 bytes in, a checked command or the reason for its refusal out. Pure: no socket
//! is touched here.
//!
//! Source: "Request message", "Request types" and "Error values" of the NBD protocol.

use sealdisk_units::ByteRange;
use sealdisk_volume::Space;

use super::handshake::Agreed;
use super::protocol::{MAX_CHUNK, MAX_PAYLOAD, NbdError, REQUEST_MAGIC, command, command_flag};
use super::wire::Fields;

/// Bytes of a request in front of its payload.
pub const REQUEST_LEN: usize = 28;

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    flags: u16,
    command: u16,
    /// The client's name for the request; every reply to it repeats it.
    pub cookie: u64,
    offset: u64,
    len: u32,
}

/// What a request is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// What was negotiated.
    pub agreed: Agreed,
}

/// A request that makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send the bytes.
    Read(ByteRange),
    /// Take the payload.
    Write {
        /// Where it goes.
        range: ByteRange,
        /// Whether it must be durable before the reply.
        fua: bool,
    },
    /// Make the range read as zeros.
    Zero {
        /// Which bytes.
        range: ByteRange,
        /// Whether their space is given back.
        space: Space,
        /// Whether that must be durable before the reply.
        fua: bool,
    },
    /// The bytes are no longer needed.
    Trim {
        /// Which bytes.
        range: ByteRange,
        /// Whether that must be durable before the reply.
        fua: bool,
    },
    /// Make all answered writes durable.
    Flush,
    /// The range will be read soon.
    Cache,
    /// Tell where the range has holes.
    BlockStatus {
        /// Which bytes; not empty.
        range: ByteRange,
        /// Tell of the first stretch only.
        only_first: bool,
    },
    /// Finish what is in progress and close.
    Disconnect,
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub error: NbdError,
    /// The same for people.
    pub why: &'static str,
}

const fn refusal(error: NbdError, why: &'static str) -> Refusal {
    Refusal { error, why }
}

impl RequestHeader {
    /// The request, or `None` without the magic number: client and server are out of step, and nothing that follows can
    /// be trusted.
    pub fn parse(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// Bytes that follow the header, whether the request is served or refused.
    pub fn payload_len(&self) -> u32 {
        if self.command == command::WRITE { self.len } else { 0 }
    }

    /// What to do.
    pub fn check(&self, terms: &Terms) -> Result<Command, Refusal> {
        let known_flags = command_flag::FUA
            | match self.command {
                command::READ if terms.agreed.structured_replies => command_flag::DF,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                command::READ | command::WRITE | command::DISC | command::FLUSH | command::TRIM | command::CACHE => 0,
                _ => return Err(refusal(NbdError::Invalid, "unknown command")),
            };
        if self.command == command::DISC {
            return Ok(Command::Disconnect);
        }
        if self.flags & !known_flags != 0 {
            return Err(refusal(NbdError::Invalid, "unknown flag for this command"));
        }
        let fua = self.has(command_flag::FUA);
        match self.command {
            command::READ => self.check_read(terms),
            command::WRITE => {
                self.check_writable(terms)?;
                self.check_payload()?;
                Ok(Command::Write { range: self.range(terms, NbdError::NoSpace)?, fua })
            }
            command::FLUSH if self.offset != 0 || self.len != 0 => {
                Err(refusal(NbdError::Invalid, "a flush has neither offset nor length"))
            }
            command::FLUSH => Ok(Command::Flush),
            command::TRIM => {
                self.check_writable(terms)?;
                Ok(Command::Trim { range: self.range(terms, NbdError::Invalid)?, fua })
            }
            command::CACHE => self.range(terms, NbdError::Invalid).map(|_| Command::Cache),
            command::WRITE_ZEROES => self.check_zero(terms, fua),
            _ => self.check_block_status(terms),
        }
    }

    fn check_read(&self, terms: &Terms) -> Result<Command, Refusal> {
        self.check_payload()?;
        let range = self.range(terms, NbdError::Invalid)?;
        if self.has(command_flag::DF) && range.len() > u64::from(MAX_CHUNK) {
            return Err(refusal(NbdError::Overflow, "too long to be sent in one piece"));
        }
        Ok(Command::Read(range))
    }

    fn check_zero(&self, terms: &Terms, fua: bool) -> Result<Command, Refusal> {
        self.check_writable(terms)?;
        let range = self.range(terms, NbdError::NoSpace)?;
        // Sectors that the range covers in part must be read, changed and written; only whole ones are zeroed faster
        // than they are written.
        if self.has(command_flag::FAST_ZERO) && range.whole_sectors().is_empty() {
            return Err(refusal(NbdError::NotSupported, "zeroing less than a sector is no faster than writing it"));
        }
        let space = if self.has(command_flag::NO_HOLE) { Space::Keep } else { Space::Free };
        Ok(Command::Zero { range, space, fua })
    }

    fn check_block_status(&self, terms: &Terms) -> Result<Command, Refusal> {
        if !terms.agreed.allocation {
            return Err(refusal(NbdError::Invalid, "base:allocation was not negotiated"));
        }
        if self.len == 0 {
            return Err(refusal(NbdError::Invalid, "an empty range has no status"));
        }
        let range = self.range(terms, NbdError::Invalid)?;
        Ok(Command::BlockStatus { range, only_first: self.has(command_flag::REQ_ONE) })
    }

    fn check_writable(&self, terms: &Terms) -> Result<(), Refusal> {
        if terms.read_only { Err(refusal(NbdError::NotPermitted, "the disk is read-only")) } else { Ok(()) }
    }

    fn check_payload(&self) -> Result<(), Refusal> {
        if self.len > MAX_PAYLOAD { Err(refusal(NbdError::Invalid, "longer than the maximum payload")) } else { Ok(()) }
    }

    fn range(&self, terms: &Terms, beyond_the_end: NbdError) -> Result<ByteRange, Refusal> {
        ByteRange::checked(self.offset, self.len.into(), terms.disk_size)
            .map_err(|_| refusal(beyond_the_end, "the request reaches beyond the end of the disk"))
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u64 = 1 << 20;

    fn terms() -> Terms {
        Terms { disk_size: DISK, read_only: false, agreed: Agreed { structured_replies: true, allocation: true } }
    }

    fn request(command: u16, flags: u16, offset: u64, len: u32) -> RequestHeader {
        RequestHeader { flags, command, cookie: 7, offset, len }
    }

    fn error(header: RequestHeader, terms: Terms) -> NbdError {
        header.check(&terms).unwrap_err().error
    }

    #[test]
    fn a_header_is_read_field_by_field_and_only_with_its_magic() {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[5] = 1;
        bytes[7] = 1;
        bytes[15] = 7;
        bytes[22] = 0x10;
        bytes[27] = 9;
        assert_eq!(RequestHeader::parse(&bytes), Some(request(command::WRITE, command_flag::FUA, 0x1000, 9)));
        bytes[0] ^= 1;
        assert_eq!(RequestHeader::parse(&bytes), None);
    }

    #[test]
    fn beyond_the_end_is_invalid_for_reads_and_no_space_for_writes() {
        for offset in [DISK - 1, DISK, u64::MAX] {
            for command in [command::READ, command::TRIM, command::CACHE, command::BLOCK_STATUS] {
                assert_eq!(error(request(command, 0, offset, 2), terms()), NbdError::Invalid);
            }
            for command in [command::WRITE, command::WRITE_ZEROES] {
                assert_eq!(error(request(command, 0, offset, 2), terms()), NbdError::NoSpace);
            }
        }
    }

    #[test]
    fn a_flag_is_valid_only_for_the_commands_it_is_documented_for() {
        let valid_for = |flag| -> Vec<u16> {
            (0..10).filter(|&c| c != command::DISC && request(c, flag, 0, 0).check(&terms()).is_ok()).collect()
        };
        use command::*;
        assert_eq!(valid_for(command_flag::FUA), [READ, WRITE, FLUSH, TRIM, CACHE, WRITE_ZEROES]);
        assert_eq!(valid_for(command_flag::NO_HOLE), [WRITE_ZEROES]);
        assert_eq!(valid_for(command_flag::DF), [READ]);
        assert_eq!(valid_for(command_flag::REQ_ONE), []);
        assert!(request(BLOCK_STATUS, command_flag::REQ_ONE, 0, 1).check(&terms()).is_ok());
        assert_eq!(valid_for(1 << 5), []);
        let simple = Terms { agreed: Agreed::default(), ..terms() };
        assert_eq!(error(request(READ, command_flag::DF, 0, 1), simple), NbdError::Invalid);
        assert_eq!(error(request(BLOCK_STATUS, 0, 0, 1), simple), NbdError::Invalid);
    }

    #[test]
    fn a_read_only_disk_refuses_what_writes_and_nothing_else() {
        let terms = Terms { read_only: true, ..terms() };
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(error(request(command, 0, 0, 512), terms), NbdError::NotPermitted);
        }
        for command in [command::READ, command::CACHE, command::BLOCK_STATUS] {
            assert!(request(command, 0, 0, 512).check(&terms).is_ok());
        }
        assert_eq!(request(command::FLUSH, 0, 0, 0).check(&terms), Ok(Command::Flush));
    }

    #[test]
    fn fast_zero_is_refused_where_no_whole_sector_is_zeroed() {
        let fast = |offset, len| request(command::WRITE_ZEROES, command_flag::FAST_ZERO, offset, len).check(&terms());
        assert!(fast(0, 4096).is_ok());
        assert!(fast(100, 9000).is_ok());
        assert_eq!(fast(100, 4096).unwrap_err().error, NbdError::NotSupported);
        assert!(request(command::WRITE_ZEROES, 0, 100, 4096).check(&terms()).is_ok());
    }

    #[test]
    fn a_refused_write_still_tells_how_much_payload_follows() {
        let too_long = request(command::WRITE, 0, 0, u32::MAX);
        assert!(too_long.check(&terms()).is_err());
        assert_eq!(too_long.payload_len(), u32::MAX);
        assert_eq!(request(command::READ, 0, 0, 512).payload_len(), 0);
    }
}
