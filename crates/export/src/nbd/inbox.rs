//! What a client sends, taken from the socket a batch at a time.

use std::io;
use std::sync::Arc;

use sealdisk_units::ByteRange;

use super::batch::{Batch, LongWrite};
use super::socket::Socket;
use super::transmission::{Command, REQUEST_LEN, RequestHeader, Terms};

/// Bytes taken from the socket at once: some 2000 requests for reads, or 15 writes of 4 KiB. Of a longer payload, what
/// did not come with its request is received straight into its place.
const INBOX_BYTES: usize = 64 << 10;

/// The receiving side of a connection; whoever holds it is the one that receives.
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    /// What has been received and not yet been taken.
    unread: std::ops::Range<usize>,
    /// The last receive left nothing behind in the socket.
    drained: bool,
    /// The stream is at its end, or beyond repair.
    ended: bool,
    /// Bytes of a refused request's payload that are still to be thrown away.
    discard: u64,
    /// A long write whose pieces are arriving.
    long_write: Option<ArrivingWrite>,
}

struct ArrivingWrite {
    write: Arc<LongWrite>,
    cookie: u64,
    fua: bool,
    /// What has not arrived yet.
    rest: ByteRange,
}

/// Whether receiving may wait for the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Something else is to be done.
    None,
    /// There is nothing better to do.
    Endless,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; INBOX_BYTES].into(),
            unread: 0..0,
            drained: false,
            ended: false,
            discard: 0,
            long_write: None,
        }
    }

    /// Takes all requests that have arrived whole, as far as the batch has room; if `patience` is endless, waits for the
    /// first. Returns whether more may come.
    pub(super) fn receive(&mut self, socket: &Socket, terms: &Terms, batch: &mut Batch, patience: Patience) -> bool {
        self.drained = false;
        while !self.ended {
            let patience = if batch.is_empty() { patience } else { Patience::None };
            match self.receive_one(socket, terms, batch, patience) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => {
                    self.ended = true;
                    // Only a request that was waited for can have been cut off, and then it is the only one.
                    if patience == Patience::Endless {
                        batch.clear();
                    }
                }
            }
        }
        false
    }

    /// Whether nothing was left behind: there is no use in asking before the socket has more.
    pub(super) fn is_drained(&self) -> bool {
        self.drained && self.unread.is_empty()
    }

    /// Whether a payload is arriving for which there is no room but its place in a batch: receiving goes on only with
    /// endless patience.
    pub(super) fn is_stuck(&self) -> bool {
        self.long_write.is_some() || self.unread.len() == self.buffer.len()
    }

    /// Takes one request, if it has arrived or may be waited for; whether there may be another for this batch.
    fn receive_one(
        &mut self,
        socket: &Socket,
        terms: &Terms,
        batch: &mut Batch,
        patience: Patience,
    ) -> io::Result<bool> {
        if self.discard > 0 {
            return self.discard_some(socket, patience);
        }
        if self.long_write.is_some() {
            // A piece fills a batch, and only whoever has nothing else to serve waits for it.
            if patience == Patience::Endless {
                self.receive_piece(socket, terms, batch)?;
            }
            return Ok(false);
        }
        let Some(header) = self.unread().first_chunk() else { return self.fill(socket, patience) };
        let Some(header) = RequestHeader::parse(header) else { return Err(io::ErrorKind::InvalidData.into()) };
        let cookie = header.cookie;
        let payload = header.payload_len();
        if !batch.has_room(0) {
            return Ok(false);
        }
        match header.check(terms) {
            Err(refusal) => {
                self.take(REQUEST_LEN);
                self.discard = payload.into();
                batch.push_refused(cookie, refusal.into());
            }
            Ok(Command::Disconnect) => self.ended = true,
            Ok(Command::Write { range, fua }) if batch.is_long(range) => {
                self.take(REQUEST_LEN);
                let write = Arc::new(LongWrite::new(range.len()));
                self.long_write = Some(ArrivingWrite { write, cookie, fua, rest: range });
            }
            Ok(Command::Write { range, fua }) => {
                let len = range.len() as usize;
                if !batch.has_room(len) {
                    return Ok(false);
                }
                if self.unread().len() < REQUEST_LEN + len && patience == Patience::None {
                    return self.fill(socket, patience);
                }
                self.take(REQUEST_LEN);
                let slot = batch.push_write(cookie, range, fua, None);
                self.receive_payload(socket, slot)?;
            }
            Ok(Command::Read(range)) if batch.is_long(range) => {
                self.take(REQUEST_LEN);
                batch.push_long_read(cookie, range);
                return Ok(false);
            }
            Ok(Command::Read(range)) => {
                if !batch.has_room(range.len() as usize) {
                    return Ok(false);
                }
                self.take(REQUEST_LEN);
                batch.push_read(cookie, range);
            }
            Ok(command) => {
                self.take(REQUEST_LEN);
                batch.push(cookie, command);
            }
        }
        Ok(true)
    }

    fn receive_piece(&mut self, socket: &Socket, terms: &Terms, batch: &mut Batch) -> io::Result<()> {
        let Some(ArrivingWrite { write, cookie, fua, rest }) = self.long_write.take() else { return Ok(()) };
        let len = batch.make_room_to_write(rest.len()) as u64;
        let beyond = |_| io::Error::from(io::ErrorKind::InvalidData);
        let piece = ByteRange::checked(rest.offset(), len, terms.disk_size).map_err(beyond)?;
        let rest = ByteRange::checked(piece.end(), rest.len() - len, terms.disk_size).map_err(beyond)?;
        let slot = batch.push_write(cookie, piece, fua, Some(Arc::clone(&write)));
        self.receive_payload(socket, slot)?;
        if !rest.is_empty() {
            self.long_write = Some(ArrivingWrite { write, cookie, fua, rest });
        }
        Ok(())
    }

    /// Fills `slot` with the next bytes of the stream.
    fn receive_payload(&mut self, socket: &Socket, slot: &mut [u8]) -> io::Result<()> {
        let here = self.unread.len().min(slot.len());
        slot[..here].copy_from_slice(&self.buffer[self.unread.start..][..here]);
        self.take(here);
        socket.recv_exact(&mut slot[here..])
    }

    /// Throws away what has arrived of a refused payload.
    fn discard_some(&mut self, socket: &Socket, patience: Patience) -> io::Result<bool> {
        if self.unread.is_empty() && !self.fill(socket, patience)? {
            return Ok(false);
        }
        let here = self.discard.min(self.unread.len() as u64);
        self.take(here as usize);
        self.discard -= here;
        Ok(true)
    }

    /// Receives more; whether any came.
    fn fill(&mut self, socket: &Socket, patience: Patience) -> io::Result<bool> {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let free = &mut self.buffer[self.unread.end..];
        let room = free.len();
        let len = match patience {
            Patience::Endless => socket.recv(free)?,
            // Less than was asked for last time: there was no more, and asking again would cost a system call.
            Patience::None if self.drained || room == 0 => return Ok(false),
            Patience::None => match socket.recv_ready(free)? {
                None => return Ok(false),
                Some(len) => len,
            },
        };
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread.end += len;
        self.drained = len < room;
        Ok(true)
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    fn take(&mut self, len: usize) {
        self.unread.start += len;
    }
}
