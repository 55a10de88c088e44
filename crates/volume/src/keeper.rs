//! The thread that writes in the background what waits in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::kind::Kind;

/// How often the thread looks whether anything was written. What waits longer than this while nothing is written goes to
/// its place.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// The thread rests as long as it worked, but no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// Keeps a sealed volume tidy until it is dropped.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Something was written since the thread last looked.
    written: AtomicBool,
    /// The thread shall look now.
    called: Mutex<bool>,
    changed: Condvar,
    stop: AtomicBool,
}

impl Keeper {
    pub(crate) fn start(kind: Arc<Kind>) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("sealdisk-keeper".to_owned())
            .spawn(move || keep(&kind, &theirs))
            // Without the thread the same work is done within the calls of clients.
            .ok();
        Self { shared, thread }
    }

    /// Something was written; the thread notices in its own time. (Waking it for every write would cost each a switch
    /// of tasks.)
    pub(crate) fn note_write(&self) {
        self.shared.written.store(true, Ordering::Relaxed);
    }

    /// There is much to do.
    pub(crate) fn call(&self) {
        let mut called = self.shared.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !*called {
            *called = true;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.call();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(kind: &Kind, shared: &Shared) {
    let Kind::Sealed(sealed) = kind else { return };
    let mut idle = false;
    while !shared.stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        // An error stays in memory: the sectors wait on, and the next flush meets it and reports it.
        let busy = sealed.tidy(idle).unwrap_or(false);
        if busy {
            // Clients that waited meanwhile come first: a lock that is taken again at once would pass them over.
            if !idle {
                std::thread::sleep(start.elapsed().min(LONGEST_PAUSE));
            }
            continue;
        }
        let called = shared.called.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut called, timeout) = shared
            .changed
            .wait_timeout_while(called, LOOKS_EVERY, |called| !*called && !shared.stop.load(Ordering::SeqCst))
            .unwrap_or_else(PoisonError::into_inner);
        *called = false;
        // Two looks in a row without a write between them.
        let written = shared.written.swap(false, Ordering::Relaxed);
        idle = timeout.timed_out() && !written;
    }
}
