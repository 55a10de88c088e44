//! A disk whose errors are noted. Most clients pass on an error number at best, and none that comes through the kernel
//! hears which sector it was.

use std::collections::HashSet;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use sealdisk_export::{Disk, ReadQueue};
use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, FinishedRead, ReadRequest, Space, VolumeError, VolumeErrorKind, WriteRequest};

/// How many different errors are noted: a database may try again for ever, and the log lies in memory.
const MOST: usize = 1000;

/// A disk that writes each error of the disk below to standard error, once.
pub struct LoggedDisk {
    disk: Arc<dyn Disk>,
    log: Arc<Log>,
}

/// The errors that have been noted.
#[derive(Default)]
struct Log {
    noted: Mutex<HashSet<String>>,
}

/// A queue whose errors are noted.
struct LoggedReads {
    queue: Box<dyn ReadQueue>,
    log: Arc<Log>,
}

impl LoggedDisk {
    /// Notes the errors of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, log: Arc::default() }
    }
}

impl Log {
    fn note<T>(&self, result: &Result<T, VolumeError>) {
        let Err(error) = result else { return };
        if error.kind() == VolumeErrorKind::ReadOnly {
            return; // the client's mistake
        }
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let message = error.to_string();
        if noted.len() < MOST && !noted.contains(&message) {
            // A log that is full is no reason to stop serving.
            let _ = writeln!(std::io::stderr(), "sealdisk: {message}");
            noted.insert(message);
            if noted.len() == MOST {
                let _ = writeln!(std::io::stderr(), "sealdisk: further errors are not noted; see `sealdisk check`");
            }
        }
    }
}

impl ReadQueue for LoggedReads {
    fn start(&mut self, token: u64, range: ByteRange) {
        self.queue.start(token, range);
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        self.queue.wait(also)
    }

    fn finished(&mut self) -> Option<FinishedRead> {
        let read = self.queue.finished()?;
        self.log.note(&read.result);
        Some(read)
    }
}

impl Disk for LoggedDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        self.disk.read(batch);
        batch.iter().for_each(|request| self.log.note(&request.result));
    }

    fn is_far(&self) -> bool {
        self.disk.is_far()
    }

    fn copies(&self) -> usize {
        self.disk.copies()
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        let queue = self.disk.read_queue()?;
        Some(Box::new(LoggedReads { queue, log: Arc::clone(&self.log) }))
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        self.disk.write(batch);
        batch.iter().for_each(|request| self.log.note(&request.result));
    }

    fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        let result = self.disk.zero(range, space);
        self.log.note(&result);
        result
    }

    fn flush(&self) -> Result<(), VolumeError> {
        let result = self.disk.flush();
        self.log.note(&result);
        result
    }

    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        let result = self.disk.allocation(range);
        self.log.note(&result);
        result
    }
}
