//! Serving a disk in this process, which the benchmark watches, until it is asked to end.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export, ExportError};

use crate::disk::EXPORT;
use crate::{BenchError, Interrupt};

/// Offers `disk` over NBD on a unix socket at `socket`, with `memory` bytes for requests of clients.
pub(crate) fn offer_nbd(disk: Arc<dyn Disk>, socket: &Path, memory: usize) -> Result<Box<dyn Export>, BenchError> {
    let address = ListenAddress::Unix(socket.to_owned());
    let options = NbdOptions { name: EXPORT.to_owned(), memory, ..NbdOptions::default() };
    Ok(Box::new(NbdExport::start(disk, &address, options).map_err(exported)?))
}

/// Prints where the disk is, and serves it until the benchmark asks for the end.
pub(crate) fn serve_until_asked(mut export: Box<dyn Export>, interrupt: &Interrupt) -> Result<(), BenchError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", export.address()).and_then(|()| out.flush()).map_err(BenchError::io("standard output"))?;
    while interrupt.check().is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    export.release().map_err(exported)?;
    export.stop().map_err(exported)
}

/// An export's failure as the benchmark's.
pub(crate) fn exported(error: ExportError) -> BenchError {
    BenchError::Io { what: error.what, source: error.source }
}
