//! The short reads that a worker has started and not yet answered.

use sealdisk_volume::FinishedRead;

use crate::Disk;
use crate::disk::ReadQueue;

use super::batch::Batch;
use super::memory::ReadRoom;
use super::reply::{Failure, Replies};
use super::socket::Socket;

/// So many at once keep any disk busy; a client's further requests wait in its socket.
const MANY: usize = 64;

/// Replies that are sent together. Sooner means that the client, and then the disk, has something to do while the rest is
/// made plaintext; disks and clients tend to finish many at once, and would otherwise wait for each other in turn.
const AT_ONCE: usize = 2;

/// A worker's short reads.
pub(super) struct ShortReads {
    /// Not every disk has one.
    queue: Option<Box<dyn ReadQueue>>,
    room: ReadRoom,
}

impl ShortReads {
    pub(super) fn new(disk: &dyn Disk, room: ReadRoom) -> Self {
        Self { queue: disk.read_queue(), room }
    }

    /// Starts the short reads of a batch, which loses them.
    pub(super) fn take_from(&mut self, batch: &mut Batch) {
        if let Some(queue) = &mut self.queue {
            batch.take_short_reads(|cookie, range| {
                self.room.take(range.len() as usize);
                queue.start(cookie, range);
            });
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.in_flight())
    }

    /// Whether no more should be started.
    pub(super) fn are_many(&self) -> bool {
        self.in_flight() >= MANY || self.room.is_exhausted()
    }

    /// Waits until one has finished, or until the socket, if given, has something. With none in flight it returns at once.
    pub(super) fn wait(&mut self, socket: Option<&Socket>) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.in_flight() > 0) {
            queue.wait(socket.map(Socket::as_fd));
        }
    }

    /// Replies for some that have finished.
    pub(super) fn answer(&mut self, replies: &mut Replies) {
        let finished = std::iter::from_fn(|| self.queue.as_mut()?.finished());
        for FinishedRead { token, range, buf, result } in finished.take(AT_ONCE) {
            self.room.give_back(range.len() as usize);
            match result {
                Ok(()) => replies.short_read(token, range.offset(), buf),
                Err(error) => replies.failed(token, &Failure::of_range(&error, range)),
            }
        }
    }
}
