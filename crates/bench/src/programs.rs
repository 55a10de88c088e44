//! Programs of other packages: finding them, running them, and saying what to install.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{BenchError, Interrupt};

/// How long a process may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of what a failed program said is shown, in bytes.
const LAST_WORDS: usize = 2000;

/// A program that another package provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: &'static str,
    /// The Debian package that has it.
    pub(crate) package: &'static str,
    /// What makes it print its version.
    version: &'static str,
}

impl Program {
    const fn new(name: &'static str, package: &'static str, version: &'static str) -> Self {
        Self { name, package, version }
    }

    /// Where it lies.
    pub(crate) fn find(self) -> Result<PathBuf, BenchError> {
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        // What only root needs lies where only root looks.
        let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
        std::env::split_paths(&on_path)
            .chain(usual)
            .chain(newest_postgres())
            .map(|folder| folder.join(self.name))
            .find(|path| path.is_file())
            .ok_or(BenchError::Missing { program: self.name, package: self.package })
    }

    /// A command that runs it.
    pub(crate) fn command(self) -> Result<Command, BenchError> {
        self.find().map(Command::new)
    }

    /// The first line that it says of its version; empty where it says nothing.
    pub(crate) fn version(self) -> Result<String, BenchError> {
        let output = self.command()?.arg(self.version).stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::io(self.name))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
    }
}

pub(crate) const FIO: Program = Program::new("fio", "fio", "--version");
pub(crate) const QEMU: Program = Program::new("qemu-storage-daemon", "qemu-system-common", "--version");
/// QEMU's driver for RBD is a part of it that lies in a package of its own.
pub(crate) const QEMU_RBD: Program = Program { package: "qemu-block-extra", ..QEMU };
pub(crate) const CEPH: Program = Program::new("ceph", "ceph-common", "--version");
pub(crate) const RBD: Program = Program::new("rbd", "ceph-common", "--version");
pub(crate) const NBDKIT: Program = Program::new("nbdkit", "nbdkit", "--version");
pub(crate) const CRYPTSETUP: Program = Program::new("cryptsetup", "cryptsetup-bin", "--version");
pub(crate) const GOCRYPTFS: Program = Program::new("gocryptfs", "gocryptfs", "-version");
pub(crate) const INITDB: Program = Program::new("initdb", "postgresql", "--version");
pub(crate) const POSTGRES: Program = Program::new("postgres", "postgresql", "--version");
pub(crate) const PGBENCH: Program = Program::new("pgbench", "postgresql", "--version");
pub(crate) const PSQL: Program = Program::new("psql", "postgresql-client", "--version");
pub(crate) const SETPRIV: Program = Program::new("setpriv", "util-linux", "--version");
pub(crate) const LOSETUP: Program = Program::new("losetup", "mount", "--version");
pub(crate) const MOUNT: Program = Program::new("mount", "mount", "--version");
pub(crate) const UMOUNT: Program = Program::new("umount", "mount", "--version");
pub(crate) const MKFS: Program = Program::new("mkfs.ext4", "e2fsprogs", "-V");
pub(crate) const CP: Program = Program::new("cp", "coreutils", "--version");

/// Debian keeps every version of PostgreSQL in a folder of its own.
fn newest_postgres() -> Option<PathBuf> {
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let folders = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    folders.filter_map(|folder| Some((version(&folder)?, folder.join("bin")))).max().map(|(_, bin)| bin)
}

/// The command as one would type it; the program by its name only.
pub(crate) fn as_typed(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word.into_owned() } else { format!("'{word}'") }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, and returns what it printed. It is killed when the benchmark is interrupted.
pub(crate) fn run(command: &mut Command, interrupt: &Interrupt) -> Result<String, BenchError> {
    let typed = as_typed(command);
    let failed = || BenchError::io(typed.clone());
    // Into files, so that a program that says much is never kept waiting.
    let said = tempfile::NamedTempFile::new().map_err(failed())?;
    let complained = tempfile::NamedTempFile::new().map_err(failed())?;
    let reopen = |file: &tempfile::NamedTempFile| file.reopen().map_err(failed());
    let mut child = spawn(command.stdout(reopen(&said)?).stderr(reopen(&complained)?))?;
    let status = loop {
        match child.try_wait().map_err(failed())? {
            Some(status) => break status,
            None => {
                if let Err(interrupted) = interrupt.check() {
                    end(&mut child);
                    return Err(interrupted);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    };
    let text = |file: &tempfile::NamedTempFile| {
        fs::read(file.path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(failed())
    };
    let (said, complained) = (text(&said)?, text(&complained)?);
    if status.success() {
        return Ok(said);
    }
    let said = last_words(&format!("{said}{complained}"));
    Err(BenchError::Program { command: typed, ending: status.to_string(), said })
}

/// Starts a command in a process group of its own: Ctrl-C at the terminal reaches only the benchmark, which ends things
/// in order.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, BenchError> {
    command.stdin(Stdio::null()).process_group(0).spawn().map_err(BenchError::io(as_typed(command)))
}

/// Ends a process that was started here: asks it to, and after a while no longer asks. Returns whether asking was enough.
pub(crate) fn end(child: &mut Child) -> bool {
    if let Ok(Some(_)) = child.try_wait() {
        return true;
    }
    // Not yet waited for, so the number is still this child's.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Ok(Some(_)) = child.try_wait() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The end of what a program said.
pub(crate) fn last_words(said: &str) -> String {
    let mut start = said.len().saturating_sub(LAST_WORDS);
    while !said.is_char_boundary(start) {
        start += 1;
    }
    said[start..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let error = Program::new("sealdisk-no-such-program", "some-package", "-V").find().unwrap_err();
        assert_eq!(error.to_string(), "sealdisk-no-such-program is missing: install the Debian package some-package");
    }

    #[test]
    fn a_failed_program_says_why() {
        let interrupt = Interrupt::default();
        let error = run(Command::new("sh").args(["-c", "echo no room >&2; exit 3"]), &interrupt).unwrap_err();
        assert_eq!(error.to_string(), "sh -c 'echo no room >&2; exit 3': exit status: 3: no room");
        assert_eq!(run(Command::new("/bin/echo").arg("yes"), &interrupt).unwrap(), "yes\n");
    }
}
