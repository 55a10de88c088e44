//! Copying a parent's objects into a clone before it changes them.
//!
//! Anybody may flatten the image meanwhile, which copies the same objects: whoever is first, the content is the same, and
//! nothing that exists is overwritten.

use std::io;
use std::sync::PoisonError;

use super::parents::{Parents, is_absent};
use crate::RadosError;
use crate::image::ObjectNames;
use crate::pool::{ObjectRead, ObjectWrite, Pool};

/// Objects that are copied at once.
const COPIES_AT_ONCE: usize = 4;
/// Objects that are looked for at once.
const LOOKS_AT_ONCE: usize = 64;
/// Zeros are left out of a copy in pieces of so many bytes.
const PAGE: usize = 4096;

/// An object that is about to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) number: u64,
    /// Whether nothing of what it was stays.
    pub(super) whole: bool,
}

impl Parents {
    /// Sees to it that these objects, if the image shares them, are its own before they are changed. `own` is where they
    /// are without any snapshot of the image's.
    ///
    /// The image's snapshots go on seeing the parent's content: a copy belongs to a time before all of them. So even an
    /// object that is about to be replaced is copied first where there are snapshots: once the image is flattened, nobody
    /// else has what they saw.
    pub(super) fn copy_up(
        &self,
        own: &Pool,
        has_snapshots: bool,
        names: &ObjectNames,
        touched: impl IntoIterator<Item = Touched>,
    ) -> Result<(), RadosError> {
        let mut unsettled: Vec<u64> = touched
            .into_iter()
            .filter(|touched| !touched.whole || has_snapshots)
            .map(|touched| touched.number)
            .filter(|number| !self.settled.contains(*number) && self.cover(*number))
            .collect();
        if unsettled.is_empty() {
            return Ok(());
        }
        let _one_at_a_time = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            unsettled.retain(|number| !self.settled.contains(*number));
            if unsettled.is_empty() {
                return Ok(());
            }
            for numbers in unsettled.chunks(LOOKS_AT_ONCE) {
                let shared = self.shared(own, names, numbers)?;
                for objects in shared.chunks(COPIES_AT_ONCE) {
                    self.copy(own, names, objects)?;
                }
            }
        }
    }

    /// Which of these objects only a parent has, and the bytes of each. The others are settled.
    fn shared(&self, own: &Pool, names: &ObjectNames, numbers: &[u64]) -> Result<Vec<(u64, u64)>, RadosError> {
        let reads = numbers.iter().map(|number| Ok(ObjectRead::new(&names.name(*number))?.measure()));
        let mut reads = reads.collect::<Result<Vec<_>, RadosError>>()?;
        own.read(&mut reads);
        let mut absent = Vec::new();
        for (number, read) in numbers.iter().zip(&mut reads) {
            match &read.result {
                Ok(()) => self.settled.insert(*number),
                Err(error) if error.is_absent() => absent.push((*number, read)),
                Err(_) => return std::mem::replace(&mut read.result, Ok(())).map(|()| Vec::new()),
            }
        }
        self.read_layers(&mut absent);
        let mut shared = Vec::new();
        for (number, read) in absent {
            if is_absent(read) {
                self.settled.insert(number);
                continue;
            }
            std::mem::replace(&mut read.result, Ok(()))?;
            let size = read.size.min(self.reach(0, number));
            if size > 2 * self.object_size {
                let reason = format!("{size} bytes are more than an object of a volume has");
                return Err(RadosError::new(
                    format!("copying the parent's {}", names.name(number)),
                    io::Error::other(reason),
                ));
            }
            shared.push((number, size));
        }
        Ok(shared)
    }

    /// Copies objects of so many bytes. One that is gone from where it was has been copied by somebody else, and is not
    /// settled here.
    fn copy(&self, own: &Pool, names: &ObjectNames, objects: &[(u64, u64)]) -> Result<(), RadosError> {
        let mut contents: Vec<Vec<u8>> = objects.iter().map(|(_, size)| vec![0; *size as usize]).collect();
        let reads = objects.iter().zip(&mut contents).map(|((number, _), content)| {
            let mut read = ObjectRead::new(&names.name(*number))?.extent(0, content).every_key();
            read.result = Err(RadosError::absent());
            Ok(read)
        });
        let mut reads = reads.collect::<Result<Vec<_>, RadosError>>()?;
        let mut asked: Vec<_> = objects.iter().map(|(number, _)| *number).zip(&mut reads).collect();
        self.read_layers(&mut asked);
        let keys = reads.into_iter().map(|read| match read.result {
            Ok(()) => Ok(Some(read.values)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        });
        let keys = keys.collect::<Result<Vec<_>, RadosError>>()?;
        let mut numbers = Vec::new();
        let mut writes = Vec::new();
        for (((number, _), content), keys) in objects.iter().zip(&contents).zip(&keys) {
            let Some(keys) = keys else { continue };
            let pieces = without_zeros(content);
            if pieces.is_empty() && keys.is_empty() {
                self.settled.insert(*number);
                continue;
            }
            let mut write = ObjectWrite::new(own, &names.name(*number))?.behind_snapshots().create();
            for (offset, piece) in pieces {
                write = write.write(offset as u64, piece);
            }
            if !keys.is_empty() {
                write = write.set_keys(keys);
            }
            numbers.push(*number);
            writes.push(write);
        }
        own.write(&mut writes);
        for (number, write) in numbers.into_iter().zip(writes) {
            match write.result {
                Err(error) if error.errno() != Some(libc::EEXIST) => return Err(error),
                _ => self.settled.insert(number),
            }
        }
        Ok(())
    }
}

/// The runs of pages that are not all zeros, each with its offset.
fn without_zeros(content: &[u8]) -> Vec<(usize, &[u8])> {
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let mut runs = Vec::new();
    let mut at = 0;
    for run in content.chunks(PAGE).collect::<Vec<_>>().chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let len: usize = run.iter().map(|page| page.len()).sum();
        if !is_zero(run[0]) {
            runs.push((at, &content[at..at + len]));
        }
        at += len;
    }
    runs
}
