//! Whether requests are served so fast that handing over the lead to another thread would cost more than it gains.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A batch that is served faster than this is quick: about ten times what it costs to hand over the lead.
const QUICK: Duration = Duration::from_micros(40);
/// So many quick batches in a row let the next one be expected to be quick too.
const QUICK_RUN: u32 = 8;

/// How fast a client's last batches were served. The first slow one ends a run of quick ones.
#[derive(Default)]
pub(super) struct Pace {
    /// How many of the last batches in a row were quick.
    run: AtomicU32,
}

impl Pace {
    /// Whether the next batch is expected to be quick.
    pub(super) fn is_quick(&self) -> bool {
        self.run.load(Ordering::Relaxed) >= QUICK_RUN
    }

    /// Serves a batch, and takes note of how long that takes.
    pub(super) fn time<T>(&self, serve: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let served = serve();
        if start.elapsed() < QUICK {
            self.run.fetch_add(1, Ordering::Relaxed);
        } else {
            self.run.store(0, Ordering::Relaxed);
        }
        served
    }
}
