//! Why a benchmark ended early.

use std::io;
use std::path::Path;

/// Why a benchmark ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Somebody pressed Ctrl-C, or sent SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A program of another package is not there.
    #[error("{program} is missing: install the Debian package {package}")]
    Missing {
        /// The program's name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{command}: {ending}: {said}")]
    Program {
        /// The command line.
        command: String,
        /// How it ended.
        ending: String,
        /// The last lines that it wrote.
        said: String,
    },
    /// What was to be measured cannot be had here.
    #[error("{0}")]
    Unsuited(String),
    /// The settings make no sense, or a program's answer cannot be understood.
    #[error("{0}")]
    Wrong(String),
}

impl BenchError {
    /// `what` failed for the operating system's reason.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Something with the file at `path` failed.
    pub(crate) fn path(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(path.display().to_string())
    }
}
