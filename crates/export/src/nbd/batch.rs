//! A worker's batch: requests that were received together and go to the disk together.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use sealdisk_store::{AlignedBuf, PAGE_SIZE};
use sealdisk_units::ByteRange;
use sealdisk_volume::{ReadRequest, Space, VolumeError, WriteRequest};

use crate::Disk;
use crate::disk::is_short;

use super::loans::Loan;
use super::memory::{BATCH_BYTES, Memory};
use super::reply::{Extent, Failure, MAX_EXTENTS, Replies, extents};
use super::transmission::Command;

/// Most requests in one batch.
const MOST_REQUESTS: usize = 64;
/// Most requests in one batch for a disk that [is far](Disk::is_far), and most bytes of several. A batch ends with its last
/// request, but to serve short ones each by itself would cost this machine more.
const MOST_FAR_REQUESTS: usize = 2;
const MOST_FAR_BYTES: usize = 16 << 10;

/// One request of a batch.
struct Accepted {
    cookie: u64,
    command: Command,
    /// Its bytes in the batch's buffer.
    slot: Range<usize>,
    /// The long write that this is a piece of.
    piece_of: Option<Arc<LongWrite>>,
    outcome: Result<Vec<Extent>, Failure>,
}

/// Requests and the page-aligned memory for their data.
pub(super) struct Batch {
    memory: Arc<Memory>,
    own: AlignedBuf,
    /// Instead of its own, for a request or a piece of one that is longer, and then alone.
    loan: Option<Loan>,
    used: usize,
    requests: Vec<Accepted>,
    most_requests: usize,
    /// Bytes of several.
    most_together: usize,
    long_read: Option<LongRead>,
}

/// A read that does not fit a batch. It is the last request of its batch, and served piece by piece once the others
/// have been answered.
#[derive(Clone, Copy)]
pub(super) struct LongRead {
    pub(super) cookie: u64,
    pub(super) range: ByteRange,
}

/// A write that does not fit a batch. Its pieces arrive in several batches, which several workers may serve at once;
/// whoever finishes last answers it.
pub(super) struct LongWrite {
    progress: Mutex<Progress>,
}

struct Progress {
    bytes_left: u64,
    failure: Option<Failure>,
}

impl LongWrite {
    pub(super) fn new(len: u64) -> Self {
        Self { progress: Mutex::new(Progress { bytes_left: len, failure: None }) }
    }

    /// Counts a piece of `len` bytes; the last one learns how the whole went.
    fn finish_piece(&self, len: u64, result: Result<(), Failure>) -> Option<Result<(), Failure>> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.bytes_left -= len;
        if let Err(failure) = result {
            progress.failure.get_or_insert(failure);
        }
        (progress.bytes_left == 0).then(|| progress.failure.take().map_or(Ok(()), Err))
    }
}

impl Batch {
    /// An empty batch for this disk.
    pub(super) fn new(disk: &dyn Disk, memory: Arc<Memory>) -> Self {
        let (most_requests, most_together) =
            if disk.is_far() { (MOST_FAR_REQUESTS, MOST_FAR_BYTES) } else { (MOST_REQUESTS, BATCH_BYTES) };
        Self {
            own: AlignedBuf::new(memory.of_worker()),
            memory,
            loan: None,
            used: 0,
            requests: Vec::with_capacity(most_requests),
            most_requests,
            most_together,
            long_read: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.requests.clear();
        self.long_read = None;
        self.loan = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.long_read.is_none()
    }

    /// Whether a request with `len` bytes of data can be added.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let most = if self.requests.is_empty() { self.own.len() } else { self.most_together };
        self.long_read.is_none() && self.requests.len() < self.most_requests && self.used + len <= most
    }

    /// Whether a request is so long that it is served in pieces, each alone.
    pub(super) fn is_long(&self, range: ByteRange) -> bool {
        range.len() > self.own.len() as u64
    }

    /// Adds a request without data.
    pub(super) fn push(&mut self, cookie: u64, command: Command) {
        self.add(cookie, command, 0, None);
    }

    /// Adds a read that [has room](Self::has_room).
    pub(super) fn push_read(&mut self, cookie: u64, range: ByteRange) {
        self.add(cookie, Command::Read(range), range.len() as usize, None);
    }

    /// Adds a write that [has room](Self::has_room), whole or a piece; its bytes go where the return value says.
    pub(super) fn push_write(
        &mut self,
        cookie: u64,
        range: ByteRange,
        fua: bool,
        piece_of: Option<Arc<LongWrite>>,
    ) -> &mut [u8] {
        let slot = self.add(cookie, Command::Write { range, fua }, range.len() as usize, piece_of);
        &mut self.buffer_mut()[slot]
    }

