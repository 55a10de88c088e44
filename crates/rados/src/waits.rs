//! What is being waited for, so that somebody else can say so: Ceph has no patience that ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Operations that have begun and not ended.
#[derive(Default)]
pub(crate) struct Waits {
    begun: Mutex<Begun>,
}

#[derive(Default)]
struct Begun {
    count: u64,
    /// In the order in which they began.
    at: BTreeMap<u64, Instant>,
}

/// One of them. It ends when this is dropped.
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Waits {
    /// Notes that an operation begins.
    pub(crate) fn begin(&self) -> Wait<'_> {
        let mut begun = self.lock();
        begun.count += 1;
        let number = begun.count;
        begun.at.insert(number, Instant::now());
        Wait { waits: self, number }
    }

    /// Since when the oldest waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().at.first_key_value().map(|(_, at)| *at)
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waits.lock().at.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_has_not_ended_counts() {
        let waits = Waits::default();
        assert_eq!(waits.oldest(), None);
        let first = waits.begin();
        let since = waits.oldest().unwrap();
        let second = waits.begin();
        assert_eq!(waits.oldest(), Some(since));
        drop(first);
        assert!(waits.oldest().unwrap() >= since);
        drop(second);
        assert_eq!(waits.oldest(), None);
    }
}
