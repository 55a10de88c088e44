//! A queue of reads in one io_uring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use sealdisk_units::StoreRange;

use crate::read_queue::{FinishedRead, ReadQueue};
use crate::uring::give_up;
use crate::{AlignedBuf, FileStore, Operation, StoreError};

/// Reads in flight at once; more wait in memory.
const DEPTH: usize = 128;

/// So many reads that finish at once, and leave none in flight, show a disk that tells of nothing before it has done all.
const BULK: usize = 4;

/// Tells the readiness of a descriptor from the end of a read.
const READINESS: u64 = u64::MAX;

struct Reading {
    token: u64,
    range: StoreRange,
    buf: AlignedBuf,
    /// Bytes that are there already: the kernel may deliver fewer than it was asked for.
    done: usize,
}

/// Reads of a file, on a ring of their own.
pub(crate) struct UringReads {
    ring: IoUring,
    store: Arc<FileStore>,
    /// Reads that the kernel knows, at the places that it calls them by.
    reading: Vec<Option<Reading>>,
    free: Vec<usize>,
    /// Places whose read is to be submitted, again or for the first time.
    to_submit: VecDeque<usize>,
    /// Reads that have no place yet.
    backlog: VecDeque<Reading>,
    finished: VecDeque<FinishedRead>,
    /// The kernel has been asked to tell when a descriptor becomes readable, and has not yet.
    watching: bool,
    /// It has, and nobody has been told yet.
    ready: bool,
    /// The disk tells of finished reads only once it has nothing left to do, as those of some virtual machines do. If it
    /// had all reads at once, it would then stand idle until the client has seen them and asked for more. So it gets half,
    /// and the other half the moment the first is done.
    in_bulk: bool,
}

impl UringReads {
    /// A queue, or the kernel's reason why there is none.
    pub(crate) fn new(store: Arc<FileStore>) -> io::Result<Self> {
        // One more than reads, for readiness. The flags spare interrupts where only one thread submits and waits (Linux
        // 6.1); without them it works all the same.
        let entries = (DEPTH + 1) as u32;
        let mut builder = IoUring::builder();
        builder.dontfork();
        let ring = match builder.clone().setup_single_issuer().setup_defer_taskrun().build(entries) {
            Ok(ring) => ring,
            Err(_) => builder.build(entries)?,
        };
        Ok(Self {
            ring,
            store,
            reading: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            to_submit: VecDeque::new(),
            backlog: VecDeque::new(),
            finished: VecDeque::new(),
            watching: false,
            ready: false,
            in_bulk: false,
        })
    }

    fn in_flight(&self) -> usize {
        DEPTH - self.free.len()
    }

    /// Puts what is to be submitted into the ring, which has room for all of it.
    fn fill_ring(&mut self) {
        let outstanding = self.in_flight() + self.backlog.len() + self.finished.len();
        let most = if self.in_bulk { outstanding.div_ceil(2) } else { DEPTH };
        while self.in_flight() < most
            && let Some(place) = self.free.pop()
        {
            let Some(reading) = self.backlog.pop_front() else {
                self.free.push(place);
                break;
            };
            self.reading[place] = Some(reading);
            self.to_submit.push_back(place);
        }
        let mut queue = self.ring.submission();
        while let Some(place) = self.to_submit.pop_front() {
            let Some(reading) = &mut self.reading[place] else { continue };
            let rest = &mut reading.buf[reading.done..];
            let offset = reading.range.offset + reading.done as u64;
            let file = self.store.descriptor(offset, rest.as_ptr(), rest.len());
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), rest.as_mut_ptr(), rest.len() as u32);
            push(&mut queue, &read.offset(offset).build().user_data(place as u64));
        }
    }

    /// Waits until `want` completions are there, and takes all. Returns whether readiness was among them.
    fn complete(&mut self, want: usize) -> bool {
        match self.ring.submit_and_wait(want) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => give_up(&e),
        }
        let mut ready = false;
        let (in_flight, finished) = (self.in_flight(), self.finished.len());
        for completion in self.ring.completion() {
            if completion.user_data() == READINESS {
                self.watching = false;
                ready = true;
                continue;
            }
            let place = completion.user_data() as usize;
            let Some(reading) = &mut self.reading[place] else { continue };
            let result = match completion.result() {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                n if n > 0 => {
                    reading.done += n as usize;
                    Ok(())
                }
                error if matches!(-error, libc::EINTR | libc::EAGAIN) => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            if result.is_ok() && reading.done < reading.buf.len() {
                self.to_submit.push_back(place);
                continue;
            }
            if let Some(Reading { token, range, buf, .. }) = self.reading[place].take() {
                let result = result.map_err(|source| StoreError { operation: Operation::Read(range), source });
                self.finished.push_back(FinishedRead { token, buf, result });
                self.free.push(place);
            }
        }
        let news = self.finished.len() - finished;
        if news > 0 {
            self.in_bulk = news == in_flight && (news >= BULK || self.in_bulk);
        }
        ready
    }
}

fn push(queue: &mut squeue::SubmissionQueue<'_>, entry: &squeue::Entry) {
    // SAFETY: the memory is in `reading`, which keeps it until its completion has been seen, even when dropped; the
    // descriptor is the store's, which is kept as long. Readiness has no memory.
    // There is room: every place and readiness are in the ring at most once.
    let _ = unsafe { queue.push(entry) };
}

impl ReadQueue for UringReads {
    fn start(&mut self, token: u64, offset: u64, buf: AlignedBuf) {
        let range = StoreRange::new(offset, buf.len() as u64);
        if buf.is_empty() {
            return self.finished.push_back(FinishedRead { token, buf, result: Ok(()) });
        }
        self.backlog.push_back(Reading { token, range, buf, done: 0 });
    }

    fn submit(&mut self) {
        self.fill_ring();
        let ready = self.complete(0);
        // Whoever waits next is told.
        self.ready |= ready;
    }

    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        self.fill_ring();
        if let (Some(fd), false) = (also, self.watching) {
            let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).build();
            push(&mut self.ring.submission(), &poll.user_data(READINESS));
            self.watching = true;
        }
        let mut ready = std::mem::take(&mut self.ready);
        let something = self.in_flight() > 0 || self.watching;
        let mut want = usize::from(something && self.finished.is_empty() && !ready);
        loop {
            ready |= self.complete(want);
            let has_news = ready || !self.finished.is_empty() || !something;
            if self.to_submit.is_empty() && (want == 0 || has_news) {
                // The disk goes on while the caller looks at what has come.
                if want > 0 && !self.backlog.is_empty() {
                    self.fill_ring();
                    ready |= self.complete(0);
                }
                return ready;
            }
            // An interruption, or a read that has to go on: not what was waited for.
            self.fill_ring();
            want = usize::from(!has_news);
        }
    }

    fn finished(&mut self) -> Option<FinishedRead> {
        self.finished.pop_front()
    }
}

impl Drop for UringReads {
    fn drop(&mut self) {
        self.backlog.clear();
        loop {
            // Places that are still to be submitted are unknown to the kernel.
            for place in std::mem::take(&mut self.to_submit) {
                self.reading[place] = None;
                self.free.push(place);
            }
            if self.in_flight() == 0 {
                return;
            }
            self.complete(1);
        }
    }
}
