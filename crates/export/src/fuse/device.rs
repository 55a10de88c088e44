//! `/dev/fuse`: where requests come from and replies go.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;

use super::wire::{self, Agreed, Malformed, Reply, Request};

/// The largest read or write, in bytes: what Linux allows without raising `fs.fuse.max_pages_limit`.
pub(super) const MAX_IO: usize = 1 << 20;

/// The room a buffer must have before the kernel gives out a request.
pub(super) const MAX_REQUEST: usize = MAX_IO + wire::WRITE_OVERHEAD;

/// Asynchronous requests (all those of a loop device are) under way at once. The kernel's default of 12 would leave
/// deep queues waiting outside.
const MAX_BACKGROUND: u16 = 256;

/// Capabilities that are used where the kernel has them.
mod capability {
    pub const ASYNC_READ: u32 = 1 << 0;
    pub const BIG_WRITES: u32 = 1 << 5;
    /// An asynchronous direct request is submitted as a whole instead of piece after piece.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// Requests of more than 32 pages.
    pub const MAX_PAGES: u32 = 1 << 22;
    pub const WANTED: u32 = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES;
}

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: libc::Ioctl = 0x8004_e500u32 as libc::Ioctl;

/// A mount's end of the conversation with the kernel. Any number of threads may receive and reply.
///
/// Two file descriptions of the same connection: one that sleeps until there is a request, and one that never does, to
/// take along what else is already waiting. `poll` on one description would wake every sleeping thread for each
/// request; a blocking read wakes one.
pub(super) struct Device {
    sleeping: File,
    prompt: File,
}

/// Through which description a request came: its reply must go the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Waits for a request.
    Sleeping,
    /// Takes one that is there already.
    Prompt,
}

/// What names a request in its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    pub side: Side,
    pub unique: u64,
}

/// What a try to receive gave.
pub(super) enum Received {
    /// A message of this many bytes.
    Message(usize),
    /// No request is waiting.
    Nothing,
    /// The mount is gone.
    Unmounted,
}

impl Device {
    /// Opens the device, unconnected: mounting connects it.
    pub fn open() -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open("/dev/fuse")
    }

    /// Greets the kernel on a device that has just been mounted.
    pub fn connect(mounted: OwnedFd) -> io::Result<Self> {
        let sleeping = File::from(mounted);
        greet(&sleeping)?;
        let prompt = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/fuse")?;
        let source = sleeping.as_raw_fd() as u32;
        // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 from the pointer, which is valid for the length of the call.
        if unsafe { libc::ioctl(prompt.as_raw_fd(), CLONE, &raw const source) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { sleeping, prompt })
    }

    fn side(&self, side: Side) -> &File {
        match side {
            Side::Sleeping => &self.sleeping,
            Side::Prompt => &self.prompt,
        }
    }

    /// Receives a request into `buf`, which must have room for [`MAX_REQUEST`] bytes.
    pub fn receive(&self, side: Side, buf: &mut [u8]) -> io::Result<Received> {
        receive(self.side(side), buf)
    }

    /// Replies. Whether the kernel took it is not told: if not, whoever asked is gone (ENOENT), or the mount is
    /// (ENODEV), and nobody is left to hear of it.
    pub fn reply(&self, ticket: Ticket, outcome: Result<&[u8], Errno>) {
        let _ = send(self.side(ticket.side), ticket.unique, outcome);
    }
}

fn receive(mut device: &File, buf: &mut [u8]) -> io::Result<Received> {
    loop {
        return match device.read(buf) {
            Ok(len) => Ok(Received::Message(len)),
            Err(error) => match Errno::from_io_error(&error) {
                // ENOENT: the request was withdrawn while it was being handed out.
                Some(Errno::INTR | Errno::NOENT) => continue,
                Some(Errno::AGAIN) => Ok(Received::Nothing),
                Some(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Unmounted),
                _ => Err(error),
            },
        };
    }
}

/// Sends a reply. The kernel takes the whole of it or refuses it.
fn send(mut device: &File, unique: u64, outcome: Result<&[u8], Errno>) -> io::Result<usize> {
    let header = wire::reply_header(unique, outcome.map(<[u8]>::len));
    device.write_vectored(&[IoSlice::new(&header), IoSlice::new(outcome.unwrap_or(&[]))])
}

/// The first exchange: version and capabilities.
fn greet(device: &File) -> io::Result<()> {
    let mut buf = vec![0; MAX_REQUEST];
    let Received::Message(len) = receive(device, &mut buf)? else {
        return Err(io::Error::from(io::ErrorKind::NotConnected));
    };
    let malformed = |Malformed| io::Error::new(io::ErrorKind::InvalidData, "the kernel's FUSE greeting makes no sense");
    let (header, request) = wire::parse(&buf[..len]).map_err(malformed)?;
    let Request::Init { major, minor, max_readahead, flags } = request.map_err(malformed)? else {
        return Err(malformed(Malformed));
    };
    if (major, minor) < (wire::MAJOR, wire::MINOR) || major != wire::MAJOR {
        let _ = send(device, header.unique, Err(Errno::PROTO));
        let message = format!("the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) or later is needed");
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let agreed = Agreed {
        max_readahead,
        flags: flags & capability::WANTED,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: MAX_IO as u32,
        max_pages: (MAX_IO / rustix::param::page_size()) as u16,
    };
    send(device, header.unique, Ok(Reply::init(&agreed).as_bytes()))?;
    Ok(())
}
