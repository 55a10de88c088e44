//! One client, from its greeting to its end.
//!
//! A few threads serve a connection, leader and followers. The leader holds the [`Inbox`] and waits for the client; when
//! requests come it takes all that have arrived, lets go of the inbox for the next leader, serves them as one batch and
//! sends their replies in one call. So a fast client pays two system calls for many requests, a slow disk has several
//! batches in flight, and no request is handed from thread to thread.
//!
//! Short reads are not served in batches: the leader starts them and goes on, and answers each as it finishes. With many of
//! them in flight the disk never waits for the last of a batch, and one thread does it all.
//!
//! To hand over the lead costs a few microseconds of two threads' time. While batches are served faster than it is worth
//! (from a cache, a few requests at a time) the leader keeps the lead. The first slow batch ends that.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sealdisk_units::ByteRange;
use sealdisk_volume::ReadRequest;

use crate::Disk;

use super::batch::{Batch, LongRead};
use super::handshake::{self, Agreed, CLIENT_FLAGS_LEN, MAX_OPTION_LEN, Negotiation, Next, OPTION_HEADER_LEN, Offer};
use super::inbox::{Inbox, Patience};
use super::memory::Memory;
use super::pace::Pace;
use super::reply::{Failure, Replies};
use super::short_reads::ShortReads;
use super::socket::Socket;
use super::transmission::Terms;

/// Most threads that serve one connection.
pub(super) const MAX_WORKERS: usize = 4;
/// The same for a disk that [is far](Disk::is_far): each has one request on its way.
const MAX_FAR_WORKERS: usize = 32;

/// Negotiates with a client until `deadline`. `admit` says whether one more client may be served. `None` if the client
/// leaves, or must.
pub(super) fn negotiate(
    socket: &Socket,
    offer: &Offer,
    deadline: Instant,
    mut admit: impl FnMut() -> bool,
) -> io::Result<Option<Agreed>> {
    socket.send_all_by(&handshake::greeting(), deadline)?;
    let mut client_flags = [0; CLIENT_FLAGS_LEN];
    socket.recv_exact_by(&mut client_flags, deadline)?;
    let Some(mut negotiation) = Negotiation::begin(offer, client_flags) else { return Ok(None) };
    let (mut data, mut out) = (Vec::new(), Vec::new());
    loop {
        let mut header = [0; OPTION_HEADER_LEN];
        socket.recv_exact_by(&mut header, deadline)?;
        let Some((option, len)) = handshake::parse_option_header(&header) else { return Ok(None) };
        out.clear();
        let mut next = if len > MAX_OPTION_LEN {
            discard(socket, len, deadline)?;
            negotiation.answer_too_big(option, &mut out)
        } else {
            data.resize(len as usize, 0);
            socket.recv_exact_by(&mut data, deadline)?;
            negotiation.answer(option, &data, &mut out)
        };
        if matches!(next, Next::Transmission(_)) && !admit() {
            next = negotiation.answer_full(option, &mut out);
        }
        socket.send_all_by(&out, deadline)?;
        match next {
            Next::Option => {}
            Next::Close => return Ok(None),
            Next::Transmission(agreed) => {
                socket.clear_deadline()?;
                return Ok(Some(agreed));
            }
        }
    }
}

fn discard(socket: &Socket, len: u32, deadline: Instant) -> io::Result<()> {
    let mut scratch = [0; 4096];
    let mut left = len as usize;
    while left > 0 {
        let some = left.min(scratch.len());
        socket.recv_exact_by(&mut scratch[..some], deadline)?;
        left -= some;
    }
    Ok(())
}

/// A client in the transmission phase. `K` is kept until the last worker has gone.
pub(super) struct Connection<K> {
    socket: Arc<Socket>,
    disk: Arc<dyn Disk>,
    memory: Arc<Memory>,
    terms: Terms,
    inbox: Mutex<Inbox>,
    /// Held while replies are sent, so that those of two workers do not mix.
    sending: Mutex<()>,
    /// Workers that wait to become the leader.
    followers: AtomicUsize,
    workers: AtomicUsize,
    pace: Pace,
    /// No more requests are to be taken in.
    closing: AtomicBool,
    _kept: K,
}

