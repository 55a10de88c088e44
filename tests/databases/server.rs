//! The process of a database, which is killed with everything it started.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use support::programs::eventually;

/// A running database.
pub struct Server {
    process: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it; what it says goes to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let said = File::options().create(true).append(true).open(log).unwrap();
        let process = command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
        Self { process, log: log.to_owned() }
    }

    /// Waits until it answers. After a crash that is when it has recovered.
    #[track_caller]
    pub fn wait_until(&mut self, answers: impl Fn() -> bool) {
        eventually("the database answers", || {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the database ended, {status}:\n{}", self.last_words());
            }
            answers()
        });
    }

    /// As a power failure would: no process of it does anything any more.
    pub fn kill(&mut self) {
        let pid = Pid::from_child(&self.process);
        // The first goes first, lest it restart or lament the others.
        let workers = children(pid);
        for pid in std::iter::once(pid).chain(workers) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.process.wait().unwrap();
    }

    /// Asks it to end, and waits for it.
    pub fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        let status: ExitStatus = self.process.wait().unwrap();
        assert!(status.success(), "{status}:\n{}", self.last_words());
    }

    fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.last_words());
        }
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
        }
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| parent_of(*pid) == Some(parent)).filter_map(Pid::from_raw).collect()
}

/// The fourth field of proc_pid_stat(5). The second is a name in parentheses that may contain anything.
fn parent_of(pid: i32) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}
