//! Programs that the tests run: Sealdisk itself, and those of Debian's packages.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

/// Sealdisk, built from the sources as they are now: a test of one package does not build the programs of another.
pub fn sealdisk() -> Command {
    static SEALDISK: LazyLock<PathBuf> = LazyLock::new(build_sealdisk);
    let mut command = Command::new(&*SEALDISK);
    command.stdin(Stdio::null());
    command
}

fn build_sealdisk() -> PathBuf {
    // The profile of this test, so that nothing is compiled twice.
    let profile = if cfg!(debug_assertions) { "test" } else { "release" };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--profile", profile, "--package", "sealdisk", "--bin", "sealdisk"]);
    build.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "sealdisk does not build");
    let messages = String::from_utf8(output.stdout).unwrap();
    let executable = messages.lines().rev().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    executable.expect("cargo says where it put the program")
}

/// A program of a Debian package. A missing one is a failure, not a reason to skip.
pub fn tool(program: &str, package: &str) -> Command {
    let mut command = Command::new(find(program, package));
    command.stdin(Stdio::null());
    command
}

/// A program of a Debian package, run as another user.
pub fn tool_as(user: &str, program: impl AsRef<OsStr>, package: &str) -> Command {
    let known = fs::read_to_string("/etc/passwd").unwrap().lines().any(|line| line.starts_with(&format!("{user}:")));
    assert!(known, "there is no user {user}: install the Debian package {package}");
    // setpriv ends in an exec: the process that is started is the program's own.
    let mut command = tool("setpriv", "util-linux");
    command.args(["--reuid", user, "--regid", user, "--init-groups", "--"]).arg(program);
    command.current_dir("/");
    command
}

/// A daemon of a Debian package, which the kernel kills when this process is gone. To be started by
/// [`Server`](crate::Server).
pub fn daemon(program: &str, package: &str) -> Command {
    let mut command = tool("setpriv", "util-linux");
    command.args(["--pdeathsig", "KILL", "--"]).arg(find(program, package));
    command
}

/// Where a program of a Debian package lies.
pub fn find(program: &str, package: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    folders
        .into_iter()
        .chain(newest_postgres())
        .map(|folder| folder.join(program))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{program} is missing: install the Debian package {package}"))
}

/// Debian keeps every version of PostgreSQL in a folder of its own.
fn newest_postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    versions.filter(|folder| folder.join("initdb").exists()).max_by_key(|folder| version(folder))
}

fn version(folder: &Path) -> u32 {
    let name = folder.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// Runs a command that must succeed, and returns what it printed.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    said
}

/// Runs a command that may fail.
#[track_caller]
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Waits for something that another process does. Not a measurement: the limit only ends a test that has failed.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2400 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("never: {what}");
}
