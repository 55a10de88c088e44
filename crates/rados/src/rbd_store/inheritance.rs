//! The objects of an image wherever they are: its own, or those of a parent.
//!
//! Whoever reads or changes objects of an image does it through these functions, for bytes and for keys.

use std::io;
use std::sync::{Arc, PoisonError};

use super::Inner;
use super::copy_up::Touched;
use super::kind::ImageError;
use super::parents::{Parents, is_absent};
use crate::RadosError;
use crate::pool::{ObjectRead, ObjectWrite, Pool};

impl Inner {
    /// Adopts that the image shares less with its parents, or nothing any more. Nobody may be writing.
    pub(super) fn look_at_parents(&self) -> Result<(), ImageError> {
        let found = self.parents_now();
        let mut parents = self.parents.write().unwrap_or_else(PoisonError::into_inner);
        *parents = found.as_ref().map(Option::clone).map_err(|error| error.to_string().into());
        found.map(drop)
    }

    fn parents_now(&self) -> Result<Option<Arc<Parents>>, ImageError> {
        let Some(now) = self.image.parent()?.filter(|parent| parent.overlap > 0) else { return Ok(None) };
        let kept = match self.parents() {
            Ok(Some(parents)) => parents.after_change(&now),
            _ => None,
        };
        let parents = match kept {
            Some(parents) => Some(parents),
            None => Parents::of(&self.image, &self.reads)?,
        };
        Ok(parents.map(Arc::new))
    }

    /// Whether some objects may be a parent's.
    pub(super) fn shares_objects(&self) -> bool {
        !matches!(self.parents(), Ok(None))
    }

    fn parents(&self) -> Result<Option<Arc<Parents>>, Arc<str>> {
        self.parents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads objects, whose numbers are given in the same order, in the image or where it has them from. An absent one has
    /// zeros.
    pub(super) fn read_objects(&self, numbers: &[u64], reads: &mut [ObjectRead<'_>]) {
        // From before the first read: if they change meanwhile, what is absent here now may be nowhere else later.
        let parents = self.parents();
        self.reads.read(&mut *reads);
        match parents {
            Ok(None) => {}
            Ok(Some(parents)) => parents.read_absent(&self.reads, &self.names, numbers, reads),
            Err(reason) => {
                reads.iter_mut().filter(|read| is_absent(read)).for_each(|read| read.result = Err(unknown(&reason)));
            }
        }
        reads.iter_mut().filter(|read| is_absent(read)).for_each(ObjectRead::clear);
    }

    /// Sees to it that objects are the image's own before they are changed in `pool`.
    pub(super) fn copy_up(&self, pool: &Pool, touched: impl IntoIterator<Item = Touched>) -> Result<(), RadosError> {
        match self.parents() {
            Ok(Some(parents)) => parents.copy_up(&self.reads, pool.has_snapshots(), &self.names, touched),
            Ok(None) => Ok(()),
            Err(reason) => Err(unknown(&reason)),
        }
    }

    /// Leaves nothing of an object. Where a parent has it too, an empty one takes its place, lest the parent's be seen.
    pub(super) fn clear<'a>(&self, write: ObjectWrite<'a>, number: u64) -> ObjectWrite<'a> {
        match self.parents() {
            Ok(Some(parents)) if parents.cover(number) => write.empty(),
            _ => write.remove(),
        }
    }
}

/// What may be a parent's can neither be read nor changed.
fn unknown(reason: &str) -> RadosError {
    RadosError::new("looking for an object in the image's parent", io::Error::other(reason))
}