    /// Makes room for as much as possible of a long write's `rest`; how many bytes.
    pub(super) fn make_room_to_write(&mut self, rest: u64) -> usize {
        let len = usize::try_from(rest).unwrap_or(usize::MAX);
        if len > self.own.len() {
            self.loan = self.memory.loans().lend(len);
        }
        len.min(self.buffer().len())
    }

    /// Makes room for the pieces of a long read; how many bytes they have. A client may insist on a chunk of up to
    /// [`BATCH_BYTES`], so that is never less.
    pub(super) fn make_room_to_read(&mut self, range: ByteRange) -> usize {
        let len = range.len().min(BATCH_BYTES as u64) as usize;
        if len > self.own.len() {
            let loans = self.memory.loans();
            self.loan = Some(loans.lend(len).unwrap_or_else(|| loans.overdraw(len)));
        }
        len
    }

    /// Adds a read that does not fit.
    pub(super) fn push_long_read(&mut self, cookie: u64, range: ByteRange) {
        self.long_read = Some(LongRead { cookie, range });
    }

    /// Adds a request that will not be served.
    pub(super) fn push_refused(&mut self, cookie: u64, failure: Failure) {
        self.add(cookie, Command::Cache, 0, None);
        if let Some(request) = self.requests.last_mut() {
            request.outcome = Err(failure);
        }
    }

    /// Whether serving is known to take its time.
    pub(super) fn is_slow(&self) -> bool {
        self.long_read.is_some() || self.requests.iter().any(|request| request.command.needs_flush())
    }

    /// Takes out the short reads, each as its cookie and range.
    pub(super) fn take_short_reads(&mut self, mut take: impl FnMut(u64, ByteRange)) {
        self.requests.retain(|request| match request.command {
            Command::Read(range) if is_short(range) => {
                take(request.cookie, range);
                false
            }
            _ => true,
        });
    }

    /// The read to be served piece by piece, after the other requests have been answered.
    pub(super) fn long_read(&self) -> Option<LongRead> {
        self.long_read
    }

    /// Gives back what was lent, once the data are no longer needed.
    pub(super) fn give_back(&mut self) {
        self.loan = None;
    }

    /// Memory for a worker's own use while no request of the batch needs its data.
    pub(super) fn buffer(&self) -> &[u8] {
        self.loan.as_deref().unwrap_or(&self.own)
    }

    /// As [`buffer`](Self::buffer).
    pub(super) fn buffer_mut(&mut self) -> &mut [u8] {
        self.loan.as_deref_mut().unwrap_or(&mut self.own)
    }

    fn add(&mut self, cookie: u64, command: Command, len: usize, piece_of: Option<Arc<LongWrite>>) -> Range<usize> {
        let slot = self.used..self.used + len;
        self.used = slot.end.next_multiple_of(PAGE_SIZE);
        self.requests.push(Accepted { cookie, command, slot: slot.clone(), piece_of, outcome: Ok(Vec::new()) });
        slot
    }

    /// Serves every request but a long read. The order is free: all of them are in flight at once.
    pub(super) fn serve(&mut self, disk: &dyn Disk) {
        self.transfer(disk);
        for request in self.requests.iter_mut().filter(|request| request.outcome.is_ok()) {
            let (range, result) = match request.command {
                Command::Zero { range, space, .. } => (range, disk.zero(range, space).map(|()| Vec::new())),
                Command::Trim { range, .. } => (range, trim(disk, range).map(|()| Vec::new())),
                Command::BlockStatus { range, only_first } => {
                    let limit = if only_first { 1 } else { MAX_EXTENTS };
                    let allocations = disk.allocation(range);
                    (range, allocations.map(|allocations| extents(&allocations, range.len(), limit)))
                }
                _ => continue,
            };
            request.outcome = result.map_err(|error| Failure::of_range(&error, range));
        }
    }

