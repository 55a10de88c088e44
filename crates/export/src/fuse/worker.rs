//! The threads that serve a mount.
//!
//! Each takes a request, takes along whatever else is waiting already, and serves the lot: all reads with one call of
//! the disk, all writes with another. So a lone request is served by the thread that received it, without being handed
//! on, and a deep queue reaches the disk as batches, which a disk serves with far fewer system calls.

use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno;
use sealdisk_store::{AlignedBuf, PAGE_SIZE};
use sealdisk_units::ByteRange;
use sealdisk_volume::{ReadRequest, WriteRequest};

use super::device::{Device, MAX_IO, MAX_REQUEST, Received, Side, Ticket};
use super::disk_file::{DiskFile, refusal};
use super::wire::{self, Request};
use crate::io_flusher;

/// The most requests served together. More would keep the first of them waiting for the last, while other threads have
/// nothing to do.
const MAX_BATCH: usize = 32;

/// Room for the requests of a batch, and as much for the replies, in bytes. Some more than twice the largest request: a
/// full-sized one can always join what is there. The memory is touched as far as it is used.
const BUFFER: usize = 2 * (MAX_REQUEST + 2 * PAGE_SIZE);

/// Where in a page a request begins, so that the data of a write begin with the next: direct I/O asks for that.
const REQUEST_START: usize = PAGE_SIZE - wire::WRITE_OVERHEAD;

/// A thread's state.
pub(super) struct Worker {
    device: Arc<Device>,
    file: Arc<DiskFile>,
    requests: AlignedBuf,
    replies: AlignedBuf,
}

/// What a thread took on. Ranges of messages lie in `Worker::requests`.
struct Batch {
    reads: Vec<(Ticket, ByteRange)>,
    writes: Vec<Write>,
    /// Something else, served last and alone: it may be a flush, for which nothing else should wait.
    last: Option<(Ticket, Range<usize>)>,
    /// Where in `Worker::requests` the next message goes.
    next_request: usize,
    /// Bytes of `Worker::replies` that the reads will need.
    reply_bytes: usize,
}

/// A write of a batch.
struct Write {
    ticket: Ticket,
    range: ByteRange,
    /// Where the bytes are in `Worker::requests`.
    data: Range<usize>,
    /// Whether it is answered only after a flush.
    durable: bool,
}

impl Batch {
    fn new() -> Self {
        Self { reads: Vec::new(), writes: Vec::new(), last: None, next_request: REQUEST_START, reply_bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.last.is_some()
            || self.reads.len() + self.writes.len() == MAX_BATCH
            || self.next_request + MAX_REQUEST > BUFFER
            || self.reply_bytes + MAX_IO > BUFFER
    }

    /// Who waits for an answer.
    fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let reads = self.reads.iter().map(|(ticket, _)| *ticket);
        let writes = self.writes.iter().map(|write| write.ticket);
        reads.chain(writes).chain(self.last.iter().map(|(ticket, _)| *ticket))
    }
}

impl Worker {
    /// A thread's state for `file`, mounted at `device`.
    pub fn new(device: Arc<Device>, file: Arc<DiskFile>) -> Self {
        Self { device, file, requests: AlignedBuf::new(BUFFER), replies: AlignedBuf::new(BUFFER) }
    }

    /// Serves until the mount is gone.
    pub fn run(mut self) -> io::Result<()> {
        let _ = io_flusher::become_io_flusher(); // better served without than not served
        while let Some(batch) = self.collect()? {
            // A panic below is a bug, and has been reported as one when it gets here. But whoever waits for a disk waits
            // where no signal reaches him; so he is told. The kernel ignores answers to what is answered already.
            if catch_unwind(AssertUnwindSafe(|| self.serve(&batch))).is_err() {
                batch.tickets().for_each(|ticket| self.device.reply(ticket, Err(Errno::IO)));
            }
        }
        Ok(())
    }

