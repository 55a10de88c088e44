//! Whether an object was written while it was read.

use std::sync::atomic::{AtomicU64, Ordering};

use sealdisk_layout::ObjectNumber;

/// Enough that unrelated objects seldom share one.
const STRIPES: usize = 1024;

/// Counts of the writes that were begun and that have ended.
pub(super) struct Versions {
    stripes: Vec<Stripe>,
}

#[derive(Default)]
struct Stripe {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What an object had been written when it began to be read.
#[derive(Clone, Copy)]
pub(super) struct Version {
    begun: u64,
    quiet: bool,
}

impl Versions {
    pub(super) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    fn stripe(&self, object: ObjectNumber) -> &Stripe {
        &self.stripes[object.0 as usize % STRIPES]
    }

    /// The object is going to be written.
    pub(super) fn begin(&self, object: ObjectNumber) {
        self.stripe(object).begun.fetch_add(1, Ordering::SeqCst);
    }

    /// It is written, and memory has followed.
    pub(super) fn end(&self, object: ObjectNumber) {
        self.stripe(object).ended.fetch_add(1, Ordering::SeqCst);
    }

    /// Before an object is read, and what is in memory of it.
    pub(super) fn now(&self, object: ObjectNumber) -> Version {
        let stripe = self.stripe(object);
        let ended = stripe.ended.load(Ordering::SeqCst);
        let begun = stripe.begun.load(Ordering::SeqCst);
        Version { begun, quiet: begun == ended }
    }

    /// Whether nobody has written the object since, nor was about to.
    pub(super) fn is_still(&self, object: ObjectNumber, before: Version) -> bool {
        before.quiet && self.stripe(object).begun.load(Ordering::SeqCst) == before.begun
    }
}
