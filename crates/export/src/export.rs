//! What a new export implements.

use std::io;

/// An export could not start, or stopped for a reason of its own.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct ExportError {
    /// What was being done, with what to do next where that is known.
    pub what: String,
    /// The operating system's reason.
    #[source]
    pub source: io::Error,
}

impl ExportError {
    /// `what` failed for the reason `source`.
    pub fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

/// A disk being offered. Serving begins when the implementor's constructor returns, on threads of the export's own, and
/// ends with [`stop`](Self::stop) or when the last client of a single-client export goes.
pub trait Export: Send {
    /// Where clients find the disk: a path or a URI.
    fn address(&self) -> String;

    /// Takes the disk from its clients, if they let it go. An error of the kind `ResourceBusy` means that one does not
    /// (a file system on it is mounted); then the disk is offered as before, and this can be tried again. After `Ok`
    /// only [`stop`](Self::stop) is left to be called. Exports whose clients can be cut off at any time have nothing to
    /// do here.
    fn release(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Lets requests in progress end, answers no new ones, and frees the address. The disk is not flushed: that is the
    /// owner's.
    fn stop(self: Box<Self>) -> Result<(), ExportError>;
}
