//! Which objects of a clone need not be looked for any more.

use std::sync::atomic::{AtomicU64, Ordering};

/// Objects of which is known that they exist, or that there is nothing to copy. One bit each.
pub(super) struct Settled(Vec<AtomicU64>);

impl Settled {
    pub(super) fn new(objects: u64) -> Self {
        Self((0..objects.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn contains(&self, object: u64) -> bool {
        self.word(object).is_none_or(|word| word.load(Ordering::Acquire) >> (object % 64) & 1 == 1)
    }

    pub(super) fn insert(&self, object: u64) {
        if let Some(word) = self.word(object) {
            word.fetch_or(1 << (object % 64), Ordering::Release);
        }
    }

    fn word(&self, object: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(object / 64).ok()?)
    }
}
