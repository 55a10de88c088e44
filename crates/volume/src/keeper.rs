//! The thread that writes in the background what waits in memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::volume::Kind;

/// How long nothing must have been written before the journal is emptied.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Keeps a sealed volume tidy until it is dropped.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Something was written since the thread last looked.
    written: Mutex<bool>,
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

    /// Something was written.
    pub(crate) fn wake(&self) {
        let mut written = self.shared.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !*written {
            *written = true;
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(kind: &Kind, shared: &Shared) {
    let Kind::Sealed(sealed) = kind else { return };
    let mut idle = false;
    while !shared.stop.load(Ordering::SeqCst) {
        // An error stays in memory: the sectors wait on, and the next flush meets it and reports it.
        let busy = sealed.tidy(idle).unwrap_or(false);
        if busy {
            continue;
        }
        let written = shared.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut written, timeout) = shared
            .changed
            .wait_timeout_while(written, IDLE_AFTER, |written| !*written && !shared.stop.load(Ordering::SeqCst))
            .unwrap_or_else(PoisonError::into_inner);
        *written = false;
        idle = timeout.timed_out();
    }
}
