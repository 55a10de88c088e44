//! Programs that the tests run on this machine.

use std::path::Path;
use std::process::{Command, Stdio};

/// A program of another package. A missing one is a failure, not a reason to skip.
pub fn tool(program: &str, package: &str) -> Command {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists());
    let mut command =
        Command::new(found.unwrap_or_else(|| panic!("{program} is missing: install the Debian package {package}")));
    command.stdin(Stdio::null());
    command
}

/// Runs a command that must succeed, and returns what it printed.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    said.into_owned()
}
