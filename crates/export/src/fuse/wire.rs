//! The bytes that the kernel and a FUSE server exchange: Linux `include/uapi/linux/fuse.h`, protocol 7.31, of which
//! only what one file needs is spelled out. All integers are in the machine's own byte order.
//!
//! Decoding never panics and never reads past the message; a message that is too short for its kind is [`Malformed`].

use rustix::io::Errno;

/// The protocol this server speaks. 7.31 is Linux 5.4; newer kernels fall back to it.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 31;

/// The node of the mount's root directory.
pub(super) const ROOT: u64 = 1;
/// The node of the file.
pub(super) const FILE: u64 = 2;

/// Bytes of `fuse_in_header`, which starts every request.
const REQUEST_HEADER: usize = 40;
/// Bytes of `fuse_out_header`, which starts every reply.
pub(super) const REPLY_HEADER: usize = 16;
/// The most that precedes a write's data: `fuse_in_header` and `fuse_write_in`.
pub(super) const WRITE_OVERHEAD: usize = REQUEST_HEADER + 40;

/// `FOPEN_DIRECT_IO`: no page cache between the client and the disk.
const OPEN_DIRECT: u32 = 1 << 0;
/// `FOPEN_NOFLUSH`: closing waits for nobody, and promises nothing. As on a disk, what must last is synced.
const CLOSE_AT_ONCE: u32 = 1 << 5;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: writes need not wait for each other.
const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

/// `FATTR_SIZE`: the size is to be changed.
const SET_SIZE: u32 = 1 << 3;
/// `FATTR_FH` and `FATTR_LOCKOWNER`: which handle the change came through, not a change.
const SET_NOTHING: u32 = 1 << 6 | 1 << 9;

const DIRECTORY_ENTRY: u32 = libc::DT_DIR as u32;
const FILE_ENTRY: u32 = libc::DT_REG as u32;

/// A request that is shorter than its kind, or has no name where one belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What starts every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestHeader {
    /// Length of the request, header included.
    pub len: u32,
    opcode: u32,
    /// Names the request in its reply.
    pub unique: u64,
    /// What the request is about.
    pub node: u64,
}

/// What is asked. Handles are not mentioned: there is one file, and an open one is like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// Answers the kernel's greeting.
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    /// Wants no reply.
    Forget,
    GetAttributes,
    /// `size` is set if the size is to be changed; `other` if anything else is.
    SetAttributes {
        size: Option<u64>,
        other: bool,
    },
    Open {
        flags: u32,
    },
    Read {
        offset: u64,
        len: u32,
    },
    /// `durable`: the file was opened with O_SYNC or O_DSYNC, or the write was made with RWF_SYNC or RWF_DSYNC. For
    /// direct I/O the kernel leaves that to the server; no flush follows.
    Write {
        offset: u64,
        data: &'a [u8],
        durable: bool,
    },
    Flush,
    Fallocate {
        offset: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    ReadDirectory {
        offset: u64,
        len: u32,
    },
    FileSystemStatistics,
    OpenDirectory,
    /// An open file or directory is closed, or the mount goes: nothing to be done.
    Close,
    /// Would change names, permissions or extended attributes.
    ChangesNamespace,
    /// Anything else.
    Unknown,
}

/// Splits a message into its header and what is asked.
pub(super) fn parse(message: &[u8]) -> Result<(RequestHeader, Result<Request<'_>, Malformed>), Malformed> {
    let mut fields = Fields(message);
    let header =
        RequestHeader { len: fields.u32()?, opcode: fields.u32()?, unique: fields.u64()?, node: fields.u64()? };
    fields.skip(16)?; // uid, gid, pid, length of extensions
    Ok((header, parse_body(header.opcode, fields)))
}

