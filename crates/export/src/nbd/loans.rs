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
}

struct State {
    lent: usize,
    /// When something was lent or given back.
    changed: Instant,
    /// Those who wait, in turn: otherwise those who want little would take all that comes back.
    queue: VecDeque<Arc<Waiting>>,
    /// Kept for the next one of the same size.
    free: Vec<AlignedBuf>,
}

struct Waiting {
    size: usize,
    /// Its turn has come. Each has a condition of its own: if all woke for what only one can have, most of the workers' time
    /// would go into that.
    turn: Condvar,
}

impl Loans {
    /// `most` bytes to be lent.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Self::with_patience(most, PATIENCE)
    }

    fn with_patience(most: usize, patience: Duration) -> Arc<Self> {
        let state = State { lent: 0, changed: Instant::now(), queue: VecDeque::new(), free: Vec::new() };
        Arc::new(Self { most, patience, state: Mutex::new(state) })
    }

    /// Lends memory for `len` bytes, or for as many as are lent at most. If there is not enough, waits as long as some is
    /// being given back.
    pub(super) fn lend(self: &Arc<Self>, len: usize) -> Option<Loan> {
        let size = len.min(MOST_LENT).next_power_of_two();
        if size > self.most {
            return None;
        }
        let mut state = self.state();
        let waiting = Arc::new(Waiting { size, turn: Condvar::new() });
        state.queue.push_back(Arc::clone(&waiting));
        let granted = loop {
            if self.next(&state).is_some_and(|next| Arc::ptr_eq(next, &waiting)) {
                break true;
            }
            let Some(patience) = self.patience.checked_sub(state.changed.elapsed()) else { break false };
            let waited = waiting.turn.wait_timeout(state, patience);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        state.queue.retain(|other| !Arc::ptr_eq(other, &waiting));
        if granted {
            return Some(self.lend_now(state, size));
        }
        self.pass_on(state);
        None
    }

    /// Lends memory for `len` bytes even if there is none left.
    pub(super) fn overdraw(self: &Arc<Self>, len: usize) -> Loan {
        self.lend_now(self.state(), len.next_power_of_two())
    }

    fn lend_now(self: &Arc<Self>, mut state: MutexGuard<'_, State>, size: usize) -> Loan {
        state.lent += size;
        state.changed = Instant::now();
        // The last that came back: some of it may still be in the processor's caches.
        let same = state.free.iter().rposition(|free| free.len() == size);
        let free = same.map(|index| state.free.swap_remove(index));
        let mut superfluous = Vec::new();
        while state.lent + state.free.iter().map(|free| free.len()).sum::<usize>() > self.most {
            match state.free.pop() {
                Some(free) => superfluous.push(free),
                None => break,
            }
        }
        self.pass_on(state);
        // Without the lock: to give memory back to the system takes its time.
        drop(superfluous);
        Loan { bytes: Some(free.unwrap_or_else(|| AlignedBuf::new(size))), used: size, of: Arc::clone(self) }
    }

    /// The first of those who wait, if there is enough for it.
    fn next<'a>(&self, state: &'a State) -> Option<&'a Arc<Waiting>> {
        state.queue.front().filter(|first| state.lent + first.size <= self.most)
    }

    /// Ends a change, after which it may be somebody's turn.
    fn pass_on(&self, state: MutexGuard<'_, State>) {
        let next = self.next(&state).cloned();
        drop(state);
        if let Some(next) = next {
            next.turn.notify_one();
        }
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
        self.of.pass_on(state);
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
    fn nobody_waits_for_what_has_come_back() {
        let loans = Loans::with_patience(MOST_LENT, Duration::MAX);
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let loans = &loans;
                scope.spawn(move || {
                    (0..500).for_each(|turn| drop(loans.lend(MOST_LENT >> ((worker + turn) % 4)).unwrap()))
                });
            }
        });
        assert_eq!(loans.state().lent, 0);
        assert!(loans.state().queue.is_empty());
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
