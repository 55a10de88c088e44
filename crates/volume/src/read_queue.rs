//! Short reads of a volume that are started one after the other and finish in any order, on one thread.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use sealdisk_store::{AlignedBuf, StoreError};
use sealdisk_units::{ByteRange, SECTOR_SIZE};

use crate::kind::Kind;
use crate::sealed::{Begun, ShortRead};
use crate::{ReadRequest, VolumeError};

/// Longer reads keep the disk and a processor busy by themselves.
const LONGEST: u64 = 64 << 10;

/// Reads in flight on one volume, for the thread that made the queue. A client with many small reads has them all at the
/// disk at once, and each is answered when it is there, without a thread for each.
pub struct ReadQueue {
    kind: Arc<Kind>,
    store: Box<dyn sealdisk_store::ReadQueue>,
    /// Reads that the store is at, at the places that it calls them by.
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// Reads whose bytes have all come. They become plaintext when they are asked for, so that the first can be on its way
    /// to the client before the last is looked at.
    arrived: VecDeque<Arrived>,
}

enum Arrived {
    FromStore(Pending),
    FromMemory(FinishedRead),
}

/// How a read went.
pub struct FinishedRead {
    /// What the caller calls it.
    pub token: u64,
    /// Which bytes of the disk.
    pub range: ByteRange,
    /// The bytes. Unspecified after an error.
    pub buf: AlignedBuf,
    /// Whether they are there.
    pub result: Result<(), VolumeError>,
}

struct Pending {
    token: u64,
    range: ByteRange,
    step: Step,
    data: AlignedBuf,
    seals: AlignedBuf,
    /// What the store has not brought yet.
    parts_left: u8,
    failure: Option<StoreError>,
}

/// What is to be done once everything has come.
enum Step {
    Decrypt,
    Open(ShortRead),
}

/// What a part of a read is, as the lowest bit of its name.
const DATA: u64 = 0;
const SEALS: u64 = 1;

impl ReadQueue {
    pub(crate) fn new(kind: Arc<Kind>) -> Option<Self> {
        let store = Arc::clone(kind.store()).read_queue()?;
        Some(Self { kind, store, pending: Vec::new(), free: Vec::new(), arrived: VecDeque::new() })
    }

    /// Whether a read is of the kind that this queue is for: short, and of whole sectors.
    pub fn takes(range: ByteRange) -> bool {
        let unaligned = (range.offset() | range.len()) % SECTOR_SIZE as u64;
        !range.is_empty() && range.len() <= LONGEST && unaligned == 0
    }

    /// Reads that were started and have not been given back by [`finished`](Self::finished).
    pub fn in_flight(&self) -> usize {
        self.pending.len() - self.free.len() + self.arrived.len()
    }

    /// Starts a read that the queue [takes](Self::takes). `token` comes back with the outcome.
    pub fn start(&mut self, token: u64, range: ByteRange) {
        let mut buf = AlignedBuf::new(range.len() as usize);
        let begun = match &*self.kind {
            Kind::Objects(_) => None,
            Kind::Plain(plain) => plain.place(range).map(|data| (Step::Decrypt, data, None)),
            Kind::Sealed(sealed) => match sealed.begin_read(range, &mut buf) {
                Begun::Done => {
                    let read = FinishedRead { token, range, buf, result: Ok(()) };
                    return self.arrived.push_back(Arrived::FromMemory(read));
                }
                Begun::Fetch { read, data, seals } => Some((Step::Open(read), data, seals)),
                Begun::Mixed => None,
            },
        };
        let Some((step, data, seals)) = begun else { return self.read_now(token, range, buf) };
        let place = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        let parts_left = 1 + u8::from(seals.is_some());
        if let Some(seals) = seals {
            self.store.start(place as u64 * 2 + SEALS, seals.offset, AlignedBuf::new(seals.len as usize));
        }
        self.store.start(place as u64 * 2 + DATA, data.offset, buf);
        let (data, seals) = (AlignedBuf::new(0), AlignedBuf::new(0));
        self.pending[place] = Some(Pending { token, range, step, data, seals, parts_left, failure: None });
    }

    fn read_now(&mut self, token: u64, range: ByteRange, mut buf: AlignedBuf) {
        let mut batch = [ReadRequest::new(range, &mut buf)];
        self.kind.read(&mut batch);
        let [request] = batch;
        let result = request.result;
        self.arrived.push_back(Arrived::FromMemory(FinishedRead { token, range, buf, result }));
    }

    /// Waits until a read has finished, or until `also`, if given, has something to be read or is at its end. Returns
    /// whether the latter is the case. With neither a read in flight nor `also` there is nothing to wait for.
    pub fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        if !self.arrived.is_empty() {
            self.store.submit();
            return false;
        }
        loop {
            let ready = self.store.wait(also);
            self.collect();
            // A part that has come is not yet a read.
            if ready || !self.arrived.is_empty() || self.in_flight() == 0 {
                return ready;
            }
        }
    }

    /// A read that has finished and has not been asked for yet.
    pub fn finished(&mut self) -> Option<FinishedRead> {
        Some(match self.arrived.pop_front()? {
            Arrived::FromStore(pending) => self.finish(pending),
            Arrived::FromMemory(read) => read,
        })
    }

    /// Puts together what the store has brought.
    fn collect(&mut self) {
        while let Some(part) = self.store.finished() {
            let place = (part.token / 2) as usize;
            let Some(pending) = &mut self.pending[place] else { continue };
            match part.token % 2 {
                SEALS => pending.seals = part.buf,
                _ => pending.data = part.buf,
            }
            pending.failure = part.result.err().or(pending.failure.take());
            pending.parts_left -= 1;
            if pending.parts_left == 0
                && let Some(pending) = self.pending[place].take()
            {
                self.free.push(place);
                self.arrived.push_back(Arrived::FromStore(pending));
            }
        }
    }

    fn finish(&self, pending: Pending) -> FinishedRead {
        let Pending { token, range, step, data: mut buf, seals, failure, .. } = pending;
        let result = match (&*self.kind, step) {
            (Kind::Sealed(volume), Step::Open(read)) => volume.finish_read(read, &seals, &mut buf, failure.is_none()),
            (Kind::Plain(volume), Step::Decrypt) => volume.finish_read(range, failure.map_or(Ok(()), Err), &mut buf),
            _ => unreachable!("a read ends as its volume began it"),
        };
        FinishedRead { token, range, buf, result }
    }
}
