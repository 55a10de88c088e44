//! A folder that outlives no test.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An empty folder on disk. It vanishes when this is dropped, and also when this process ends in any other way: when it is
/// killed, or when this is in a static, which Rust does not drop.
pub struct Scratch {
    path: PathBuf,
    remover: Child,
}

impl Scratch {
    /// Makes one whose name begins with `prefix`.
    pub fn new(prefix: &str) -> Self {
        // Not /tmp, which may be in memory: what lies here is large and written past the page cache. And not cargo's target
        // folder, whose path may be too long for a socket's.
        let path = tempfile::Builder::new().prefix(prefix).tempdir_in("/var/tmp").unwrap().keep();
        // Its input ends when nobody has the other end any more. While processes die, they may still make files.
        let script = "cat; until rm -rf \"$0\"; do sleep 0.1; done";
        let mut remover = Command::new("sh");
        remover.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own Ctrl-C does not reach it.
        let remover = remover.process_group(0).spawn().unwrap();
        Self { path, remover }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.remover.wait();
    }
}
