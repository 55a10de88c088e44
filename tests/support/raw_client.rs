//! A client of an NBD server that says whatever it is told to, and needs no manners.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Client flags: fixed newstyle and no zeroes.
pub const CLIENT_FLAGS: [u8; 4] = [0, 0, 0, 3];

/// Option: go on without a reply to it.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: name the exports.
pub const OPT_LIST: u32 = 3;
/// Option: go on.
pub const OPT_GO: u32 = 7;
/// Option: reply in chunks.
pub const OPT_STRUCTURED_REPLY: u32 = 8;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write what follows.
pub const CMD_WRITE: u16 = 1;
/// Command: end the connection.
pub const CMD_DISC: u16 = 2;
/// Command: make durable what was answered.
pub const CMD_FLUSH: u16 = 3;
/// Command: make zeros.
pub const CMD_WRITE_ZEROES: u16 = 6;

/// How long a test waits for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(20);

/// The bytes of an option.
pub fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    [b"IHAVEOPT", &option.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}

/// The bytes of a request without its payload.
pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// A connection.
pub struct RawClient(pub UnixStream);

impl RawClient {
    /// Connects and says nothing.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    /// Connects, takes the greeting and sends the client flags.
    pub fn greeted(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        assert_eq!(client.receive(18), b"NBDMAGICIHAVEOPT\0\x03");
        client.send(&CLIENT_FLAGS);
        client
    }

    /// Goes on to the transmission phase, with simple replies.
    pub fn ready(socket: &Path) -> Self {
        let mut client = Self::greeted(socket);
        client.send(&option(OPT_GO, &[0; 6]));
        while client.option_reply().0 != 1 {}
        client
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Takes so many bytes.
    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The kind and data of a reply to an option.
    pub fn option_reply(&mut self) -> (u32, Vec<u8>) {
        let head = self.receive(20);
        assert_eq!(head[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        (word(12), self.receive(word(16) as usize))
    }

    /// The error and cookie of a simple reply.
    pub fn simple_reply(&mut self) -> (u32, u64) {
        let head = self.receive(16);
        assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
        (u32::from_be_bytes(head[4..8].try_into().unwrap()), u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    /// Takes whatever still comes until the server closes the connection, which it must.
    pub fn expect_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the server left the connection open: {error}"),
        }
    }
}
