//! An ordinary LUKS2 volume: every sector in its place, encrypted as dm-crypt does it. No seals, no journal.
//!
//! In a file or on a device, what was never written is noise, as it is to dm-crypt. On Ceph it is zeros, as it is to librbd,
//! which finds no object there; so discarding whole objects gives space back.

use std::sync::{Arc, PoisonError, RwLock};

use sealdisk_cipher::{VolumeKey, XtsPlain64, is_zero};
use sealdisk_layout::PlainPayload;
use sealdisk_store::{AlignedBuf, ReadExtent, Store, StoreError, WriteExtent};
use sealdisk_units::{ByteRange, StoreRange};

use crate::buffers::{Buffers, Ciphertext};
use crate::standing::Standing;
use crate::{Allocation, Data, OpenError, OpenOptions, ReadRequest, Space, VolumeError, WriteRequest};

/// Bytes that are encrypted before they are handed to the store: as many as it may want at once.
const AT_ONCE: usize = 4 << 20;

/// An open LUKS2 volume.
pub(crate) struct PlainVolume {
    standing: Standing,
    buffers: Arc<Buffers>,
    store: Arc<dyn Store>,
    cipher: XtsPlain64,
    offset: u64,
    sector_size: u64,
    size: u64,
    /// Bytes of the store's objects, if it has any: then what it has no ciphertext for is zeros.
    object_size: Option<u64>,
    /// Held alone while part of an encryption sector is changed, and together by writers of whole ones.
    partial: RwLock<()>,
}

/// The size of the disk in bytes: what is left of the store, in whole encryption sectors, or what the header fixes.
pub(crate) fn size_of_payload(store: &dyn Store, payload: &PlainPayload) -> Result<u64, OpenError> {
    let room = store.size()?.checked_sub(payload.offset).ok_or_else(|| {
        OpenError::BadPayload(format!(
            "the store ends before the data begins, at byte {}: it was cut off",
            payload.offset
        ))
    })?;
    let sector = u64::from(payload.sector_size);
    match payload.size {
        None => Ok(room / sector * sector),
        Some(size) if size.is_multiple_of(sector) => Ok(size),
        Some(size) => Err(OpenError::BadPayload(format!(
            "the header says {size} bytes of data, which is no multiple of its sector size {sector}"
        ))),
    }
}