    /// Reads and writes, each kind in one call.
    fn transfer(&mut self, disk: &dyn Disk) {
        if let [Accepted { command: Command::Write { range, .. }, slot, outcome, .. }] = &mut self.requests[..]
            && let Some(loan) = self.loan.take()
        {
            // What was lent to a write is needed by nobody else.
            let mut write = [WriteRequest::giving(*range, Box::new(loan.first(slot.len())))];
            disk.write(&mut write);
            let [WriteRequest { result, .. }] = write;
            if let Err(error) = result {
                *outcome = Err(Failure::of_range(&error, *range));
            }
            return;
        }
        let mut reads = Vec::with_capacity(self.requests.len());
        let mut writes = Vec::with_capacity(self.requests.len());
        // Slots follow one another in the buffer; `rest` is what lies behind the last one cut off, from `rest_start` on.
        let buffer = self.loan.as_deref_mut().unwrap_or(&mut self.own);
        let (mut rest, mut rest_start) = (buffer, 0);
        for (index, request) in self.requests.iter().enumerate().filter(|(_, request)| !request.slot.is_empty()) {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(request.slot.start - rest_start);
            let (data, tail) = tail.split_at_mut(request.slot.len());
            (rest, rest_start) = (tail, request.slot.end);
            match request.command {
                Command::Read(range) => reads.push((index, ReadRequest::new(range, data))),
                Command::Write { range, .. } => writes.push((index, WriteRequest::new(range, data))),
                _ => {}
            }
        }
        let (read_of, mut reads): (Vec<usize>, Vec<_>) = reads.into_iter().unzip();
        let (write_of, mut writes): (Vec<usize>, Vec<_>) = writes.into_iter().unzip();
        if !reads.is_empty() {
            disk.read(&mut reads);
        }
        if !writes.is_empty() {
            disk.write(&mut writes);
        }
        let reads = reads.into_iter().map(|read| (read.range, read.result));
        let writes = writes.into_iter().map(|write| (write.range, write.result));
        for (index, (range, result)) in read_of.into_iter().chain(write_of).zip(reads.chain(writes)) {
            if let Err(error) = result {
                self.requests[index].outcome = Err(Failure::of_range(&error, range));
            }
        }
    }

    /// Answers what has been served and need not wait for [`flush`](Self::flush).
    pub(super) fn answer(&mut self, replies: &mut Replies) {
        self.requests.retain_mut(|request| {
            if let Some(long) = request.piece_of.take() {
                let outcome = std::mem::replace(&mut request.outcome, Ok(Vec::new()));
                match long.finish_piece(request.slot.len() as u64, outcome.map(|_| ())) {
                    None => return false,
                    Some(whole) => request.outcome = whole.map(|()| Vec::new()),
                }
            }
            let waits = request.outcome.is_ok() && request.command.needs_flush();
            if !waits {
                request.answer(replies);
            }
            waits
        });
    }

    /// Serves what [`answer`](Self::answer) left: one flush for all of them.
    pub(super) fn flush(&mut self, disk: &dyn Disk, replies: &mut Replies) {
        if self.requests.is_empty() {
            return;
        }
        let failure = disk.flush().err().map(|error| Failure::of_disk(&error));
        for mut request in self.requests.drain(..) {
            if let Some(failure) = &failure {
                request.outcome = Err(failure.clone());
            }
            request.answer(replies);
        }
    }
}

impl Command {
    /// Whether the reply must wait for a flush.
    fn needs_flush(&self) -> bool {
        match self {
            Self::Flush => true,
            Self::Write { fua, .. } | Self::Zero { fua, .. } | Self::Trim { fua, .. } => *fua,
            _ => false,
        }
    }
}

impl Accepted {
    fn answer(&self, replies: &mut Replies) {
        match (&self.outcome, self.command) {
            (Err(failure), _) => replies.failed(self.cookie, failure),
            (Ok(_), Command::Read(range)) => replies.read(self.cookie, range.offset(), self.slot.clone()),
            (Ok(extents), Command::BlockStatus { .. }) => replies.extents(self.cookie, extents),
            (Ok(_), _) => replies.done(self.cookie),
        }
    }
}

/// Gives back the sectors that lie wholly inside the range. A trim is a hint, and zeroing parts of sectors would cost
/// more than it gives.
fn trim(disk: &dyn Disk, range: ByteRange) -> Result<(), VolumeError> {
    let sectors = range.whole_sectors();
    let size = sealdisk_units::SECTOR_SIZE as u64;
    match ByteRange::checked(sectors.first().0 * size, sectors.count() * size, range.end()) {
        Ok(whole) if !whole.is_empty() => disk.zero(whole, Space::Free),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::NbdError;
    use super::*;

    #[test]
    fn the_last_piece_of_a_long_write_learns_what_happened_to_the_others() {
        let len = 2 * BATCH_BYTES as u64 + 1;
        let piece = BATCH_BYTES as u64;
        let failure = Failure { error: NbdError::Io, message: "second".into(), offset: Some(BATCH_BYTES as u64) };
        let good = LongWrite::new(len);
        assert!(good.finish_piece(piece, Ok(())).is_none());
        assert!(good.finish_piece(piece, Ok(())).is_none());
        assert!(good.finish_piece(1, Ok(())).unwrap().is_ok());
        let bad = LongWrite::new(len);
        assert!(bad.finish_piece(piece, Ok(())).is_none());
        assert!(bad.finish_piece(piece, Err(failure.clone())).is_none());
        let told = bad.finish_piece(1, Ok(())).unwrap().unwrap_err();
        assert_eq!((told.error, told.offset), (failure.error, failure.offset));
    }
}
