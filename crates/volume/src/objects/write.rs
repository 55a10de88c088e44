//! Writing: sealed at once, then queued for the objects that the sectors lie in.

use std::sync::Arc;

use sealdisk_layout::ObjectNumber;
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE};
use zeroize::Zeroizing;

use super::ObjectVolume;
use super::change::Change;
use crate::{VolumeError, WriteRequest};

impl ObjectVolume {
    pub(crate) fn write(&self, batch: &mut [WriteRequest<'_>]) {
        let mut owners = Vec::new();
        let mut changes = Vec::new();
        for (number, request) in batch.iter_mut().enumerate() {
            match self.changes_of(request.range, request.buf) {
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
    fn changes_of(&self, range: ByteRange, buf: &[u8]) -> Result<Vec<(ObjectNumber, Change)>, VolumeError> {
        self.standing.check_writable()?;
        let mut changes = Vec::new();
        for piece in range.ragged_pieces() {
            let object = self.layout.rows().object_of(piece.lba);
            let plain = Zeroizing::new(buf[piece.in_buffer.clone()].to_vec());
            let index = self.layout.index_of(piece.lba);
            changes.push((object, Change::Part { index, bytes: piece.in_sector.clone(), plain }));
        }
        let whole = range.whole_sectors();
        let mut lba = whole.first();
        while lba < whole.end() {
            let object = self.layout.rows().object_of(lba);
            let end = self.layout.rows().sectors_of(object).end().min(whole.end());
            let start = (lba.0 * SECTOR_SIZE as u64 - range.offset()) as usize;
            let len = (end.0 - lba.0) as usize * SECTOR_SIZE;
            changes.push((object, self.seal(lba, &buf[start..start + len])?));
            lba = end;
        }
        Ok(changes)
    }

    /// Seals neighbouring sectors of one object.
    pub(super) fn seal(&self, first: Lba, plain: &[u8]) -> Result<Change, VolumeError> {
        let count = plain.len() / SECTOR_SIZE;
        let mut text = self.buffers.take(plain.len());
        let mut sealed = Vec::with_capacity(count);
        let places = plain.chunks_exact(SECTOR_SIZE).zip(text.chunks_exact_mut(SECTOR_SIZE));
        for ((nth, nonce), (plain, place)) in (0..).zip(self.standing.draw_nonces(count)?).zip(places) {
            sealed.push(self.sealer.seal(Lba(first.0 + nth), nonce, plain, place));
        }
        Ok(Change::Write { first: self.layout.index_of(first), text, sealed })
    }
}

impl VolumeError {
    /// The error of an operation that several had waited for.
    pub(super) fn of_shared(error: Arc<Self>) -> Self {
        Arc::try_unwrap(error).unwrap_or_else(Self::Shared)
    }
}
