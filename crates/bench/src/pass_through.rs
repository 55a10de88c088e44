//! Sealdisk with encryption switched off: a file as a disk, through the same exports and the same store.
//!
//! It has no key, no seals, no journal and no memory of its own: what a client writes is in the file when the write
//! returns. It cannot be formatted or attached; only a benchmark serves it, on a file of its own.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_export::fuse::{FuseExport, FuseOptions};
use sealdisk_export::nbd::NbdOptions;
use sealdisk_export::{Disk, Helper, LoopOptions, ReadQueue, become_io_flusher};
use sealdisk_store::{AlignedBuf, FileStore, OpenMode, ReadExtent, Store, StoreError, WriteExtent};
use sealdisk_units::{ByteRange, StoreRange};
use sealdisk_volume::{Allocation, FinishedRead, ReadRequest, Space, VolumeError, WriteRequest};

use crate::serving::{exported, offer_nbd, serve_until_asked};
use crate::{BenchError, Interrupt};

/// What reports and errors call it.
const NAME: &str = "pass-through";

/// A store as a disk.
struct PassThrough<S> {
    store: Arc<S>,
    size: u64,
}

/// Short reads of the store as they are. What they are called is the place where the rest of what is known of them stands.
struct PassThroughReads {
    store: Box<dyn sealdisk_store::ReadQueue>,
    pending: Vec<Option<(u64, ByteRange)>>,
    in_flight: usize,
}

impl ReadQueue for PassThroughReads {
    fn start(&mut self, token: u64, range: ByteRange) {
        let place = self.pending.iter().position(Option::is_none).unwrap_or(self.pending.len());
        self.pending.resize(self.pending.len().max(place + 1), None);
        self.pending[place] = Some((token, range));
        self.in_flight += 1;
        self.store.start(place as u64, range.offset(), AlignedBuf::new(range.len() as usize));
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn wait(&mut self, also: Option<BorrowedFd<'_>>) -> bool {
        self.store.wait(also)
    }

    fn finished(&mut self) -> Option<FinishedRead> {
        let read = self.store.finished()?;
        let (token, range) = self.pending[read.token as usize].take()?;
        self.in_flight -= 1;
        Some(FinishedRead { token, range, buf: read.buf, result: read.result.map_err(failed) })
    }
}

fn failed(source: StoreError) -> VolumeError {
    VolumeError::Store { volume: NAME.to_owned(), source }
}

fn store_range(range: ByteRange) -> StoreRange {
    StoreRange::new(range.offset(), range.len())
}

impl<S: Store + 'static> Disk for PassThrough<S> {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        let mut extents: Vec<_> = batch
            .iter_mut()
            .map(|request| ReadExtent { offset: request.range.offset(), buf: &mut *request.buf })
            .collect();
        if self.store.read(&mut extents).is_ok() {
            return;
        }
        drop(extents);
        for request in batch {
            let mut extent = [ReadExtent { offset: request.range.offset(), buf: &mut *request.buf }];
            request.result = self.store.read(&mut extent).map_err(failed);
        }
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        let store = Arc::clone(&self.store).read_queue()?;
        Some(Box::new(PassThroughReads { store, pending: Vec::new(), in_flight: 0 }))
    }

    fn write(&self, batch: &mut [WriteRequest<'_>]) {
        let mut extents: Vec<_> =
            batch.iter().map(|request| WriteExtent { offset: request.range.offset(), buf: &request.data }).collect();
        extents.sort_by_key(|extent| extent.offset);
        let apart = extents.windows(2).all(|pair| pair[0].range().end() <= pair[1].offset);
        if apart && self.store.write(&extents).is_ok() {
            return;
        }
        for request in batch {
            let extent = WriteExtent { offset: request.range.offset(), buf: &request.data };
            request.result = self.store.write(&[extent]).map_err(failed);
        }
    }

    fn zero(&self, range: ByteRange, _: Space) -> Result<(), VolumeError> {
        self.store.zero(store_range(range)).map_err(failed)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.store.sync().map_err(failed)
    }

    fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        let allocated = self.store.is_allocated(store_range(range)).map_err(failed)?;
        Ok(vec![Allocation { len: range.len(), hole: !allocated }])
    }
}

/// How it is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// NBD on a unix socket of this path.
    Nbd(PathBuf),
    /// A FUSE mount in this folder, with a loop device on its file.
    Fuse(PathBuf),
}

/// Serves `file` until the benchmark asks it to end. Prints where the disk is when it is ready. `helper` does what a server
/// must not.
pub fn serve(file: &Path, offer: &Offer, helper: &Helper, interrupt: &Interrupt) -> Result<(), BenchError> {
    let wrong = |error: &dyn std::fmt::Display| BenchError::Wrong(format!("{}: {error}", file.display()));
    let store = FileStore::open(file, OpenMode::ReadWrite).map_err(|e| wrong(&e))?;
    let size = store.size().map_err(|e| wrong(&e))?;
    // As for an attached volume; without the right to, it works all the same.
    let _ = become_io_flusher();
    let disk: Arc<dyn Disk> = Arc::new(PassThrough { store: Arc::new(store), size });
    let export = match offer {
        Offer::Nbd(socket) => offer_nbd(Arc::clone(&disk), socket, NbdOptions::default().memory)?,
        Offer::Fuse(folder) => {
            let mut export = FuseExport::mount(Arc::clone(&disk), folder, &FuseOptions::default()).map_err(exported)?;
            export.attach_loop(&LoopOptions::default(), helper).map_err(exported)?;
            Box::new(export)
        }
    };
    serve_until_asked(export, interrupt)?;
    disk.flush().map_err(|e| wrong(&e))
}

#[cfg(test)]
mod tests {
    use sealdisk_store::MemoryStore;

    use super::*;

    fn range(offset: u64, len: u64) -> ByteRange {
        ByteRange::checked(offset, len, 1 << 20).unwrap()
    }

    #[test]
    fn bytes_come_back_as_they_went_in() {
        let store = MemoryStore::new(1 << 20);
        let disk = PassThrough { store: Arc::new(store), size: 1 << 20 };
        let (a, b) = ([1; 4096], [2; 100]);
        // Overlapping requests of a batch leave one of the two.
        let mut writes = [WriteRequest::new(range(8192, 4096), &a), WriteRequest::new(range(8200, 100), &b)];
        disk.write(&mut writes);
        assert!(writes.iter().all(|write| write.result.is_ok()));
        disk.zero(range(8192, 4), Space::Free).unwrap();
        let mut back = [9; 4096];
        let mut reads = [ReadRequest::new(range(8192, 4096), &mut back)];
        disk.read(&mut reads);
        assert!(reads[0].result.is_ok());
        assert_eq!(back[..10], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        disk.flush().unwrap();
    }
}
