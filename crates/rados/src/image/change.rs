//! Changing a few bytes of an image that somebody else may be writing to: the header of a volume, while it is attached.
//!
//! Ceph does not ask for the lock, which only keeps volumes from being written by two. What this must not do is change
//! what a snapshot reads, whoever makes one meanwhile: so it watches the image, and its writes happen between two answers
//! to the makers of snapshots, who wait for them.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use super::{Image, ImageEvent, Watch};
use crate::RadosError;
use crate::pool::{ObjectWrite, Pool};

/// How long the maker of a snapshot may take from asking for quiet to having made it, before it is taken for gone.
const QUIET: Duration = Duration::from_secs(60);

/// The lock of those who change several objects.
const CHANGING: &CStr = c"sealdisk.change";

/// What becomes of one object, all of it at one moment or not at all. Offsets are those in the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectChange {
    /// Its number.
    pub object: u64,
    /// What it holds if only the parent of its image has it.
    pub base: Vec<u8>,
    /// Bytes that must be there from an offset on.
    pub expected: Vec<(u64, Vec<u8>)>,
    /// Bytes that are written from an offset on.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// First byte and number of bytes that become zero.
    pub zeros: Vec<(u64, u64)>,
}

impl Image {
    /// Changes objects one after the other, each durable before the next. The image must be open for writing; the lock is
    /// not needed. Stops at the first that is not as expected, with an error that [says so](RadosError::is_mismatch).
    ///
    /// Where there is more than one change, others that come this way wait: what is written first must still be there when
    /// the last names it.
    pub fn change(self: &Arc<Self>, changes: &[ObjectChange]) -> Result<(), RadosError> {
        let header = format!("rbd_header.{}", self.id()?);
        let _alone = if changes.len() > 1 { Some(self.pool.lock(&header, CHANGING)?) } else { None };
        let watch = Watch::new(self)?;
        if let (true, Some(guarded)) = (changes.len() > 1, changes.iter().find(|change| !change.expected.is_empty())) {
            // In a clone there may be nothing to compare with yet.
            let (base, expected) = (guarded.base.clone(), guarded.expected.clone());
            let guard = ObjectChange { object: guarded.object, base, expected, ..Default::default() };
            self.change_object(&watch, &guard)?;
        }
        let changed = changes.iter().try_for_each(|change| self.change_object(&watch, change));
        // Whoever asked meanwhile need not wait for us to be gone.
        while watch.next(Duration::ZERO).is_some_and(|event| answer(&watch, event)) {}
        changed
    }

    fn change_object(&self, watch: &Watch, change: &ObjectChange) -> Result<(), RadosError> {
        let names = self.object_names()?;
        let object = names.name(change.object);
        let pool = self.pool_of_now(watch)?;
        if !change.base.is_empty() && self.parent()?.is_some() {
            // As librbd does it: without snapshots, so that those of the clone have it, too.
            let without_snapshots = self.data_pool()?;
            let copy_up = ObjectWrite::new(&without_snapshots, &object)?.create().write(0, &change.base);
            let copy_up = copy_up.behind_snapshots();
            match write(&without_snapshots, copy_up) {
                Err(error) if error.errno() != Some(libc::EEXIST) => return Err(error),
                _ => {}
            }
        }
        let mut operation = ObjectWrite::new(&pool, &object)?;
        for (offset, bytes) in &change.expected {
            operation = operation.compare(*offset, bytes);
        }
        for (offset, bytes) in &change.writes {
            operation = operation.write(*offset, bytes);
        }
        for (offset, len) in &change.zeros {
            operation = operation.zero(*offset, *len);
        }
        write(&pool, operation)
    }

    /// The pool of the data, with the snapshots of now. Until the next event is answered, no other snapshot is made.
    fn pool_of_now(&self, watch: &Watch) -> Result<Pool, RadosError> {
        loop {
            let pool = self.data_pool()?.with_snapshots(&self.snapshot_context()?)?;
            match watch.next(Duration::ZERO) {
                None => return Ok(pool),
                Some(event) => answer(watch, event),
            };
        }
    }
}

/// Lets the maker of a snapshot go on, and waits until it has made it.
fn answer(watch: &Watch, event: ImageEvent) -> bool {
    if event == ImageEvent::Quiesce {
        watch.is_quiet();
        while watch.next(QUIET).is_some_and(|event| event != ImageEvent::Unquiesce) {}
    }
    true
}

fn write(pool: &Pool, operation: ObjectWrite<'_>) -> Result<(), RadosError> {
    let mut operations = [operation];
    pool.write(&mut operations);
    let [operation] = operations;
    operation.result.map(drop)
}
