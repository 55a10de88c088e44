//! An image's objects, changed as a whole.

use sealdisk_store::{ObjectRead, ObjectStore, ObjectWrite, Operation, Step, StoreError};
use sealdisk_units::StoreRange;

use super::copy_up::Touched;
use super::{AT_ONCE, Inner, RbdStore};
use crate::pool::{ObjectRead as Read, ObjectWrite as Write, Pool};

impl ObjectStore for RbdStore {
    fn read_objects(&self, reads: &mut [ObjectRead<'_>]) {
        for reads in reads.chunks_mut(AT_ONCE) {
            self.inner.read_whole_objects(reads);
        }
    }

    fn write_objects(&self, writes: &mut [ObjectWrite<'_>]) {
        for writes in writes.chunks_mut(AT_ONCE) {
            self.inner.write_whole_objects(writes);
        }
    }

    fn has_keys(&self) -> Result<bool, StoreError> {
        self.inner.has_keys()
    }

    fn shares_objects(&self) -> bool {
        self.inner.shares_objects()
    }
}

impl Inner {
    /// The object's share of the image.
    fn whole(&self, object: u64) -> StoreRange {
        StoreRange::new(object.saturating_mul(self.object_size), self.object_size)
    }

    fn read_whole_objects(&self, reads: &mut [ObjectRead<'_>]) {
        let mut numbers = Vec::with_capacity(reads.len());
        let mut submitted = Vec::with_capacity(reads.len());
        let mut owners = Vec::with_capacity(reads.len());
        for read in reads {
            let operation = Operation::Read(self.whole(read.object));
            match self.prepare_read(operation, read.object, &mut read.extents, &read.keys) {
                Ok(prepared) => {
                    numbers.push(read.object);
                    submitted.push(prepared);
                    owners.push((operation, &mut read.values, &mut read.result));
                }
                Err(error) => read.result = Err(error),
            }
        }
        self.read_objects(&numbers, &mut submitted);
        for (read, (operation, values, result)) in submitted.into_iter().zip(owners) {
            *values = read.values.into_iter().filter_map(|(key, value)| Some((key_of(&key)?, value))).collect();
            *result = match read.result {
                Err(error) if !error.is_absent() => Err(self.failure(operation, error)),
                _ => Ok(()),
            };
        }
    }

    fn prepare_read<'a>(
        &self,
        operation: Operation,
        object: u64,
        extents: &'a mut [sealdisk_store::ReadExtent<'_>],
        keys: &[u32],
    ) -> Result<Read<'a>, StoreError> {
        self.check_inside(operation, self.whole(object))?;
        let mut read = Read::new(&self.names.name(object)).map_err(|error| self.failure(operation, error))?;
        for extent in extents {
            read = read.extent(extent.offset, extent.buf);
        }
        Ok(read.keys(keys.iter().map(|key| key.to_be_bytes().to_vec())))
    }

    fn write_whole_objects(&self, writes: &mut [ObjectWrite<'_>]) {
        let pool = self.writes_together();
        let Some(first) = writes.first() else { return };
        let operation = Operation::Write(self.whole(first.object));
        let touched = writes.iter().map(|write| Touched { number: write.object, whole: is_replaced(write) });
        if let Err(error) = self.copy_up(&pool, touched.collect::<Vec<_>>()) {
            let error = self.failure(operation, error);
            return writes.iter_mut().for_each(|write| write.result = Err(echo(&error)));
        }
        let mut submitted = Vec::with_capacity(writes.len());
        let mut owners = Vec::with_capacity(writes.len());
        for write in writes {
            let operation = Operation::Write(self.whole(write.object));
            match self.prepare_write(&pool, operation, write) {
                Ok(prepared) => {
                    submitted.push(prepared);
                    owners.push((operation, &mut write.result));
                }
                Err(error) => write.result = Err(error),
            }
        }
        pool.write(&mut submitted);
        for (write, (operation, result)) in submitted.into_iter().zip(owners) {
            *result = match write.result {
                // Only a removal can miss its object.
                Err(error) if !error.is_absent() => Err(self.failure(operation, error)),
                _ => Ok(()),
            };
        }
    }

    /// Asks by doing: an object that is made, given a key and removed at one moment was never there.
    fn has_keys(&self) -> Result<bool, StoreError> {
        let operation = Operation::Write(self.whole(0));
        self.check_writable(operation)?;
        let pool = self.writes_together();
        let of_nobody = self.names.name(u64::MAX);
        let trial = Write::new(&pool, &of_nobody).map_err(|error| self.failure(operation, error))?;
        let mut trial = [trial.create().set_keys(&[(b"key".to_vec(), b"value".to_vec())]).remove()];
        pool.write(&mut trial);
        let [trial] = trial;
        match trial.result {
            Ok(_) => Ok(true),
            Err(error) if error.is_unsupported() => Ok(false),
            Err(error) => Err(self.failure(operation, error)),
        }
    }

    fn prepare_write<'p>(
        &self,
        pool: &'p Pool,
        operation: Operation,
        write: &ObjectWrite<'_>,
    ) -> Result<Write<'p>, StoreError> {
        self.check_writable(operation)?;
        self.check_inside(operation, self.whole(write.object))?;
        let name = self.names.name(write.object);
        let mut prepared = Write::new(pool, &name).map_err(|error| self.failure(operation, error))?;
        let mut pairs = Vec::new();
        for step in &write.steps {
            prepared = match step {
                Step::Clear => prepared.empty(),
                Step::Write(extent) => prepared.write(extent.offset, extent.buf),
                Step::Zero { offset, len } => prepared.zero(*offset, *len),
                Step::Set { key, value } => {
                    pairs.push((key.to_be_bytes().to_vec(), value.to_vec()));
                    prepared
                }
                Step::Remove => self.clear(prepared, write.object),
            };
        }
        Ok(if pairs.is_empty() { prepared } else { prepared.set_keys(&pairs) })
    }
}

/// Whether nothing of what an object was stays.
fn is_replaced(write: &ObjectWrite<'_>) -> bool {
    matches!(write.steps.first(), Some(Step::Clear | Step::Remove))
}

/// The same error for another object of the call.
fn echo(error: &StoreError) -> StoreError {
    match error.is_final() {
        true => StoreError::lost(error.operation, error.source.to_string()),
        false => StoreError::new(error.operation, std::io::Error::new(error.source.kind(), error.source.to_string())),
    }
}

/// Big-endian, so that Ceph's order of keys is that of numbers.
fn key_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}
