//! A disk over NBD that is being served, and one measurement of it.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::fio::{Content, Extent, Job};
use crate::places::Places;
use crate::results::Sample;
use crate::server::Server;
use crate::{BenchError, Interrupt};

/// The name of the export, everywhere.
pub(crate) const EXPORT: &str = "disk";

/// A disk that is being served.
pub(crate) struct ServedDisk {
    process: Server,
    uri: String,
}

/// What is measured, when, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) job: Job,
    pub(crate) content: Content<'a>,
    pub(crate) seconds: u64,
    pub(crate) round: u32,
}

impl ServedDisk {
    /// Starts `server`, which is to listen on `socket`, and waits until it can be reached.
    pub(crate) fn start(
        server: &mut Command,
        name: &str,
        socket: &Path,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<Self, BenchError> {
        // Some servers leave theirs behind, and do not start where one is.
        let _ = std::fs::remove_file(socket);
        let mut process = Server::start(server, places.run_folder(), name)?;
        process.wait_for(interrupt, || UnixStream::connect(socket).ok().map(drop))?;
        Ok(Self { process, uri: format!("nbd+unix:///{EXPORT}?socket={}", socket.display()) })
    }

    /// Writes all of it once.
    pub(crate) fn fill(&self, content: Content<'_>, places: &Places, interrupt: &Interrupt) -> Result<(), BenchError> {
        Job::FILL.run(places, &self.uri, content, Extent::Disk, 1, interrupt).map(drop)
    }

    /// Reads all of it once.
    pub(crate) fn read_through(
        &self,
        content: Content<'_>,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<(), BenchError> {
        Job::READ_THROUGH.run(places, &self.uri, content, Extent::Disk, 1, interrupt).map(drop)
    }

    /// One measurement.
    pub(crate) fn measure(
        &self,
        subject: &str,
        turn: Turn<'_>,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<Sample, BenchError> {
        let Turn { job, content, seconds, round } = turn;
        let time = Extent::Time(Duration::from_secs(seconds));
        let before = self.process.processor_time();
        let result = job.run(places, &self.uri, content, time, round, interrupt)?;
        let used = self.process.processor_time().saturating_sub(before);
        Ok(Sample {
            subject: subject.to_owned(),
            measure: job.name(),
            round,
            value: job.value(&result),
            p99_latency: result.p99_latency,
            processor_time: used.as_secs_f64() * 1e6 / result.operations as f64,
        })
    }

    /// The most memory that the server has had resident so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.process.peak_memory()
    }

    /// Ends the server, which must end by itself when asked.
    pub(crate) fn stop(self) -> Result<(), BenchError> {
        self.process.stop()
    }
}