impl PlainVolume {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        name: &str,
        payload: &PlainPayload,
        key: &VolumeKey,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let cipher = XtsPlain64::new(key, payload.sector_size, payload.iv_tweak)
            .map_err(|error| OpenError::BadPayload(error.to_string()))?;
        Ok(Self {
            standing: Standing::new(name, options.read_only),
            buffers: Arc::default(),
            size: size_of_payload(&*store, payload)?,
            cipher,
            offset: payload.offset,
            sector_size: u64::from(payload.sector_size),
            object_size: store.object_size(),
            partial: RwLock::new(()),
            store,
        })
    }

    /// Whether it takes writes, and if not, why.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn implementation(&self) -> &'static str {
        self.cipher.implementation()
    }

    /// What holds the volume's bytes.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Where the bytes of a range of whole encryption sectors are in the store.
    pub(crate) fn place(&self, range: ByteRange) -> Option<StoreRange> {
        self.is_aligned(range).then(|| StoreRange::new(self.offset + range.offset(), range.len()))
    }

    /// Makes plaintext of what was read from [`place`](Self::place).
    pub(crate) fn finish_read(
        &self,
        range: ByteRange,
        read: Result<(), StoreError>,
        buf: &mut [u8],
    ) -> Result<(), VolumeError> {
        read.map_err(|error| self.standing.store_error(error))?;
        self.decrypt(range.offset(), buf);
        Ok(())
    }

    /// Makes plaintext of whole encryption sectors from this byte of the disk on.
    fn decrypt(&self, offset: u64, buf: &mut [u8]) {
        if self.object_size.is_none() {
            return self.cipher.decrypt(offset / 512, buf);
        }
        let sector = self.sector_size as usize;
        let mut at = 0;
        while at < buf.len() {
            // No ciphertext is all zeros, except once in 2^4096.
            let hole = is_zero(&buf[at..at + sector]);
            let same = |other: &usize| is_zero(&buf[*other..*other + sector]) != hole;
            let end = (at + sector..buf.len()).step_by(sector).find(same).unwrap_or(buf.len());
            if !hole {
                self.cipher.decrypt((offset + at as u64) / 512, &mut buf[at..end]);
            }
            at = end;
        }
    }

    pub(crate) fn read(&self, batch: &mut [ReadRequest<'_>]) {
        // Aligned requests are read where they are wanted, all at once.
        let mut extents = Vec::with_capacity(batch.len());
        for request in batch.iter_mut().filter(|request| self.is_aligned(request.range)) {
            extents.push(ReadExtent { offset: self.offset + request.range.offset(), buf: &mut *request.buf });
        }
        let together = self.store.read(&mut extents).is_ok();
        drop(extents);
        for request in batch.iter_mut() {
            request.result = if self.is_aligned(request.range) {
                let read = if together { Ok(()) } else { self.fetch(request.range, request.buf) };
                read.map(|()| self.decrypt(request.range.offset(), request.buf))
            } else {
                self.read_unaligned(request.range, request.buf)
            };
        }
    }

    fn fetch(&self, range: ByteRange, buf: &mut [u8]) -> Result<(), VolumeError> {
        let mut extent = [ReadExtent { offset: self.offset + range.offset(), buf }];
        self.store.read(&mut extent).map_err(|error| self.standing.store_error(error))
    }

    fn read_unaligned(&self, range: ByteRange, buf: &mut [u8]) -> Result<(), VolumeError> {
        let around = self.sectors_around(range);
        let mut sectors = zeroize::Zeroizing::new(vec![0; around.len() as usize]);
        self.fetch(around, &mut sectors)?;
        self.decrypt(around.offset(), &mut sectors);
        let start = (range.offset() - around.offset()) as usize;
        buf.copy_from_slice(&sectors[start..start + buf.len()]);
        Ok(())
    }

    pub(crate) fn write(&self, batch: &mut [WriteRequest<'_>]) {
        let mut encrypted = Vec::new();
        let mut pending: Vec<(usize, usize)> = Vec::new();
        let mut held = 0;
        for index in 0..batch.len() {
            let range = batch[index].range;
            batch[index].result = self.standing.check_writable();
            if batch[index].result.is_err() || range.is_empty() {
                continue;
            }
            if self.is_aligned(range) && batch[index].data.len() <= AT_ONCE {
                held += batch[index].data.len();
                pending.push((index, encrypted.len()));
                encrypted.push((range, self.encrypt(range, &mut batch[index].data)));
                if held < AT_ONCE {
                    continue;
                }
            } else {
                batch[index].result = self.write_alone(range, &batch[index].data);
            }
            self.write_pending(batch, &mut pending, &mut encrypted);
            held = 0;
        }
        self.write_pending(batch, &mut pending, &mut encrypted);
    }

    /// Encrypts whole encryption sectors: in place, if their memory was given.
    fn encrypt(&self, range: ByteRange, data: &mut Data<'_>) -> Ciphertext {
        let first = range.offset() / 512;
        match data.take_given() {
            Some(mut memory) => {
                self.cipher.encrypt(first, &mut memory);
                let all = 0..memory.len();
                Ciphertext::Given(memory.into(), all)
            }
            None => {
                let mut sectors = self.buffers.take(data.len());
                self.cipher.encrypt_into(first, data, &mut sectors);
                Ciphertext::Ours(sectors)
            }
        }
    }

    /// Hands encrypted requests to the store together, or one by one where they overlap or fail.
    fn write_pending(
        &self,
        batch: &mut [WriteRequest<'_>],
        pending: &mut Vec<(usize, usize)>,
        encrypted: &mut Vec<(ByteRange, Ciphertext)>,
    ) {
        let mut ranges: Vec<_> = encrypted.iter().map(|(range, _)| (range.offset(), range.end())).collect();
        ranges.sort_unstable();
        let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        let extents: Vec<_> =
            encrypted.iter().map(|(range, buf)| WriteExtent { offset: self.offset + range.offset(), buf }).collect();
        let together = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        if !(apart && self.store.write(&extents).is_ok()) {
            for (index, at) in pending.iter() {
                let written = self.store.write(std::slice::from_ref(&extents[*at]));
                batch[*index].result = written.map_err(|error| self.standing.store_error(error));
            }
        }
        drop(together);
        drop(extents);
        pending.clear();
        encrypted.clear();
    }

    /// A request that is not aligned, or too long to be encrypted as a whole.
    fn write_alone(&self, range: ByteRange, buf: &[u8]) -> Result<(), VolumeError> {
        let around = self.sectors_around(range);
        let whole = self.is_aligned(range);
        let _together = whole.then(|| self.partial.read().unwrap_or_else(PoisonError::into_inner));
        let _alone = (!whole).then(|| self.partial.write().unwrap_or_else(PoisonError::into_inner));
        let mut sectors = self.buffers.take((around.len() as usize).min(AT_ONCE));
        let mut offset = around.offset();
        while offset < around.end() {
            let part = ByteRange::checked(offset, (around.end() - offset).min(AT_ONCE as u64), self.size)
                .expect("part of a checked range");
            let sectors = &mut sectors[..part.len() as usize];
            let (start, end) = (range.offset().max(part.offset()), range.end().min(part.end()));
            if start > part.offset() || end < part.end() {
                self.fetch(part, sectors)?;
                self.decrypt(part.offset(), sectors);
            }
            let source = (start - range.offset()) as usize..(end - range.offset()) as usize;
            sectors[(start - part.offset()) as usize..(end - part.offset()) as usize].copy_from_slice(&buf[source]);
            self.cipher.encrypt(part.offset() / 512, sectors);
            let extent = WriteExtent { offset: self.offset + part.offset(), buf: sectors };
            self.store.write(&[extent]).map_err(|error| self.standing.store_error(error))?;
            offset = part.end();
        }
        Ok(())
    }

    /// Makes the range read as zeros: whole objects of a store that has them by removing them, the rest by writing zeros.
    /// (librbd takes a hole in an object for ciphertext when it reads little of it.)
    pub(crate) fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        // No object may take part of an encryption sector with it.
        let object_size = self.object_size.filter(|_| self.offset.is_multiple_of(self.sector_size));
        let Some(object_size) = object_size.filter(|_| space == Space::Free) else { return self.write_zeros(range) };
        let (start, end) = (self.offset + range.offset(), self.offset + range.end());
        let objects = start.next_multiple_of(object_size)..end / object_size * object_size;
        if objects.is_empty() {
            return self.write_zeros(range);
        }
        self.standing.check_writable()?;
        for (start, end) in [(start, objects.start), (objects.end, end)] {
            let edge =
                ByteRange::checked(start - self.offset, end - start, self.size).expect("part of a checked range");
            self.write_zeros(edge)?;
        }
        let _together = self.partial.read().unwrap_or_else(PoisonError::into_inner);
        let hole = StoreRange::new(objects.start, objects.end - objects.start);
        self.store.zero(hole).map_err(|error| self.standing.store_error(error))
    }

    fn write_zeros(&self, range: ByteRange) -> Result<(), VolumeError> {
        let zeros = AlignedBuf::new(AT_ONCE.min(range.len() as usize));
        let mut offset = range.offset();
        while offset < range.end() {
            let part = ByteRange::checked(offset, (range.end() - offset).min(AT_ONCE as u64), self.size)
                .expect("part of a checked range");
            let mut batch = [WriteRequest::new(part, &zeros[..part.len() as usize])];
            self.write(&mut batch);
            let [request] = batch;
            request.result?;
            offset = part.end();
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<(), VolumeError> {
        if self.standing.is_read_only() {
            return Ok(());
        }
        self.standing.check_writable()?;
        self.store.sync().map_err(|error| self.standing.final_store_error(error))
    }

    pub(crate) fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        // In a file, even a hole decrypts to noise; on Ceph, asking would cost as much as reading.
        Ok(vec![Allocation { len: range.len(), hole: false }])
    }

    fn is_aligned(&self, range: ByteRange) -> bool {
        (range.offset() | range.len()).is_multiple_of(self.sector_size)
    }

    fn sectors_around(&self, range: ByteRange) -> ByteRange {
        let start = range.offset() / self.sector_size * self.sector_size;
        let end = range.end().next_multiple_of(self.sector_size);
        ByteRange::checked(start, end - start, self.size).expect("the disk is made of whole encryption sectors")
    }
}

/// Grows or shrinks the store of a LUKS2 volume whose header says that the data reaches up to the store's end.
pub(crate) fn resize(store: &dyn Store, payload: &PlainPayload, size: u64, force: bool) -> Result<(), OpenError> {
    let old = size_of_payload(store, payload)?;
    let sector = u64::from(payload.sector_size);
    if payload.size.is_some() {
        let reason = "the header fixes the size of this LUKS2 volume; only volumes that reach to the end of their file or device can be resized";
        return Err(OpenError::BadPayload(reason.to_owned()));
    }
    if !size.is_multiple_of(sector) {
        return Err(OpenError::BadPayload(format!(
            "{size} bytes are no multiple of the volume's sector size {sector}"
        )));
    }
    if size < old && !force {
        return Err(OpenError::ShrinkNeedsForce { from: old, to: size });
    }
    store.resize(payload.offset + size)?;
    store.sync()?;
    Ok(())
}
