//! The life of an attached volume, from the first client to the last flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sealdisk_export::{Export, ExportError};
use sealdisk_rados::Cluster;
use sealdisk_volume::{State, Volume};

use crate::control::{Answer, ControlSocket, FAILED, Health, Pending, Request};
use crate::failure::Failure;
use crate::helper::helper;
use crate::registry::Claim;
use crate::signals::HeldSignals;

/// How often to look whether a disk that was in use when it was to end has become free.
const RETRY: Duration = Duration::from_secs(1);

/// A volume with its export.
pub struct Served {
    /// What is served.
    pub volume: Arc<Volume>,
    /// The connection behind which it lies.
    pub cluster: Option<Arc<Cluster>>,
    /// How it is served.
    pub export: Box<dyn Export>,
}

/// A volume with its export, and everything that can make it end.
pub struct Server {
    /// The name in the registry.
    pub claim: Claim,
    /// What is served, and how.
    pub served: Served,
    /// Where requests arrive.
    pub control: ControlSocket,
    /// Held back since before any thread was started.
    pub signals: HeldSignals,
}

impl Server {
    /// Serves until a signal or a request to detach, and then flushes.
    ///
    /// A disk that is in use (a file system on it is mounted) is not taken away: a request to detach is refused, and after
    /// a signal everything is flushed and the service ends as soon as the disk is free. A second signal ends it anyway.
    pub fn run(mut self) -> Result<(), Failure> {
        let mut ending = false;
        loop {
            let retry = Timespec { tv_sec: RETRY.as_secs() as i64, tv_nsec: 0 };
            let mut fds = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.control, PollFlags::IN)];
            match poll(&mut fds, ending.then_some(&retry)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Failure::io("waiting for requests", &e.into())),
            }
            if self.signals.take().is_some() {
                if ending {
                    eprintln!("sealdisk: second signal: ending although the disk is in use");
                    return self.end();
                }
                ending = true;
                match self.served.export.release() {
                    Ok(()) => return self.end(),
                    Err(error) => self.prepare_to_end(&error),
                }
            } else if ending && self.served.export.release().is_ok() {
                return self.end();
            }
            if let Some(pending) = self.control.accept() {
                match pending.request {
                    Request::Status => pending.answer(&Answer::Status(health(&self.served, ending))),
                    Request::Detach => match self.served.export.release() {
                        Ok(()) => return self.detach(pending),
                        Err(error) => pending.answer(&failed(&Failure::from(error))),
                    },
                }
            }
        }
    }

    /// The disk cannot be taken away yet, but the machine may be going down.
    fn prepare_to_end(&self, reason: &ExportError) {
        eprintln!("sealdisk: {reason}; ending as soon as that is done");
        // File systems on the disk write back what they hold, which this process goes on serving meanwhile. Nobody waits
        // for it, since it waits for every other disk of the machine, too.
        std::thread::spawn(|| helper().sync().unwrap_or_else(|error| eprintln!("sealdisk: {error}")));
        if let Err(error) = self.served.volume.flush() {
            eprintln!("sealdisk: {error}");
        }
    }

    fn detach(self, pending: Pending) -> Result<(), Failure> {
        // Whoever asked hears how it ended, so that nothing need be kept.
        let result = self.stop(Afterwards::Forget);
        match &result {
            Ok(()) => pending.answer(&Answer::Detached),
            Err(failure) => pending.answer(&failed(failure)),
        }
        result
    }

    /// Ends before anybody was told of the disk.
    pub fn abandon(self) -> Result<(), Failure> {
        self.end()
    }

    fn end(self) -> Result<(), Failure> {
        self.stop(Afterwards::KeepFailure)
    }

    /// Stops the export, flushes, and gives back volume and name: whoever hears of it can attach the volume again.
    fn stop(self, afterwards: Afterwards) -> Result<(), Failure> {
        let Self { claim, served: Served { volume, cluster, export }, control, signals } = self;
        // Flushing may take as long as the store below lets it, and somebody may want to know.
        let health = health_of(&volume, cluster.as_deref(), true);
        let meanwhile = Meanwhile::begin(control, cluster, health);
        let stopped = export.stop().map_err(Failure::from);
        let closed = match sole_owner(volume) {
            Ok(volume) => close(volume),
            Err(volume) => volume.flush().map_err(Failure::from).and_then(|()| {
                Err(Failure::busy("the disk is still in use; everything is flushed, and the next attach tidies up"))
            }),
        };
        drop(meanwhile);
        if closed.is_ok() || afterwards == Afterwards::Forget {
            claim.release();
        }
        // From here on a signal does what it always does.
        drop(signals);
        closed.and(stopped)
    }
}

