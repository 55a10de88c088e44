//! Memory that is lent to requests which are longer than what their worker has.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sealdisk_store::AlignedBuf;

/// Most bytes that are lent at once: an object of Ceph's, mostly. To write one in four pieces costs the cluster about a
/// third more of its time than to write it as a whole.
const MOST_LENT: usize = 4 << 20;
/// How long it may be that nothing was lent or given back while a request waits. Then it does without: whoever has the
/// memory may be waiting for a client.
const PATIENCE: Duration = Duration::from_millis(250);

/// What can be lent.
pub(super) struct Loans {
    /// Bytes, lent or kept.
    most: usize,
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    lent: usize,
    /// When something was lent or given back.
    changed: Instant,
    /// Those who wait, by their tickets.
    queue: VecDeque<u64>,
    tickets: u64,
    /// Kept for the next one of the same size.
    free: Vec<AlignedBuf>,
}

impl Loans {
    /// `most` bytes to be lent.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Self::with_patience(most, PATIENCE)
    }

    fn with_patience(most: usize, patience: Duration) -> Arc<Self> {
        let state = State { lent: 0, changed: Instant::now(), queue: VecDeque::new(), tickets: 0, free: Vec::new() };
        Arc::new(Self { most, patience, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Lends memory for `len` bytes, or for as many as are lent at most. If there is not enough, waits as long as some is
    /// being given back.
    pub(super) fn lend(self: &Arc<Self>, len: usize) -> Option<Loan> {
        let size = len.min(MOST_LENT).next_power_of_two();
        if size > self.most {
            return None;
        }
        let mut state = self.state();
        // In turn: otherwise those who want little would take all that comes back.
        let ticket = state.tickets;
        state.tickets += 1;
        state.queue.push_back(ticket);
        let granted = loop {
            if state.queue.front() == Some(&ticket) && state.lent + size <= self.most {
                break true;
            }
            let Some(patience) = self.patience.checked_sub(state.changed.elapsed()) else { break false };
            let waited = self.changed.wait_timeout(state, patience);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        state.queue.retain(|other| *other != ticket);
        self.changed.notify_all();
        granted.then(|| self.lend_now(state, size))
    }

    /// Lends memory for `len` bytes even if there is none left.
    pub(super) fn overdraw(self: &Arc<Self>, len: usize) -> Loan {
        self.lend_now(self.state(), len.next_power_of_two())
    }

    fn lend_now(self: &Arc<Self>, mut state: MutexGuard<'_, State>, size: usize) -> Loan {
        state.lent += size;
        state.changed = Instant::now();
        let same = state.free.iter().position(|free| free.len() == size);
        let free = same.map(|index| state.free.swap_remove(index));
        let mut superfluous = Vec::new();
        while state.lent + state.free.iter().map(|free| free.len()).sum::<usize>() > self.most {
            match state.free.pop() {
                Some(free) => superfluous.push(free),
                None => break,
            }
        }
        // Without the lock: to give memory back to the system takes its time.
        drop(state);
        drop(superfluous);
        Loan { bytes: Some(free.unwrap_or_else(|| AlignedBuf::new(size))), used: size, of: Arc::clone(self) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that was lent; given back when dropped.
pub(super) struct Loan {
    /// Until it is given back.
    bytes: Option<AlignedBuf>,
    /// Bytes from the start on that can be seen.
    used: usize,
    of: Arc<Loans>,
}

impl Loan {
    /// Only so many bytes from the start on.
    pub(super) fn first(mut self, len: usize) -> Self {
        self.used = self.used.min(len);
        self
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().map_or(&[], |bytes| &bytes[..self.used])
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().map_or(&mut [], |bytes| &mut bytes[..self.used])
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let mut state = self.of.state();
        state.lent -= bytes.len();
        state.changed = Instant::now();
        state.free.push(bytes);
        drop(state);
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_waited_for_but_not_for_ever() {
        assert!(Loans::new(0).lend(1).is_none());
        let loans = Loans::new(2 * MOST_LENT);
        let whole = loans.lend(2 * MOST_LENT).unwrap();
        assert_eq!(whole.len(), MOST_LENT);
        let half = loans.lend(MOST_LENT / 2 - 1).unwrap();
        assert_eq!(half.len(), MOST_LENT / 2);
        assert!(loans.lend(MOST_LENT).is_none());
        let waiting = std::thread::spawn({
            let loans = Arc::clone(&loans);
            move || std::iter::repeat_with(|| loans.lend(MOST_LENT)).flatten().next().map(|loan| loan.as_ptr() as usize)
        });
        let place = whole.as_ptr() as usize;
        drop(whole);
        assert_eq!(waiting.join().unwrap(), Some(place));
    }

    #[test]
    fn those_who_want_little_do_not_pass_those_who_want_much() {
        let loans = Loans::with_patience(MOST_LENT, Duration::MAX);
        let mut little = vec![loans.lend(MOST_LENT / 2).unwrap(), loans.lend(MOST_LENT / 4).unwrap()];
        let much = std::thread::spawn({
            let loans = Arc::clone(&loans);
            move || loans.lend(MOST_LENT).is_some()
        });
        while loans.state().queue.is_empty() {
            std::thread::yield_now();
        }
        let (others, last) = std::sync::mpsc::channel();
        let other = std::thread::spawn({
            let loans = Arc::clone(&loans);
            move || others.send(loans.lend(MOST_LENT / 4)).unwrap()
        });
        while loans.state().queue.len() < 2 {
            std::thread::yield_now();
        }
        little.clear();
        assert!(much.join().unwrap());
        assert!(last.recv().unwrap().is_some());
        other.join().unwrap();
    }

    #[test]
    fn what_is_overdrawn_is_given_back_before_anything_else_is_lent() {
        let loans = Loans::new(MOST_LENT);
        let whole = loans.lend(MOST_LENT).unwrap();
        let beyond = loans.overdraw(5000);
        assert_eq!(beyond.len(), 8192);
        drop(whole);
        assert!(loans.lend(MOST_LENT).is_none());
        drop(beyond);
        assert!(loans.lend(MOST_LENT).is_some());
    }

    #[test]
    fn what_was_given_back_makes_room_for_other_sizes() {
        let loans = Loans::new(MOST_LENT);
        for size in [MOST_LENT, MOST_LENT / 4, MOST_LENT / 2, MOST_LENT] {
            let lent: Vec<_> = (0..MOST_LENT / size).map(|_| loans.lend(size).unwrap()).collect();
            assert_eq!(loans.state().lent, MOST_LENT);
            assert!(loans.state().free.is_empty());
            drop(lent);
            assert_eq!(loans.state().lent, 0);
        }
    }
}