impl<K: Send + Sync + 'static> Connection<K> {
    pub(super) fn new(
        socket: Arc<Socket>,
        disk: Arc<dyn Disk>,
        memory: Arc<Memory>,
        agreed: Agreed,
        kept: K,
    ) -> Arc<Self> {
        let terms = Terms { disk_size: disk.size(), read_only: disk.is_read_only(), agreed };
        Arc::new(Self {
            socket,
            disk,
            memory,
            terms,
            inbox: Mutex::new(Inbox::new()),
            sending: Mutex::new(()),
            followers: AtomicUsize::new(0),
            workers: AtomicUsize::new(1),
            pace: Pace::default(),
            closing: AtomicBool::new(false),
            _kept: kept,
        })
    }

    /// Takes in no more requests. Those in progress are finished and answered.
    pub(super) fn close_inward(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.socket.close_inward();
    }

    /// Serves the client until it leaves, on this thread and on more of the same kind as they are needed.
    pub(super) fn work(self: &Arc<Self>) {
        let _closer = CloseOnPanic(&self.socket);
        let mut batch = Batch::new(&*self.disk, Arc::clone(&self.memory));
        let mut replies = Replies::new(self.terms.agreed.structured_replies);
        let mut reads = ShortReads::new(&*self.disk, self.memory.short_reads());
        if self.lead_and_serve(&mut batch, &mut reads, &mut replies).is_err() {
            // The client takes no replies: it has gone, or is no client.
            self.closing.store(true, Ordering::Relaxed);
            self.socket.close();
        }
    }

    /// Serves until the stream ends, or fails because the client takes no replies.
    fn lead_and_serve(
        self: &Arc<Self>,
        batch: &mut Batch,
        reads: &mut ShortReads,
        replies: &mut Replies,
    ) -> io::Result<()> {
        let mut lead = None;
        loop {
            let inbox = lead.get_or_insert_with(|| self.follow());
            batch.clear();
            let patience = if reads.in_flight() > 0 { Patience::None } else { Patience::Endless };
            let goes_on = !self.closing.load(Ordering::Relaxed)
                && (reads.are_many() || inbox.receive(&self.socket, &self.terms, batch, patience));
            let came = !batch.is_empty();
            reads.take_from(batch);
            if batch.is_empty() {
                if !goes_on && !came {
                    return self.answer_all(reads, replies);
                }
                if !came || inbox.is_drained() {
                    let more_may_come = !reads.are_many() && !inbox.is_stuck();
                    reads.wait(more_may_come.then_some(&*self.socket));
                }
                self.answer_finished(reads, replies)?;
                continue;
            }
            if batch.is_slow() || !self.pace.is_quick() {
                lead = None;
                self.find_follower();
                // Nobody else answers what this worker has started, and the batch may take long.
                self.answer_all(reads, replies)?;
            }
            self.pace.time(|| self.serve(batch, replies))?;
        }
    }

    /// Answers the short reads that have finished.
    fn answer_finished(&self, reads: &mut ShortReads, replies: &mut Replies) -> io::Result<()> {
        reads.answer(replies);
        if replies.is_empty() {
            return Ok(());
        }
        let _sending = lock(&self.sending);
        replies.send(&self.socket, &[])
    }

    /// Answers all short reads that this worker has started.
    fn answer_all(&self, reads: &mut ShortReads, replies: &mut Replies) -> io::Result<()> {
        while reads.in_flight() > 0 {
            reads.wait(None);
            self.answer_finished(reads, replies)?;
        }
        Ok(())
    }

    /// Waits for the lead.
    fn follow(&self) -> MutexGuard<'_, Inbox> {
        self.followers.fetch_add(1, Ordering::Relaxed);
        let inbox = lock(&self.inbox);
        self.followers.fetch_sub(1, Ordering::Relaxed);
        inbox
    }

    /// Makes sure that someone receives while this worker serves.
    fn find_follower(self: &Arc<Self>) {
        let most = if self.disk.is_far() { MAX_FAR_WORKERS } else { MAX_WORKERS };
        if self.followers.load(Ordering::Relaxed) > 0 || self.workers.load(Ordering::Relaxed) >= most {
            return;
        }
        let Some(room) = self.memory.worker() else { return };
        self.workers.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::clone(self);
        let work = move || {
            connection.work();
            drop(room);
        };
        let spawned = std::thread::Builder::new().name("nbd-worker".into()).spawn(work);
        if spawned.is_err() {
            // Served by fewer threads then.
            self.workers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn serve(&self, batch: &mut Batch, replies: &mut Replies) -> io::Result<()> {
        batch.serve(&*self.disk);
        batch.answer(replies);
        self.send(replies, batch)?;
        // Whoever leads may be waiting for it.
        batch.give_back();
        batch.flush(&*self.disk, replies);
        self.send(replies, batch)?;
        let sent = match batch.long_read() {
            Some(read) if self.terms.agreed.structured_replies => self.send_long_read(read, batch, replies),
            Some(read) => self.send_unstructured_long_read(read, batch, replies),
            None => Ok(()),
        };
        batch.give_back();
        sent
    }

    fn send(&self, replies: &mut Replies, batch: &Batch) -> io::Result<()> {
        if replies.is_empty() {
            return Ok(());
        }
        let _sending = lock(&self.sending);
        replies.send(&self.socket, batch.buffer())
    }

    /// Answers a long read with a chunk for every piece.
    fn send_long_read(&self, read: LongRead, batch: &mut Batch, replies: &mut Replies) -> io::Result<()> {
        let step = batch.make_room_to_read(read.range);
        for piece in self.pieces(read.range, step) {
            let len = piece.len() as usize;
            match self.read_piece(piece, &mut batch.buffer_mut()[..len]) {
                Ok(()) => replies.chunk(read.cookie, piece.offset(), 0..len, piece.end() == read.range.end()),
                Err(failure) => {
                    replies.failed(read.cookie, &failure);
                    return self.send(replies, batch);
                }
            }
            self.send(replies, batch)?;
        }
        Ok(())
    }

    /// Answers a long read of a client without structured replies. Nothing else can be sent in between, and once the
    /// first piece is on its way an error can only be told by ending the connection.
    fn send_unstructured_long_read(&self, read: LongRead, batch: &mut Batch, replies: &mut Replies) -> io::Result<()> {
        let mut sending = None;
        let step = batch.make_room_to_read(read.range);
        for piece in self.pieces(read.range, step) {
            let len = piece.len() as usize;
            let result = self.read_piece(piece, &mut batch.buffer_mut()[..len]);
            match (result, &sending) {
                (Ok(()), None) => {
                    sending = Some(lock(&self.sending));
                    replies.promise(read.cookie);
                }
                (Ok(()), Some(_)) => {}
                (Err(failure), None) => {
                    replies.failed(read.cookie, &failure);
                    return self.send(replies, batch);
                }
                (Err(failure), Some(_)) => return Err(io::Error::other(failure.message)),
            }
            replies.data(0..len);
            replies.send(&self.socket, batch.buffer())?;
        }
        Ok(())
    }

    fn pieces(&self, range: ByteRange, step: usize) -> impl Iterator<Item = ByteRange> {
        let disk_size = self.terms.disk_size;
        (range.offset()..range.end()).step_by(step).map_while(move |offset| {
            let len = (range.end() - offset).min(step as u64);
            ByteRange::checked(offset, len, disk_size).ok()
        })
    }

    fn read_piece(&self, piece: ByteRange, buf: &mut [u8]) -> Result<(), Failure> {
        let mut request = [ReadRequest::new(piece, buf)];
        self.disk.read(&mut request);
        let [request] = request;
        request.result.map_err(|error| Failure::of_range(&error, piece))
    }
}

/// Ends the connection if its worker dies of a bug below, rather than leave the client waiting for ever.
struct CloseOnPanic<'a>(&'a Socket);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// A poisoned lock belongs to a connection that [`CloseOnPanic`] has ended: whoever comes next finds the stream's end.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
