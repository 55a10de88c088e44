//! A process beside a server, for what the server must not do itself.
//!
//! A process that was killed ends when the last of its threads has left the kernel, and its files are closed then and
//! not before. A thread that waits in the kernel for the process's own disk never leaves it: the threads that would have
//! answered are gone, and what would end the wait, the closing of `/dev/fuse`, waits for this one. Such a process cannot
//! be killed at all, and keeps the lock on its volume until the machine is restarted.
//!
//! So a server asks nothing of its own disk. Opening its file, putting a loop device on it and taking that down, which
//! writes back what the kernel has cached, are done by a program that the server starts and waits for where it can be
//! killed. The program has none of the server's memory, and none of its files, which are closed when it starts. If the
//! server dies, the kernel gives the program an error for an answer, and a signal.

mod messages;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use self::messages::{Task, decode_failure, encode_failure};
use crate::ExportError;
use crate::loop_device::{LoopDevice, LoopOptions};

/// The exit code with which the program says that the task failed, and why on its standard output.
const FAILED: u8 = 1;

/// How to start the program.
#[derive(Debug, Clone)]
pub struct Helper {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Helper {
    /// A program that, when started with `arguments` and more, calls [`run_helper`] with what is more.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(A::into).collect() }
    }

    /// Writes back what file systems and disks of this machine have cached, this server's among them (sync(2)).
    pub fn sync(&self) -> Result<(), ExportError> {
        self.delegate(&Task::Sync).map(drop)
    }

    pub(crate) fn attach_loop(&self, file: &Path, options: &LoopOptions) -> Result<LoopDevice, ExportError> {
        let task = Task::AttachLoop { file: file.to_owned(), options: options.clone() };
        let number = self.delegate(&task)?.parse().map_err(|error| failed(&task, io::Error::other(error)))?;
        Ok(LoopDevice::numbered(number))
    }

    pub(crate) fn detach_loop(&self, device: &LoopDevice) -> Result<(), ExportError> {
        self.delegate(&Task::DetachLoop { number: device.number() }).map(drop)
    }

    /// Starts the program, waits for its end, and returns what it has to say.
    fn delegate(&self, task: &Task) -> Result<String, ExportError> {
        let output = Command::new(&self.program)
            .arg0("sealdisk")
            .args(&self.arguments)
            .arg(getpid().to_string())
            .args(task.to_arguments())
            .env_clear()
            .current_dir("/")
            .process_group(0) // Ctrl-C is the server's, which ends in good order
            .stdin(Stdio::null())
            .output()
            .map_err(|error| ExportError::new(format!("{task}: starting {}", self.program.display()), error))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(said.into_owned());
        }
        let reported = (output.status.code() == Some(FAILED.into())).then(|| decode_failure(&said)).flatten();
        Err(reported.unwrap_or_else(|| {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let died = format!("the process that was to do it ended with {}: {}", output.status, complaint.trim());
            failed(task, io::Error::other(died))
        }))
    }
}

fn failed(task: &Task, source: io::Error) -> ExportError {
    ExportError::new(task.to_string(), source)
}

/// The whole life of the program that a [`Helper`] starts: does what `arguments` say, and returns how to end.
pub fn run_helper(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let server = arguments.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let (Some(server), Some(task)) = (server, Task::parse(arguments)) else {
        eprintln!("sealdisk: only servers start this");
        return ExitCode::from(FAILED);
    };
    // Without its server the task is pointless, and beside the next one harmful, which may have the same path and the
    // same loop device. The signal comes when the thread ends that started this process, and waits for it; not if it has
    // ended before.
    let dies_with_server = set_parent_process_death_signal(Some(Signal::KILL));
    if dies_with_server.is_err() || getppid() != Some(server) {
        return ExitCode::from(FAILED);
    }
    // `/proc/self/exe`, as it may have been started, would be called `exe`: nothing to blame when something hangs.
    let _ = rustix::thread::set_name(c"sealdisk");
    let (answer, code) = match perform(&task) {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        Err(error) => (encode_failure(&error), ExitCode::from(FAILED)),
    };
    let _ = io::stdout().write_all(answer.as_bytes()).and_then(|()| io::stdout().flush()); // nobody waits any more
    code
}

fn perform(task: &Task) -> Result<String, ExportError> {
    match task {
        Task::AttachLoop { file, options } => Ok(LoopDevice::attach(file, options)?.number().to_string()),
        Task::DetachLoop { number } => LoopDevice::numbered(*number).detach().map(|()| String::new()),
        Task::Sync => {
            rustix::fs::sync();
            Ok(String::new())
        }
    }
}
