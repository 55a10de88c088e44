//! A place of its own for each test: volumes, keys and a registry that no other test sees. What a test attaches is
//! detached when it ends, however it ends.

#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod typing;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::programs::{succeed, tool};

/// Argon2 as cheap as LUKS2 allows.
pub const CHEAP: [&str; 6] = ["--pbkdf-force-iterations", "4", "--pbkdf-memory", "32", "--pbkdf-parallel", "1"];

/// The folder of one test.
pub struct Place {
    folder: tempfile::TempDir,
    environment: Vec<(String, std::ffi::OsString)>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// The same, with a variable in the environment of every `sealdisk`.
    pub fn with(mut self, variable: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((variable.to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with these bytes.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// `sealdisk` with these arguments, in this folder.
    pub fn sealdisk<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealdisk"));
        command.args(arguments).current_dir(self.folder.path()).env("SEALDISK_RUNTIME_DIR", self.path("run"));
        command.stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(variable, value)| (variable, value)));
        command
    }

    /// Runs `sealdisk`, which must succeed, and returns what it printed.
    pub fn ok<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        succeed(&mut self.sealdisk(arguments))
    }

    /// Runs `sealdisk`, which must fail with this exit code, and returns what it complained of.
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, arguments: &[S]) -> String {
        let output = self.sealdisk(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(complaint.starts_with("sealdisk: "), "{complaint}");
        complaint
    }

    /// A sealed volume of 8 MiB in the file `name` that the key file `key` opens.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.file("key", b"secret");
        self.ok(&[&["format", name, "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat());
        self.path(name)
    }

    /// What `sealdisk list --json` says.
    pub fn list(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.ok(&["list", "--json"])).unwrap()
    }

    /// What `sealdisk info --json` says.
    pub fn info(&self, volume: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["info", volume, "--json"])).unwrap()
    }

    /// The process that serves the only attached volume.
    pub fn pid(&self) -> i32 {
        let list = self.list();
        assert_eq!(list.len(), 1, "{list:?}");
        list[0]["pid"].as_i64().unwrap() as i32
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(output) = self.sealdisk(&["list", "--json"]).output() else { return };
        let Ok(list) = serde_json::from_slice::<Vec<serde_json::Value>>(&output.stdout) else { return };
        for attached in list {
            let detached = self.sealdisk(&["detach", attached["name"].as_str().unwrap_or_default()]).output();
            if !detached.is_ok_and(|output| output.status.success()) && !std::thread::panicking() {
                panic!("{attached} cannot be detached");
            }
        }
    }
}

/// What a client of a disk does, in Python with libnbd's `h`, and what it prints.
pub fn nbd(uri: &str, program: &str) -> String {
    succeed(tool("python3", "python3-libnbd").args(["-m", "nbd", "--uri", uri.trim(), "--command", program]))
}

/// Debian's cryptsetup.
pub fn cryptsetup<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = tool("cryptsetup", "cryptsetup-bin");
    command.args(arguments);
    command
}

/// The most memory that the process has had resident so far, in MiB.
pub fn peak_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() / 1024
}
