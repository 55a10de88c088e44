//! What a crash may leave: every subset of the writes that no sync covered, in any order, each possibly torn.

use sealdisk_units::StoreRange;

use crate::fault::{Event, History};
use crate::memory::Image;

/// Where a crash's choices come from: called with `n`, answers a number below `n`.
pub trait Choices {
    /// A number below `n`; `n` is at least 1.
    fn below(&mut self, n: u64) -> u64;
}

/// The smallest unit that a disk writes whole: no disk tears less.
const TEAR_UNIT: usize = 512;

impl History {
    /// The store after a crash that came when `events[..at]` had returned.
    ///
    /// What the last sync before `at` covered is there. Of the events since, each is there, is not, or (a write) is there
    /// in part, in units of `tear` bytes naturally aligned; and they landed in any order.
    ///
    /// `tear` is 512 or the store's `write_atomicity`, never less than the unit that the store promised.
    pub fn crash(&self, at: usize, tear: u32, choices: &mut impl Choices) -> Image {
        let events = &self.events[..at];
        let synced = events.iter().rposition(|event| matches!(event, Event::Sync)).map_or(0, |position| position + 1);
        let mut image = self.start.clone();
        for event in &events[..synced] {
            apply(&mut image, event);
        }
        self.land(image, &events[synced..], tear, choices)
    }

    /// Like [`crash`](Self::crash) for many crashes at rising positions: keeps the durable part from one to the next.
    pub fn crashes<'a>(&'a self) -> DurablePrefix<'a> {
        DurablePrefix { history: self, image: self.start.clone(), applied: 0 }
    }

    fn land(&self, mut image: Image, unsynced: &[Event], tear: u32, choices: &mut impl Choices) -> Image {
        // How eager the disk was: from losing everything to losing nothing, so that both ends are common.
        let eagerness = choices.below(5);
        let mut landing: Vec<&Event> = unsynced.iter().filter(|_| choices.below(4) < eagerness).collect();
        if choices.below(2) == 0 {
            for i in (1..landing.len()).rev() {
                landing.swap(i, choices.below(i as u64 + 1) as usize);
            }
        }
        for event in landing {
            match event {
                Event::Write { offset, bytes } if choices.below(4) == 0 => {
                    tear_write(&mut image, *offset, bytes, tear as usize, choices);
                }
                // A hole is punched extent by extent.
                Event::Zero(range) if choices.below(4) == 0 => {
                    let units = range.len.div_ceil(u64::from(tear));
                    let landed = (choices.below(units + 1) * u64::from(tear)).min(range.len);
                    apply(&mut image, &Event::Zero(StoreRange::new(range.offset, landed)));
                }
                _ => apply(&mut image, event),
            }
        }
        image
    }
}

/// Crash states at positions that do not go back, without replaying the durable part for each.
pub struct DurablePrefix<'a> {
    history: &'a History,
    image: Image,
    applied: usize,
}

impl DurablePrefix<'_> {
    /// As [`History::crash`]; `at` is not less than in the call before.
    pub fn crash(&mut self, at: usize, tear: u32, choices: &mut impl Choices) -> Image {
        let events = &self.history.events[..at];
        let synced = events.iter().rposition(|event| matches!(event, Event::Sync)).map_or(0, |position| position + 1);
        while self.applied < synced {
            apply(&mut self.image, &events[self.applied]);
            self.applied += 1;
        }
        self.history.land(self.image.clone(), &events[self.applied..], tear, choices)
    }
}

fn apply(image: &mut Image, event: &Event) {
    match event {
        Event::Write { offset, bytes } if *offset + bytes.len() as u64 <= image.size() => image.write(*offset, bytes),
        // The resize that made room for it did not land.
        Event::Write { .. } => {}
        Event::Zero(range) if range.end() <= image.size() => image.zero(*range),
        Event::Zero(_) => {}
        Event::Resize(size) => image.resize(*size),
        Event::Sync => {}
    }
}

fn tear_write(image: &mut Image, offset: u64, bytes: &[u8], tear: usize, choices: &mut impl Choices) {
    debug_assert!(tear.is_power_of_two() && tear >= TEAR_UNIT);
    // In order up to some unit, or a random subset of units.
    let in_order = choices.below(2) == 0;
    let mut start = 0;
    while start < bytes.len() {
        let boundary = tear - (offset as usize + start) % tear;
        let end = (start + boundary).min(bytes.len());
        if choices.below(if in_order { 1 + (bytes.len() / tear) as u64 } else { 2 }) == 0 {
            if in_order {
                return;
            }
        } else {
            let range = StoreRange::new(offset + start as u64, (end - start) as u64);
            if range.end() <= image.size() {
                image.write(range.offset, &bytes[start..end]);
            }
        }
        start = end;
    }
}