fn parse_body(opcode: u32, mut body: Fields<'_>) -> Result<Request<'_>, Malformed> {
    Ok(match opcode {
        1 => Request::Lookup { name: body.name()? },
        2 | 42 => Request::Forget,
        3 => Request::GetAttributes,
        4 => {
            let valid = body.u32()?;
            body.skip(4 + 8)?; // padding, handle
            let size = body.u64()?;
            Request::SetAttributes {
                size: (valid & SET_SIZE != 0).then_some(size),
                other: valid & !(SET_SIZE | SET_NOTHING) != 0,
            }
        }
        14 => Request::Open { flags: body.u32()? },
        15 | 28 => {
            body.skip(8)?; // handle
            let (offset, len) = (body.u64()?, body.u32()?);
            if opcode == 15 { Request::Read { offset, len } } else { Request::ReadDirectory { offset, len } }
        }
        16 => {
            body.skip(8)?; // handle
            let (offset, len) = (body.u64()?, body.u32()?);
            body.skip(4 + 8)?; // write flags, lock owner
            let durable = body.u32()? & libc::O_SYNC as u32 != 0; // O_SYNC includes the bit of O_DSYNC
            body.skip(4)?; // padding
            Request::Write { offset, data: body.bytes(len as usize)?, durable }
        }
        17 => Request::FileSystemStatistics,
        18 | 29 | 38 => Request::Close,
        20 => Request::Flush,
        26 => Request::Init { major: body.u32()?, minor: body.u32()?, max_readahead: body.u32()?, flags: body.u32()? },
        27 => Request::OpenDirectory,
        30 => Request::Close, // a directory without changes has nothing to sync
        43 => {
            body.skip(8)?; // handle
            Request::Fallocate { offset: body.u64()?, len: body.u64()?, mode: body.u32()? }
        }
        46 => {
            body.skip(8)?; // handle
            Request::Seek { offset: body.u64()?, whence: body.u32()? }
        }
        // 25 is what close waits for on kernels before 5.16; after the first ENOSYS it does not come again.
        // symlink, mknod, mkdir, unlink, rmdir, rename, link, setxattr, removexattr, create, rename2, tmpfile
        6 | 8 | 9 | 10 | 11 | 12 | 13 | 21 | 24 | 35 | 45 | 51 => Request::ChangesNamespace,
        _ => Request::Unknown,
    })
}

/// What remains of a message.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.bytes(len).map(|_| ())
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A name that ends with a NUL.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        self.bytes(end)
    }
}

/// The body of a reply, field after field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// A reply that only says that it went well.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeros(mut self, len: usize) -> Self {
        self.0.resize(self.0.len() + len, 0);
        self
    }

    /// `fuse_init_out`: what was agreed on.
    pub fn init(agreed: &Agreed) -> Self {
        Self::empty()
            .u32(MAJOR)
            .u32(MINOR)
            .u32(agreed.max_readahead)
            .u32(agreed.flags)
            .u16(agreed.max_background)
            .u16(agreed.congestion_threshold)
            .u32(agreed.max_write)
            .u32(1) // granularity of time stamps in nanoseconds
            .u16(agreed.max_pages)
            .zeros(2 + 4 * 8) // map alignment, flags of later protocols, unused
    }

    /// `fuse_entry_out`: a name was found.
    pub fn entry(attributes: &Attributes) -> Self {
        Self::empty()
            .u64(attributes.node)
            .u64(0) // generation: the node is never another file's
            .u64(Attributes::VALID_SECONDS)
            .u64(Attributes::VALID_SECONDS)
            .zeros(8)
            .attributes(attributes)
    }

    /// `fuse_attr_out`.
    pub fn attributes_only(attributes: &Attributes) -> Self {
        Self::empty().u64(Attributes::VALID_SECONDS).zeros(8).attributes(attributes)
    }

    /// `fuse_attr`.
    fn attributes(self, attributes: &Attributes) -> Self {
        let Attributes { node, size, mode, links, uid, gid, time } = *attributes;
        self.u64(node)
            .u64(size)
            .u64(size.div_ceil(512))
            .u64(time)
            .u64(time)
            .u64(time)
            .zeros(3 * 4) // nanoseconds
            .u32(mode)
            .u32(links)
            .u32(uid)
            .u32(gid)
            .u32(0) // device
            .u32(Attributes::BLOCK_SIZE)
            .u32(0) // flags
    }

    /// `fuse_open_out` for the file.
    pub fn opened_file() -> Self {
        Self::empty().u64(0).u32(OPEN_DIRECT | CLOSE_AT_ONCE | OPEN_PARALLEL_WRITES).u32(0)
    }

    /// `fuse_open_out` for the directory.
    pub fn opened_directory() -> Self {
        Self::empty().zeros(16)
    }

    /// `fuse_write_out`.
    pub fn written(len: u32) -> Self {
        Self::empty().u32(len).u32(0)
    }

    /// `fuse_lseek_out`.
    pub fn position(offset: u64) -> Self {
        Self::empty().u64(offset)
    }

    /// `fuse_statfs_out` of a full file system with one file of `size` bytes.
    pub fn file_system(size: u64) -> Self {
        Self::empty()
            .u64(size.div_ceil(u64::from(Attributes::BLOCK_SIZE)))
            .zeros(2 * 8) // free blocks, available blocks
            .u64(1)
            .u64(0) // free nodes
            .u32(Attributes::BLOCK_SIZE)
            .u32(255)
            .u32(Attributes::BLOCK_SIZE)
            .zeros(7 * 4)
    }

    /// As many `fuse_dirent` of the directory as fit into `len` bytes, from the `offset`-th on.
    pub fn directory(file_name: &[u8], offset: u64, len: u32) -> Self {
        let entries: [(&[u8], u64, u32); 3] =
            [(b".", ROOT, DIRECTORY_ENTRY), (b"..", ROOT, DIRECTORY_ENTRY), (file_name, FILE, FILE_ENTRY)];
        let mut reply = Self::empty();
        for (index, (name, node, kind)) in (1..).zip(entries) {
            let entry_len = (24 + name.len()).next_multiple_of(8);
            if index <= offset {
                continue;
            }
            if reply.0.len() + entry_len > len as usize {
                break;
            }
            let end = reply.0.len() + entry_len;
            reply = reply.u64(node).u64(index).u32(name.len() as u32).u32(kind);
            reply.0.extend_from_slice(name);
            reply.0.resize(end, 0);
        }
        reply
    }
}

