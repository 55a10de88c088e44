//! Writing: sealed at once, then queued for the objects that the sectors lie in.

use std::ops::Range;
use std::sync::Arc;

use sealdisk_cipher::{Sealed, SectorRun};
use sealdisk_layout::ObjectNumber;
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE};
use zeroize::Zeroizing;

use super::ObjectVolume;
use super::change::Change;
use crate::buffers::Ciphertext;
use crate::{Data, Memory, VolumeError, WriteRequest};

/// Neighbouring sectors of a request that lie in one object.
struct Part {
    object: ObjectNumber,
    first: Lba,
    in_buffer: Range<usize>,
}

impl ObjectVolume {
    pub(crate) fn write(&self, batch: &mut [WriteRequest<'_>]) {
        let mut owners = Vec::new();
        let mut changes = Vec::new();
        for (number, request) in batch.iter_mut().enumerate() {
            match self.changes_of(request.range, &mut request.data) {
                Ok(of_request) => {
                    owners.extend(of_request.iter().map(|_| number));
                    changes.extend(of_request);
                }
                Err(error) => request.result = Err(error),
            }
        }
        let outcomes = self.turns.take(changes, |turns| self.carry_out(turns));
        for (number, outcome) in owners.into_iter().zip(outcomes) {
            if let Err(error) = outcome {
                batch[number].result = Err(VolumeError::of_shared(error));
            }
        }
    }

    /// Seals a request's sectors, object by object.
    fn changes_of(&self, range: ByteRange, data: &mut Data<'_>) -> Result<Vec<(ObjectNumber, Change)>, VolumeError> {
        self.standing.check_writable()?;
        let mut changes = Vec::new();
        for piece in range.ragged_pieces() {
            let object = self.layout.rows().object_of(piece.lba);
            let plain = Zeroizing::new(data[piece.in_buffer.clone()].to_vec());
            let index = self.layout.index_of(piece.lba);
            changes.push((object, Change::Part { index, bytes: piece.in_sector.clone(), plain }));
        }
        let parts = self.parts_of(range);
        let Some(mut memory) = data.take_given() else {
            for Part { object, first, in_buffer } in parts {
                changes.push((object, self.seal(first, &data[in_buffer])?));
            }
            return Ok(changes);
        };
        let mut sealed = Vec::with_capacity(parts.len());
        for Part { first, in_buffer, .. } in &parts {
            sealed.push(self.seal_in_place(*first, &mut memory[in_buffer.clone()])?);
        }
        let memory: Arc<dyn Memory> = memory.into();
        for (Part { object, first, in_buffer }, sealed) in parts.into_iter().zip(sealed) {
            let text = Ciphertext::Given(Arc::clone(&memory), in_buffer);
            changes.push((object, Change::Write { first: self.layout.index_of(first), text, sealed }));
        }
        Ok(changes)
    }

    /// The whole sectors of a request, object by object.
    fn parts_of(&self, range: ByteRange) -> Vec<Part> {
        let whole = range.whole_sectors();
        let mut parts = Vec::new();
        let mut first = whole.first();
        while first < whole.end() {
            let object = self.layout.rows().object_of(first);
            let end = self.layout.rows().sectors_of(object).end().min(whole.end());
            let start = (first.0 * SECTOR_SIZE as u64 - range.offset()) as usize;
            let len = (end.0 - first.0) as usize * SECTOR_SIZE;
            parts.push(Part { object, first, in_buffer: start..start + len });
            first = end;
        }
        parts
    }

    /// Seals neighbouring sectors of one object.
    pub(super) fn seal(&self, first: Lba, plain: &[u8]) -> Result<Change, VolumeError> {
        let count = plain.len() / SECTOR_SIZE;
        let mut text = self.buffers.take(plain.len());
        let mut sealed = Vec::with_capacity(count);
        let places = plain.chunks_exact(SECTOR_SIZE).zip(text.chunks_exact_mut(SECTOR_SIZE));
        let mut run = SectorRun::new(&self.sealer);
        for ((nth, nonce), (plain, place)) in (0..).zip(self.standing.draw_nonces(count)?).zip(places) {
            sealed.push(run.seal(Lba(first.0 + nth), nonce, plain, place));
        }
        Ok(Change::Write { first: self.layout.index_of(first), text: Ciphertext::Ours(text), sealed })
    }

    fn seal_in_place(&self, first: Lba, sectors: &mut [u8]) -> Result<Vec<Sealed>, VolumeError> {
        let nonces = self.standing.draw_nonces(sectors.len() / SECTOR_SIZE)?;
        let sectors = (first.0..).zip(nonces).zip(sectors.chunks_exact_mut(SECTOR_SIZE));
        let mut run = SectorRun::new(&self.sealer);
        Ok(sectors.map(|((lba, nonce), sector)| run.seal_in_place(Lba(lba), nonce, sector)).collect())
    }
}

impl VolumeError {
    /// The error of an operation that several had waited for.
    pub(super) fn of_shared(error: Arc<Self>) -> Self {
        Arc::try_unwrap(error).unwrap_or_else(Self::Shared)
    }
}
