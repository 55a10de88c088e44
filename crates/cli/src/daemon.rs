//! Going on in the background: the command returns when the work is under way, and fails with the work's own error if it
//! never gets there.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind};

/// What the daemon tells the command that started it.
#[derive(Serialize, Deserialize)]
enum Report {
    Ready { say: String },
    Failed { code: u8, message: String },
}

/// Whom to tell that the work is under way.
pub struct Ready(Listener);

enum Listener {
    /// The command that forked this process.
    Starter(OwnedFd),
    /// The user, and a service manager if there is one.
    StandardOutput,
}

impl Ready {
    /// The work is done in the foreground: being ready is announced on standard output.
    pub fn in_foreground() -> Self {
        Self(Listener::StandardOutput)
    }

    /// Tells the user now, and whoever reads `log` later.
    pub fn warn(&self, warning: &str, log: &Path) -> Result<(), Failure> {
        eprintln!("sealdisk: warning: {warning}");
        match self.0 {
            Listener::StandardOutput => Ok(()), // standard error stays what it is
            Listener::Starter(_) => {
                let file = File::options().append(true).create(true).open(log);
                let noted = file.and_then(|mut file| writeln!(file, "sealdisk: warning: {warning}"));
                noted.map_err(|e| Failure::path(log, &e))
            }
        }
    }

    /// Announces that the work is under way, with what the user needs to know for the next step, and lets go of the
    /// terminal: what is printed from now on goes to `log`.
    pub fn announce(self, say: &str, log: &Path) -> Result<(), Failure> {
        match self.0 {
            Listener::StandardOutput => {
                crate::output::say(say)?;
                crate::service_manager::notify_ready().map_err(|e| Failure::io("telling the service manager", &e))
            }
            Listener::Starter(pipe) => {
                let log = File::options().append(true).create(true).open(log).map_err(|e| Failure::path(log, &e))?;
                // If nobody waits any more (the command was interrupted), the work is not wanted either.
                report(pipe, &Report::Ready { say: say.to_owned() })
                    .map_err(|e| Failure::io("the command was interrupted", &e))?;
                rustix::stdio::dup2_stderr(&log).map_err(|e| Failure::io("redirecting messages", &e.into()))
            }
        }
    }
}

/// Runs `work` in a process of its own, and returns what it announces when it is ready, or its failure if it ends before.
///
/// The process is a copy of this one, made before any thread exists: secrets reach it in memory only.
pub fn start(work: impl FnOnce(Ready) -> Result<(), Failure>) -> Result<String, Failure> {
    let failed = |e: io::Error| Failure::io("starting a daemon", &e);
    await_being_alone().map_err(failed)?;
    let (from_daemon, to_starter) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    // SAFETY: this process has one thread, so the copy is a complete one.
    match unsafe { libc::fork() } {
        -1 => Err(failed(io::Error::last_os_error())),
        0 => {
            drop(from_daemon);
            std::process::exit(i32::from(run(work, to_starter)));
        }
        _ => {
            drop(to_starter);
            await_report(from_daemon)
        }
    }
}

/// Does `work` in a process of its own and returns what it returns: the threads that it starts are gone afterwards, as a
/// fork needs.
pub fn in_child<T: Serialize + DeserializeOwned>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let failed = |e: io::Error| Failure::io("starting a process", &e);
    await_being_alone().map_err(failed)?;
    let (from_child, to_parent) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    // SAFETY: this process has one thread, so the copy is a complete one.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(failed(io::Error::last_os_error())),
        0 => {
            drop(from_child);
            let found = work().map_err(|failure| (failure.kind as u8, failure.message));
            let told = serde_json::to_vec(&found).is_ok_and(|text| File::from(to_parent).write_all(&text).is_ok());
            // SAFETY: ends this process at once. What the parent has in its buffers is the parent's to write.
            unsafe { libc::_exit(i32::from(!told)) }
        }
        child => child,
    };
    drop(to_parent);
    let found: Result<Result<T, (u8, String)>, _> = serde_json::from_reader(File::from(from_child));
    let mut status = 0;
    // SAFETY: waits for the child that was made above, and nobody else does.
    while unsafe { libc::waitpid(child, &mut status, 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    match found {
        Ok(Ok(found)) => Ok(found),
        Ok(Err((code, message))) => Err(Failure::new(Kind::from_code(code).unwrap_or(Kind::WrongParameters), message)),
        Err(_) => Err(Failure::usage("the process that was to look at the volume died")),
    }
}

/// Returns once this process has one thread. Key derivation uses several, and the kernel lists a thread for a moment after
/// it has been joined.
fn await_being_alone() -> io::Result<()> {
    for _ in 0..1000 {
        if fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other("other threads are running in this process"))
}

fn await_report(from_daemon: OwnedFd) -> Result<String, Failure> {
    let mut text = String::new();
    let read = BufReader::new(File::from(from_daemon)).read_line(&mut text);
    read.map_err(|e| Failure::io("waiting for the daemon", &e))?;
    match serde_json::from_str(&text) {
        Ok(Report::Ready { say }) => Ok(say),
        Ok(Report::Failed { code, message }) => {
            Err(Failure::new(Kind::from_code(code).unwrap_or(Kind::WrongParameters), message))
        }
        Err(_) => Err(Failure::usage("the daemon died before the disk was ready")),
    }
}

/// In the daemon. Returns its exit code.
fn run(work: impl FnOnce(Ready) -> Result<(), Failure>, to_starter: OwnedFd) -> u8 {
    let second = match rustix::io::fcntl_dupfd_cloexec(&to_starter, 3) {
        Ok(second) => second,
        Err(_) => return Kind::WrongParameters as u8,
    };
    let result = leave_the_session().and_then(|()| work(Ready(Listener::Starter(to_starter))));
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let code = failure.kind as u8;
            // After the announcement nobody reads the pipe, and standard error is the log.
            if report(second, &Report::Failed { code, message: failure.message.clone() }).is_err() {
                eprintln!("sealdisk: {failure}");
            }
            code
        }
    }
}

/// A session of its own, so that closing the terminal does not reach it; and nothing of the starter's left open or in
/// the way: folder, input and output. Standard error stays until the disk is ready.
fn leave_the_session() -> Result<(), Failure> {
    let failed = |e: rustix::io::Errno| Failure::io("starting a daemon", &e.into());
    rustix::process::setsid().map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(failed)
}

fn report(pipe: OwnedFd, report: &Report) -> io::Result<()> {
    let mut text = serde_json::to_vec(report)?;
    text.push(b'\n');
    File::from(pipe).write_all(&text)
}
