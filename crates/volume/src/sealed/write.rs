//! Writing: sealed at once, then waiting in memory for a commit.

use std::sync::atomic::Ordering;

use sealdisk_cipher::SectorRun;
use sealdisk_units::{ByteRange, Lba, Piece, SECTOR_SIZE};

use super::page_pool::FreshPage;
use super::write_back::Content;
use super::{SealedVolume, UnreadableZone};
use crate::{VolumeError, WriteRequest};

/// Sectors that are sealed before the write-back lock is taken for them.
const SECTORS_AT_ONCE: usize = 256;

impl SealedVolume {
    pub(crate) fn write(&self, batch: &mut [WriteRequest<'_>]) {
        for request in batch {
            request.result = self.write_one(request.range, &request.data);
        }
    }

    fn write_one(&self, range: ByteRange, buf: &[u8]) -> Result<(), VolumeError> {
        self.standing.check_writable()?;
        let mut whole = Vec::with_capacity(SECTORS_AT_ONCE.min(buf.len() / SECTOR_SIZE));
        for piece in range.pieces() {
            self.check_zone(piece.lba)?;
            if piece.is_whole_sector() {
                whole.push((piece.lba, &buf[piece.in_buffer]));
                if whole.len() == SECTORS_AT_ONCE {
                    self.write_sectors(&whole)?;
                    whole.clear();
                }
            } else {
                self.write_partial(&piece, |sector| {
                    sector[piece.in_sector.clone()].copy_from_slice(&buf[piece.in_buffer.clone()])
                })?;
            }
        }
        self.write_sectors(&whole)
    }

    /// Seals whole sectors and lets them wait.
    fn write_sectors(&self, sectors: &[(Lba, &[u8])]) -> Result<(), VolumeError> {
        if sectors.is_empty() {
            return Ok(());
        }
        let pages = self.lend_pages(sectors.len())?;
        let nonces = self.standing.draw_nonces(sectors.len())?;
        let mut run = SectorRun::new(&self.sealer);
        let sealed: Vec<_> = sectors
            .iter()
            .zip(pages)
            .zip(nonces)
            .map(|(((lba, plain), mut page), nonce)| {
                let sealed = run.seal(*lba, nonce, plain, page.bytes_mut());
                (*lba, Content::Sector(page.freeze(), sealed))
            })
            .collect();
        let mut write_back = self.write_back();
        for (lba, content) in sealed {
            self.version(lba).fetch_add(1, Ordering::SeqCst);
            write_back.insert(lba, content);
        }
        Ok(())
    }

    /// Changes part of a sector: read, change, seal, and again if somebody else wrote the sector meanwhile.
    pub(super) fn write_partial(&self, piece: &Piece, change: impl Fn(&mut [u8])) -> Result<(), VolumeError> {
        let lba = piece.lba;
        let mut sector = zeroize::Zeroizing::new([0; SECTOR_SIZE]);
        loop {
            let version = self.version(lba).load(Ordering::SeqCst);
            self.read_sector(lba, &mut sector[..])?;
            change(&mut sector[..]);
            let mut page = self.lend_pages(1)?.pop().expect("one page was asked for");
            let nonce = self.standing.draw_nonces(1)?.next().expect("one nonce was asked for");
            let sealed = self.sealer.seal(lba, nonce, &sector[..], page.bytes_mut());
            let mut write_back = self.write_back();
            // Versions rise only under the write-back lock.
            if self.version(lba).load(Ordering::SeqCst) == version {
                self.version(lba).fetch_add(1, Ordering::SeqCst);
                write_back.insert(lba, Content::Sector(page.freeze(), sealed));
                return Ok(());
            }
        }
    }

    /// Lets sectors of existing objects wait to become zero.
    pub(super) fn write_zeros(&self, sectors: sealdisk_units::SectorRange) -> Result<(), VolumeError> {
        for lba in [sectors.first(), Lba(sectors.end().0 - 1)] {
            self.check_zone(lba)?;
        }
        // Zeros take no pages from the pool, so nothing else would stop them from piling up.
        while self.write_back().len() > self.pool.count() * 2 {
            let mut log = self.log();
            self.commit(&mut log)?;
            self.checkpoint(&mut log)?;
        }
        let mut write_back = self.write_back();
        for lba in sectors.iter() {
            self.version(lba).fetch_add(1, Ordering::SeqCst);
            write_back.insert(lba, Content::Zero);
        }
        Ok(())
    }

    /// Refuses sectors of a zone whose map is not authentic: nobody can tell what exists there.
    fn check_zone(&self, lba: Lba) -> Result<(), VolumeError> {
        match self.map().exists(&self.layout, self.layout.object_of(lba)) {
            Ok(_) => Ok(()),
            Err(UnreadableZone) => Err(self.standing.not_authentic(lba)),
        }
    }

    /// Pages for sectors, waiting for room by making it.
    fn lend_pages(&self, count: usize) -> Result<Vec<FreshPage>, VolumeError> {
        loop {
            if let Some(pages) = self.pool.lend(count) {
                return Ok(pages);
            }
            let mut log = self.log();
            if let Some(pages) = self.pool.lend(count) {
                return Ok(pages);
            }
            self.make_room(&mut log)?;
        }
    }
}
