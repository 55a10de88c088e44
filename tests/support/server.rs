//! The process of a server, which is killed with everything it started.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::eventually;

/// A running server.
pub struct Server {
    process: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it; what it says goes to `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let said = File::options().create(true).append(true).open(log).unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(said);
        Self { process: spawn(command).unwrap(), log: log.to_owned() }
    }

    /// Waits until it answers. After a crash that is when it has recovered.
    #[track_caller]
    pub fn wait_until(&mut self, answers: impl Fn() -> bool) {
        eventually("the server answers", || {
            self.assert_runs();
            answers()
        });
    }

    /// Shows what it said last if it is no longer there.
    #[track_caller]
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.process.try_wait().unwrap() {
            panic!("the server ended, {status}:\n{}", self.last_words());
        }
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

    /// Lets it do nothing until it is resumed, as a machine does that hangs: its connections stay and nobody answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, and waits for it.
    pub fn stop(self, signal: Signal) {
        self.signal(signal);
        self.finish();
    }

    /// Waits for its end, which must be a good one.
    pub fn finish(mut self) {
        let status: ExitStatus = self.process.wait().unwrap();
        assert!(status.success(), "{status}:\n{}", self.last_words());
    }

    /// Asks all of them to end, and kills those that take their time.
    pub fn end_all<'a>(servers: impl IntoIterator<Item = &'a mut Self>, patience: Duration) {
        let mut running: Vec<_> =
            servers.into_iter().filter_map(|server| server.is_running().then_some(server)).collect();
        running.iter().for_each(|server| server.signal(Signal::TERM));
        let begun = Instant::now();
        while running.iter_mut().any(|server| server.is_running()) && begun.elapsed() < patience {
            thread::sleep(Duration::from_millis(10));
        }
        running.into_iter().filter_map(|server| server.is_running().then_some(server)).for_each(Self::kill);
    }

    fn is_running(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.last_words());
        }
        if self.is_running() {
            self.kill();
        }
    }
}

/// Starts a process from a thread that ends only with this process. The kernel sends the signal of setpriv's `--pdeathsig`
/// when the *thread* is gone that started the child, and each test has a thread of its own.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<Sender<(Command, Sender<io::Result<Child>>)>> = LazyLock::new(|| {
        let (sender, commands) = mpsc::channel::<(Command, Sender<io::Result<Child>>)>();
        thread::spawn(move || {
            commands.into_iter().for_each(|(mut command, answer)| answer.send(command.spawn()).unwrap())
        });
        sender
    });
    let (sender, answer) = mpsc::channel();
    STARTER.send((command, sender)).unwrap();
    answer.recv().unwrap()
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