/// `fuse_out_header` of a reply with `body_len` bytes after it, or of a refusal, which has none.
pub(super) fn reply_header(unique: u64, outcome: Result<usize, Errno>) -> [u8; REPLY_HEADER] {
    let (body_len, error) = match outcome {
        Ok(len) => (len, 0),
        Err(errno) => (0, -errno.raw_os_error()),
    };
    let mut header = [0; REPLY_HEADER];
    header[..4].copy_from_slice(&((REPLY_HEADER + body_len) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// What kernel and server agree on at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Bytes.
    pub max_readahead: u32,
    /// `FUSE_*` capabilities that both have.
    pub flags: u32,
    /// Asynchronous requests that the kernel lets be under way at once.
    pub max_background: u16,
    /// Asynchronous requests from which on the kernel holds back its own readahead.
    pub congestion_threshold: u16,
    /// Bytes.
    pub max_write: u32,
    /// The largest request, in pages.
    pub max_pages: u16,
}

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub node: u64,
    /// Bytes.
    pub size: u64,
    /// Kind and permissions.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// All three time stamps, in seconds since 1970.
    pub time: u64,
}

impl Attributes {
    /// How long the kernel may trust what it was told. Nothing changes while the mount lasts.
    const VALID_SECONDS: u64 = 86_400;
    /// Preferred size of requests, and the granularity of discards that a loop device announces.
    const BLOCK_SIZE: u32 = sealdisk_units::SECTOR_SIZE as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(((REQUEST_HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(opcode.to_ne_bytes());
        message.extend(7u64.to_ne_bytes());
        message.extend(FILE.to_ne_bytes());
        message.extend([0; 16]);
        message.extend(body);
        message
    }

    #[test]
    fn a_message_cut_off_anywhere_is_malformed_and_every_opcode_is_survived() {
        for opcode in (0..64).chain([4096, u32::MAX]) {
            let whole = message(opcode, &[0xff; 128]);
            for len in 0..whole.len() {
                match parse(&whole[..len]) {
                    Err(Malformed) => assert!(len < REQUEST_HEADER),
                    Ok((header, _)) => assert_eq!((header.unique, header.node), (7, FILE)),
                }
            }
        }
    }

    #[test]
    fn a_write_longer_than_its_message_is_malformed() {
        let mut body = Vec::new();
        body.extend([0; 8]);
        body.extend(4096u64.to_ne_bytes());
        body.extend(3u32.to_ne_bytes());
        body.extend([0; 12]);
        body.extend(libc::O_DSYNC.to_ne_bytes());
        body.extend([0; 4]);
        body.extend(b"ab");
        assert_eq!(parse(&message(16, &body)).unwrap().1, Err(Malformed));
        body.extend(b"c");
        let write = Request::Write { offset: 4096, data: b"abc", durable: true };
        assert_eq!(parse(&message(16, &body)).unwrap().1, Ok(write));
        assert_eq!(message(16, &body).len(), WRITE_OVERHEAD + 3);
    }

    #[test]
    fn replies_have_the_sizes_of_the_kernels_structures() {
        let attributes = Attributes { node: FILE, size: 1, mode: 0, links: 1, uid: 0, gid: 0, time: 0 };
        let agreed = Agreed {
            max_readahead: 0,
            flags: 0,
            max_background: 0,
            congestion_threshold: 0,
            max_write: 0,
            max_pages: 0,
        };
        assert_eq!(Reply::init(&agreed).as_bytes().len(), 64);
        assert_eq!(Reply::entry(&attributes).as_bytes().len(), 128);
        assert_eq!(Reply::attributes_only(&attributes).as_bytes().len(), 104);
        assert_eq!(Reply::opened_file().as_bytes().len(), 16);
        assert_eq!(Reply::file_system(1).as_bytes().len(), 80);
    }

    #[test]
    fn a_directory_is_listed_in_as_many_pieces_as_the_reader_likes() {
        let whole = Reply::directory(b"disk", 0, 4096);
        let mut pieces = Vec::new();
        for offset in 0..4 {
            pieces.extend_from_slice(Reply::directory(b"disk", offset, 32).as_bytes());
        }
        assert_eq!(whole.as_bytes(), pieces);
        assert_eq!(whole.as_bytes().len(), 96);
    }
}