    /// Waits for a request and takes along what else is there. `None` at the end.
    fn collect(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch::new();
        let mut side = Side::Sleeping;
        while !batch.is_full() {
            match self.device.receive(side, &mut self.requests[batch.next_request..])? {
                Received::Message(len) => self.add(&mut batch, side, len),
                Received::Nothing => break,
                Received::Unmounted => return Ok(None),
            }
            side = Side::Prompt;
        }
        Ok(Some(batch))
    }

    /// Adds the message of `len` bytes that has just been received behind the batch's others.
    fn add(&self, batch: &mut Batch, side: Side, len: usize) {
        let start = batch.next_request;
        let message = start..start + len;
        let Ok((header, request)) = wire::parse(&self.requests[message.clone()]) else {
            return; // without a header there is nobody to answer
        };
        let ticket = Ticket { side, unique: header.unique };
        let is_file = header.node == wire::FILE;
        match request {
            Ok(Request::Forget) => {}
            Ok(Request::Read { offset, len }) if is_file && len as usize <= MAX_IO => {
                let range = self.file.readable(offset, len);
                batch.reply_bytes += (range.len() as usize).next_multiple_of(PAGE_SIZE);
                batch.reads.push((ticket, range));
            }
            Ok(Request::Write { offset, data, durable }) if is_file => match self.file.writable(offset, data.len()) {
                Ok(range) => {
                    let start = message.start + wire::WRITE_OVERHEAD;
                    let data = start..start + range.len() as usize;
                    batch.writes.push(Write { ticket, range, data, durable });
                    batch.next_request = message.end.next_multiple_of(PAGE_SIZE) + REQUEST_START;
                }
                Err(errno) => self.device.reply(ticket, Err(errno)),
            },
            Ok(_) => batch.last = Some((ticket, message)),
            Err(wire::Malformed) => self.device.reply(ticket, Err(Errno::INVAL)),
        }
    }

    fn serve(&mut self, batch: &Batch) {
        self.read(&batch.reads);
        self.write(&batch.writes);
        if let Some((ticket, message)) = &batch.last
            && let Ok((header, Ok(request))) = wire::parse(&self.requests[message.clone()])
        {
            match self.file.answer(header.node, request) {
                Ok(reply) => self.device.reply(*ticket, Ok(reply.as_bytes())),
                Err(errno) => self.device.reply(*ticket, Err(errno)),
            }
        }
    }

    fn read(&mut self, reads: &[(Ticket, ByteRange)]) {
        if reads.is_empty() {
            return;
        }
        let mut rest = &mut self.replies[..];
        let mut requests = Vec::with_capacity(reads.len());
        for &(_, range) in reads {
            let len = range.len() as usize;
            let (buf, behind) = rest.split_at_mut(len.next_multiple_of(PAGE_SIZE));
            requests.push(ReadRequest::new(range, &mut buf[..len]));
            rest = behind;
        }
        self.file.disk.read(&mut requests);
        for (&(ticket, _), request) in reads.iter().zip(requests) {
            self.device.reply(ticket, request.result.map(|()| &*request.buf).map_err(refusal));
        }
    }

    fn write(&mut self, writes: &[Write]) {
        if writes.is_empty() {
            return;
        }
        let mut requests: Vec<_> =
            writes.iter().map(|write| WriteRequest::new(write.range, &self.requests[write.data.clone()])).collect();
        self.file.disk.write(&mut requests);
        let flushed = match writes.iter().any(|write| write.durable) {
            true => self.file.disk.flush().map_err(refusal),
            false => Ok(()),
        };
        for (write, request) in writes.iter().zip(requests) {
            let written = request.result.map_err(refusal);
            let outcome = if write.durable { written.and(flushed) } else { written };
            let reply = wire::Reply::written(write.range.len() as u32);
            self.device.reply(write.ticket, outcome.map(|()| reply.as_bytes()));
        }
    }
}
