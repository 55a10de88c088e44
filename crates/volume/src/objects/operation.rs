//! Operations: one for each object, and what the map says of it.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use sealdisk_layout::SealPlace;
use sealdisk_store::{ObjectWrite, Step, StoreError, WriteExtent};

use super::ObjectVolume;
use super::change::Change;
use super::plan::Plan;
use super::turns::Turn;
use crate::VolumeError;

impl ObjectVolume {
    /// Carries out the changes whose turn it is, all objects at once.
    pub(super) fn carry_out(&self, turns: &[Turn]) {
        for turn in turns {
            self.versions.begin(turn.object);
        }
        let (dropped, written): (Vec<&Turn>, Vec<&Turn>) =
            turns.iter().partition(|turn| matches!(turn.changes[..], [ref one] if matches!(one.change, Change::Drop)));
        self.write_turns(&written);
        self.drop_turns(&dropped);
        for turn in turns {
            self.versions.end(turn.object);
        }
    }

    fn write_turns(&self, turns: &[&Turn]) {
        // An object that begins to exist with each seal beside its sector is written whole, however little is written to it.
        let whole_objects =
            self.is_interleaved() && turns.iter().any(|turn| !matches!(self.exists(turn.object), Ok(true)));
        let _one_at_a_time = whole_objects.then(|| self.whole_objects.lock().unwrap_or_else(PoisonError::into_inner));
        let whole: Vec<_> = turns.iter().map(|turn| self.make_whole(turn)).collect();
        let mut planned = Vec::with_capacity(turns.len());
        for (turn, whole) in turns.iter().zip(&whole) {
            let plan = match whole {
                Ok(whole) => self.plan(turn, whole.as_ref()).map_err(Arc::new),
                Err(error) => Err(Arc::clone(error)),
            };
            match plan {
                Ok(Some(plan)) => planned.push((*turn, plan)),
                Ok(None) => end(turn, Ok(())),
                Err(error) => end(turn, Err(error)),
            }
        }
        let results = self.write_plans(planned.iter().map(|(_, plan)| plan));
        let mut created = Vec::new();
        for ((turn, plan), result) in planned.iter().zip(results) {
            match result {
                Ok(()) if plan.new => created.push((*turn, plan)),
                Ok(()) => self.adopt(turn, plan),
                Err(error) => {
                    // What was in memory may no longer be what is there, if the error is a final one.
                    end(turn, Err(Arc::new(self.standing.store_error(error))));
                }
            }
        }
        let changes: Vec<_> = created.iter().map(|(_, plan)| (plan.object, true)).collect();
        let outcome = self.change_map(&changes).map_err(Arc::new);
        for (turn, plan) in created {
            // Of several zones, some may have changed in spite of an error.
            match (&outcome, self.exists(plan.object)) {
                (Ok(()), _) | (Err(_), Ok(true)) => self.adopt(turn, plan),
                (Err(error), _) => end(turn, Err(Arc::clone(error))),
            }
        }
    }

    /// The operation has been done: memory follows, and whoever waits is told.
    fn adopt(&self, turn: &Turn, plan: &Plan<'_>) {
        // Where a seal comes with its sector, none need be kept.
        if self.layout.seals() != SealPlace::Interleaved {
            let mut seals = self.seals();
            plan.pages.iter().for_each(|(number, page)| seals.keep(*number, page));
        }
        end(turn, Ok(()));
    }

    /// Objects leave the map, and then the store.
    fn drop_turns(&self, turns: &[&Turn]) {
        let existing: Vec<&Turn> =
            turns.iter().copied().filter(|turn| matches!(self.exists(turn.object), Ok(true))).collect();
        let changes: Vec<_> = existing.iter().map(|turn| (turn.object, false)).collect();
        let outcome = self.change_map(&changes).map_err(Arc::new);
        let removed: Vec<&Turn> =
            existing.into_iter().filter(|turn| matches!(self.exists(turn.object), Ok(false))).collect();
        let remove = |turn: &&Turn| ObjectWrite::new(self.layout.store_object(turn.object), vec![Step::Remove]);
        let mut removals: Vec<_> = removed.iter().map(remove).collect();
        self.objects().write_objects(&mut removals);
        let pages = self.layout.rows().seal_pages_per_object();
        for (turn, removal) in removed.iter().zip(removals) {
            self.seals().forget(turn.object.0 * pages..(turn.object.0 + 1) * pages);
            // It is gone, even if its space is not.
            if let Err(error) = removal.result {
                end(turn, Err(Arc::new(self.standing.store_error(error))));
            }
        }
        for turn in turns {
            let outcome = match self.exists(turn.object) {
                Ok(false) => Ok(()),
                Ok(true) => outcome.clone(),
                Err(error) => Err(Arc::new(error)),
            };
            end(turn, outcome);
        }
    }

    fn write_plans<'p>(&self, plans: impl Iterator<Item = &'p Plan<'p>>) -> Vec<Result<(), StoreError>> {
        let mut writes: Vec<ObjectWrite<'p>> = plans
            .map(|plan| {
                let mut steps = Vec::new();
                if plan.new {
                    steps.push(Step::Clear);
                }
                steps.extend(plan.zeros.iter().map(|(offset, len)| Step::Zero { offset: *offset, len: *len }));
                let write = |(offset, buf): &'p (u64, Cow<'p, [u8]>)| Step::Write(WriteExtent { offset: *offset, buf });
                steps.extend(plan.bytes.iter().map(write));
                steps.extend(plan.keys.iter().map(|(key, seal)| Step::Set { key: *key, value: seal.as_bytes() }));
                ObjectWrite::new(self.layout.store_object(plan.object), steps)
            })
            .collect();
        self.objects().write_objects(&mut writes);
        writes.into_iter().map(|write| write.result).collect()
    }
}

/// Tells everybody who waits for a turn how it ended.
fn end(turn: &Turn, outcome: Result<(), Arc<VolumeError>>) {
    for queued in &turn.changes {
        queued.end(outcome.clone());
    }
}