/// What becomes of the name and the log of a volume that could not be flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    /// They stay until somebody asks: nobody heard of the failure yet.
    KeepFailure,
    /// They go as always.
    Forget,
}

/// Flushes. A volume that takes no writes has nothing that it could flush, which its owner has to know.
fn close(volume: Volume) -> Result<(), Failure> {
    let State::Failed(reason) = volume.status().state else { return Ok(volume.close()?) };
    Err(Failure::usage(format_args!(
        "detached, but what was written since the last good flush is lost ({reason}); check the disk below"
    )))
}

fn failed(failure: &Failure) -> Answer {
    Answer::Failed { code: failure.kind as u8, message: failure.message.clone() }
}

/// How the volume does, for `list` and `info`.
fn health(served: &Served, ending: bool) -> Health {
    health_of(&served.volume, served.cluster.as_deref(), ending)
}

fn health_of(volume: &Volume, cluster: Option<&Cluster>, ending: bool) -> Health {
    let status = volume.status();
    let (state, reason) = match status.state {
        State::Healthy | State::ReadOnly if ending => ("ending", Some("the disk is in use".to_owned())),
        State::Healthy => ("healthy", None),
        State::ReadOnly => ("read-only", None),
        State::Failed(reason) => (FAILED, Some(reason)),
    };
    let counters = [("waiting_sectors", Some(status.waiting_sectors as u64)), ("objects", status.objects)];
    let health = Health {
        state: state.to_owned(),
        waiting_since: None,
        reason,
        damage: status.damage.as_deref().map(damage_story),
        implementation: status.implementation.to_owned(),
        counters: counters.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?))).collect(),
    };
    health.with_wait(cluster.and_then(Cluster::waiting_since))
}

/// Answers while the volume is being flushed for the last time.
struct Meanwhile {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meanwhile {
    /// `health` is how the volume did when it began to end.
    fn begin(control: ControlSocket, cluster: Option<Arc<Cluster>>, health: Health) -> Self {
        let health = Health { state: "ending".to_owned(), reason: Some("it is being flushed".to_owned()), ..health };
        let end = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&end);
        // Without the thread, nobody who asks now gets an answer.
        let thread = std::thread::Builder::new().name("meanwhile".into()).spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let _ = poll(&mut [PollFd::new(&control, PollFlags::IN)], Some(&moment));
                let Some(pending) = control.accept() else { continue };
                let answer = match pending.request {
                    Request::Status => {
                        let since = cluster.as_deref().and_then(Cluster::waiting_since);
                        Answer::Status(health.clone().with_wait(since))
                    }
                    Request::Detach => failed(&Failure::busy("it is being detached already")),
                };
                pending.answer(&answer);
            }
        });
        Self { end, thread: thread.ok() }
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the volume's damage means for its owner.
pub fn damage_story(damage: &str) -> String {
    format!("the journal is damaged: {damage}. Writes that had been flushed are lost; save what is there")
}

/// The only handle on what nobody uses any more. Threads of a stopped export drop theirs as they end; those of an export
/// that could not be stopped keep theirs.
fn sole_owner<T>(mut shared: Arc<T>) -> Result<T, Arc<T>> {
    let mut left = 500;
    loop {
        match Arc::try_unwrap(shared) {
            Err(still_shared) if left > 0 => shared = still_shared,
            other => return other,
        }
        left -= 1;
        std::thread::sleep(Duration::from_millis(10));
    }
}
