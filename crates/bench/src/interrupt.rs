//! Ctrl-C: whoever waits looks here, and what was started is stopped on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::BenchError;

/// How long to sleep between two looks at something that another process does.
const GLANCE: Duration = Duration::from_millis(10);

/// Whether the benchmark was asked to end.
#[derive(Clone, Default)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on. A second one ends the process as it would have without this.
    pub fn on_signals() -> Result<Self, BenchError> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let failed = BenchError::io("handling signals");
            // In this order: the first signal finds the flag down, and only then raises it.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&interrupt.requested))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupt.requested)))
                .map_err(failed)?;
        }
        Ok(interrupt)
    }

    /// An error once the benchmark was asked to end.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.requested.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Waits until `ready` finds something, for as long as `limit` says. `None` when the time is over.
    pub(crate) fn wait_for<T>(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<Option<T>, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        let began = std::time::Instant::now();
        loop {
            self.check()?;
            if let Some(found) = ready()? {
                return Ok(Some(found));
            }
            if began.elapsed() >= limit {
                return Ok(None);
            }
            std::thread::sleep(GLANCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_what_was_found_with_time_or_with_an_interrupt() {
        let interrupt = Interrupt::default();
        let mut looks = 0;
        let found = interrupt.wait_for(Duration::from_secs(60), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), Some(3));
        assert_eq!(interrupt.wait_for(Duration::ZERO, || Ok(None::<u8>)).unwrap(), None);
        interrupt.requested.store(true, Ordering::Relaxed);
        let ended = interrupt.wait_for(Duration::from_secs(60), || Ok(None::<u8>));
        assert!(matches!(ended, Err(BenchError::Interrupted)));
    }
}
