//! A short read in two steps: what is to be fetched, and what comes of it. In between, the thread does other things.

use std::sync::atomic::Ordering;

use sealdisk_layout::PAGE_SIZE;
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE, StoreRange};

use super::SealedVolume;
use super::read::{MissingPages, Source, Target, missing_pages};
use crate::VolumeError;

/// What has been found out about a read while its bytes are on the way.
pub(crate) struct ShortRead {
    first: Lba,
    /// Of each sector where it comes from, and its version when that was decided.
    sectors: Vec<(Source, u64)>,
    missing: MissingPages,
    changes: u64,
}

/// How a short read begins.
pub(crate) enum Begun {
    /// Everything was in memory.
    Done,
    /// These have to be fetched: the data of all sectors, and pages of seals.
    Fetch { read: ShortRead, data: StoreRange, seals: Option<StoreRange> },
    /// Some of it is in memory and some is not, or it lies in two places: better read with a batch.
    Mixed,
}

impl SealedVolume {
    /// Begins to read whole sectors into `buf`.
    pub(crate) fn begin_read(&self, range: ByteRange, buf: &mut [u8]) -> Begun {
        let first = Lba(range.offset() / SECTOR_SIZE as u64);
        let lbas = range.touched_sectors();
        let mut targets: Vec<Target<'_>> = lbas
            .iter()
            .zip(buf.chunks_exact_mut(SECTOR_SIZE))
            .map(|(lba, buf)| {
                let version = self.version(lba).load(Ordering::SeqCst);
                Target { lba, request: 0, buf, source: Source::Unknown, version }
            })
            .collect();
        self.take_waiting(&mut targets);
        let changes = self.choose_sources(&mut targets);
        let fetched =
            targets.iter().filter(|target| matches!(target.source, Source::Store(_) | Source::Data(..))).count();
        if targets.iter().all(|target| matches!(target.source, Source::Done)) {
            return Begun::Done;
        }
        let last = Lba(lbas.end().0 - 1);
        if fetched < targets.len() || self.layout.object_of(first) != self.layout.object_of(last) {
            return Begun::Mixed;
        }
        let missing = missing_pages(&targets);
        // Within an object, sectors follow one another, and so do pages of seals; a short read needs neighbours.
        let data = StoreRange::new(self.layout.place(first).data.offset, range.len());
        let seals = missing.first_key_value().map(|(number, _)| {
            StoreRange::new(self.layout.seal_page(*number).offset, missing.len() as u64 * PAGE_SIZE)
        });
        let sectors = targets.iter().map(|target| (target.source, target.version)).collect();
        Begun::Fetch { read: ShortRead { first, sectors, missing, changes }, data, seals }
    }

    /// Makes plaintext of what was fetched. `seals` are the pages that were asked for; `fetched` says whether everything
    /// came.
    pub(crate) fn finish_read(
        &self,
        read: ShortRead,
        seals: &[u8],
        buf: &mut [u8],
        fetched: bool,
    ) -> Result<(), VolumeError> {
        let ShortRead { first, sectors, missing, changes } = read;
        let lbas = (first.0..).map(Lba);
        let mut targets: Vec<Target<'_>> = lbas
            .zip(buf.chunks_exact_mut(SECTOR_SIZE))
            .zip(sectors)
            .map(|((lba, buf), (source, version))| Target { lba, request: 0, buf, source, version })
            .collect();
        if fetched {
            self.learn_seals(&mut targets, missing, seals, changes);
            self.open_fetched(&mut targets);
        }
        let mut result = Ok(());
        self.read_rest(&mut targets, &mut |_, error| result = Err(error));
        result
    }
}
