//! Changes of one object take turns: while an operation is on its way, what comes for its object waits, and goes together
//! with the next.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use sealdisk_layout::ObjectNumber;

use super::change::Change;
use crate::VolumeError;

/// Changes whose turn has come, of one object, in the order in which they came.
pub(super) struct Turn {
    pub(super) object: ObjectNumber,
    pub(super) changes: Vec<Queued>,
}

/// A change, and who waits for it.
pub(super) struct Queued {
    pub(super) change: Change,
    ticket: Arc<Ticket>,
}

impl Queued {
    /// How it ended.
    pub(super) fn end(&self, outcome: Result<(), Arc<VolumeError>>) {
        let _ = self.ticket.outcome.set(outcome);
    }
}

#[derive(Default)]
struct Ticket {
    outcome: OnceLock<Result<(), Arc<VolumeError>>>,
}

/// The objects that are being changed.
#[derive(Default)]
pub(super) struct Turns {
    objects: Mutex<HashMap<ObjectNumber, Waiting>>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Somebody has the turn.
    taken: bool,
    queue: Vec<Queued>,
}

impl Waiting {
    /// What one operation can do: one change after the other, but for whole sectors, of which the newest content counts.
    fn take(&mut self) -> Vec<Queued> {
        let together = self.queue.iter().position(|queued| !queued.change.goes_together());
        let count = together.unwrap_or(self.queue.len());
        self.queue.drain(..count.max(1)).collect()
    }
}

impl Turns {
    fn objects(&self) -> MutexGuard<'_, HashMap<ObjectNumber, Waiting>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues changes and sees to it that all of them are carried out: those whose turn comes by `carry_out`, on this
    /// thread, others by whoever has the turn. Returns the outcomes in the order of the changes.
    pub(super) fn take(
        &self,
        changes: Vec<(ObjectNumber, Change)>,
        carry_out: impl Fn(&[Turn]),
    ) -> Vec<Result<(), Arc<VolumeError>>> {
        let mut mine: Vec<(ObjectNumber, Arc<Ticket>)> = Vec::with_capacity(changes.len());
        {
            let mut objects = self.objects();
            for (object, change) in changes {
                let ticket = Arc::<Ticket>::default();
                mine.push((object, Arc::clone(&ticket)));
                objects.entry(object).or_default().queue.push(Queued { change, ticket });
            }
        }
        while let Some(turns) = self.next(&mine) {
            let turns = Held { turns, of: self };
            carry_out(&turns.turns);
        }
        mine.into_iter().map(|(_, ticket)| ticket.outcome.get().cloned().unwrap_or(Ok(()))).collect()
    }

    /// Waits until it is the turn of some of the objects. `None`: everything is done.
    fn next(&self, mine: &[(ObjectNumber, Arc<Ticket>)]) -> Option<Vec<Turn>> {
        let mut objects = self.objects();
        loop {
            let mut turns: Vec<Turn> = Vec::new();
            let mut waits = false;
            for (object, _) in mine.iter().filter(|(_, ticket)| ticket.outcome.get().is_none()) {
                waits = true;
                if let Some(waiting) = objects.get_mut(object)
                    && !waiting.taken
                    && !waiting.queue.is_empty()
                {
                    waiting.taken = true;
                    let changes = waiting.take();
                    turns.push(Turn { object: *object, changes });
                }
            }
            if !turns.is_empty() {
                return Some(turns);
            }
            if !waits {
                return None;
            }
            objects = self.changed.wait(objects).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Turns that are over when this is dropped, even if whoever had them has met a bug.
struct Held<'a> {
    turns: Vec<Turn>,
    of: &'a Turns,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut objects = self.of.objects();
        for turn in &self.turns {
            if let Some(waiting) = objects.get_mut(&turn.object) {
                waiting.taken = false;
                if waiting.queue.is_empty() {
                    objects.remove(&turn.object);
                }
            }
            for queued in turn.changes.iter().filter(|queued| queued.ticket.outcome.get().is_none()) {
                queued.end(Err(Arc::new(VolumeError::Abandoned)));
            }
        }
        drop(objects);
        self.of.changed.notify_all();
    }
}
