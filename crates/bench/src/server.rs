//! A process under measurement: started, watched, and stopped by its number.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::programs::{as_typed, end, last_words, spawn};
use crate::{BenchError, Interrupt};

/// How long a server may take to be ready.
const STARTING: Duration = Duration::from_secs(60);

/// A server process. Dropping it stops it.
pub(crate) struct Server {
    child: Child,
    command: String,
    out: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `command`; what it says goes to files named `name` in `folder`.
    pub(crate) fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self, BenchError> {
        let (out, log) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.log")));
        let create = |path: &Path| File::create(path).map_err(BenchError::path(path));
        let child = spawn(command.stdout(create(&out)?).stderr(create(&log)?))?;
        Ok(Self { child, command: as_typed(command), out, log })
    }

    /// Waits until `ready` finds something. An error if the server ends before.
    pub(crate) fn wait_for<T>(
        &mut self,
        interrupt: &Interrupt,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, BenchError> {
        let found = interrupt.wait_for(STARTING, || {
            if let Some(found) = ready() {
                return Ok(Some(found));
            }
            match self.child.try_wait().map_err(BenchError::io(self.command.clone()))? {
                Some(status) => Err(self.failed(&status.to_string())),
                None => Ok(None),
            }
        })?;
        found.ok_or_else(|| self.failed("not ready after a minute"))
    }

    /// Waits for the first line that the server prints.
    pub(crate) fn first_line(&mut self, interrupt: &Interrupt) -> Result<String, BenchError> {
        let out = self.out.clone();
        self.wait_for(interrupt, || fs::read_to_string(&out).ok()?.split_once('\n').map(|(line, _)| line.to_owned()))
    }

    fn failed(&self, ending: &str) -> BenchError {
        let said = fs::read(&self.log).unwrap_or_default();
        BenchError::Program {
            command: self.command.clone(),
            ending: ending.to_owned(),
            said: last_words(&String::from_utf8_lossy(&said)),
        }
    }

    /// The most memory that the process has had resident so far, in bytes (`VmHWM` of proc_pid_status(5)).
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        parse_peak_memory(&status).unwrap_or(0)
    }

    /// The processor time that the process has used so far, in user and kernel mode.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let ticks = parse_processor_ticks(&stat).unwrap_or(0);
        Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// Stops the server, which must end by itself when asked.
    pub(crate) fn stop(mut self) -> Result<(), BenchError> {
        if end(&mut self.child) { Ok(()) } else { Err(self.failed("did not end when asked")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn parse_peak_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Fields 14 and 15 of proc_pid_stat(5). The second field is a name in parentheses that may contain anything.
fn parse_processor_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let kernel: u64 = fields.get(12)?.parse().ok()?;
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processor_time_are_found() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  1234 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(parse_peak_memory(status), Some(1234 << 10));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 40 2 0 0 20 0 1 0 5 1 1";
        assert_eq!(parse_processor_ticks(stat), Some(42));
    }

    #[test]
    fn a_server_that_dies_says_why_and_one_that_lives_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let mut dying = Command::new("sh");
        dying.args(["-c", "echo no such disk >&2; exit 4"]);
        let mut server = Server::start(&mut dying, folder.path(), "dying").unwrap();
        let error = server.first_line(&interrupt).unwrap_err().to_string();
        assert!(error.ends_with("exit status: 4: no such disk"), "{error}");

        let mut living = Command::new("sh");
        living.args(["-c", "echo here; exec sleep 1000"]);
        let mut server = Server::start(&mut living, folder.path(), "living").unwrap();
        assert_eq!(server.first_line(&interrupt).unwrap(), "here");
        assert!(server.peak_memory() > 0);
        let process = PathBuf::from(format!("/proc/{}", server.child.id()));
        server.stop().unwrap();
        assert!(!process.exists());
    }
}
