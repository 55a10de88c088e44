//! Reading: one operation for each object, with the seals that are not in memory.

use std::collections::BTreeMap;

use sealdisk_cipher::Seal;
use sealdisk_layout::{ObjectNumber, SealPageNumber, SealPlace};
use sealdisk_store::{AlignedBuf, ObjectRead, ReadExtent, StoreError};
use sealdisk_units::{Lba, SECTOR_SIZE};

use super::ObjectVolume;
use super::versions::Version;
use crate::metadata::seal_cache::SealPage;
use crate::{ReadRequest, VolumeError};

/// How often a span is read that others write or discard meanwhile.
const ATTEMPTS: u32 = 8;

/// Neighbouring sectors of one object that are wanted, and where their plaintext goes.
struct Span<'a> {
    object: ObjectNumber,
    /// The first one's index in the object.
    first: u64,
    buf: &'a mut [u8],
    /// Their slots, as far as they are known.
    slots: Vec<Option<Seal>>,
    /// What the object had been written before it was looked at.
    version: Option<Version>,
    /// Which request of the batch wants them.
    request: usize,
    outcome: Option<Result<(), VolumeError>>,
}

impl<'a> Span<'a> {
    fn new(object: ObjectNumber, first: u64, buf: &'a mut [u8], request: usize) -> Self {
        Self { object, first, buf, slots: Vec::new(), version: None, request, outcome: None }
    }

    fn indices(&self) -> std::ops::Range<u64> {
        self.first..self.first + (self.buf.len() / SECTOR_SIZE) as u64
    }
}

/// What is fetched of one object: the seals that its spans need, as far as they are known, and what is missing.
struct Fetch {
    object: ObjectNumber,
    /// From before anything of it was looked at.
    version: Option<Version>,
    /// All of it comes from the store at one moment.
    at_once: bool,
    missing_pages: Vec<SealPageNumber>,
    missing_keys: Vec<u32>,
    /// Some slots came as values of keys.
    keys_came: bool,
    loaded: Vec<Box<SealPage>>,
    /// Sectors with their slots, where those come together.
    interleaved: Vec<AlignedBuf>,
    result: Result<(), StoreError>,
}

impl ObjectVolume {
    pub(crate) fn read(&self, batch: &mut [ReadRequest<'_>]) {
        let ragged_count = batch.iter().flat_map(|request| request.range.ragged_pieces()).count();
        let mut scratch = zeroize::Zeroizing::new(vec![0; ragged_count * SECTOR_SIZE]);
        let mut scratch_sectors = scratch.chunks_exact_mut(SECTOR_SIZE);
        let mut ragged = Vec::new();
        let mut spans = Vec::new();
        for (number, request) in batch.iter_mut().enumerate() {
            request.result = Ok(());
            let mut rest = &mut *request.buf;
            let whole = request.range.whole_sectors();
            let mut pieces = request.range.pieces().peekable();
            while let Some(piece) = pieces.next() {
                let object = self.layout.rows().object_of(piece.lba);
                let first = self.layout.index_of(piece.lba);
                let buf = if piece.is_whole_sector() {
                    let end = self.layout.rows().sectors_of(object).end().min(whole.end());
                    let count = (end.0 - piece.lba.0) as usize;
                    let (part, after) = std::mem::take(&mut rest).split_at_mut(count * SECTOR_SIZE);
                    rest = after;
                    while pieces.next_if(|piece| piece.lba < end).is_some() {}
                    part
                } else {
                    let (part, after) = std::mem::take(&mut rest).split_at_mut(piece.in_buffer.len());
                    rest = after;
                    ragged.push((spans.len(), piece.in_sector.clone(), part));
                    scratch_sectors.next().expect("a sector for every ragged piece")
                };
                spans.push(Span::new(object, first, buf, number));
            }
        }
        self.read_spans(&mut spans);
        for (span, in_sector, part) in ragged {
            part.copy_from_slice(&spans[span].buf[in_sector]);
        }
        let failed: Vec<_> =
            spans.into_iter().filter_map(|span| Some((span.request, span.outcome.and_then(Result::err)?))).collect();
        for (number, error) in failed {
            batch[number].result = Err(error);
        }
    }

    /// One whole sector.
    pub(super) fn read_sector(&self, lba: Lba, buf: &mut [u8]) -> Result<(), VolumeError> {
        let object = self.layout.rows().object_of(lba);
        let mut spans = [Span::new(object, self.layout.index_of(lba), buf, 0)];
        self.read_spans(&mut spans);
        let [span] = spans;
        span.outcome.unwrap_or(Ok(()))
    }

    fn read_spans(&self, spans: &mut [Span<'_>]) {
        for attempt in 1..=ATTEMPTS {
            for span in spans.iter_mut().filter(|span| span.outcome.is_none()) {
                // From before the map is asked: an object that is there may be gone when it is read.
                span.version = Some(self.versions.now(span.object));
                match self.exists(span.object) {
                    Ok(true) => {}
                    Ok(false) => {
                        span.buf.fill(0);
                        span.outcome = Some(Ok(()));
                    }
                    Err(error) => {
                        span.buf.fill(0);
                        span.outcome = Some(Err(error));
                    }
                }
            }
            // What did not open may have met a write, or a discard. With its seals from the same moment, and with nobody
            // who wrote meanwhile, there is no doubt.
            self.read_existing(spans, attempt);
            if spans.iter().all(|span| span.outcome.is_some()) {
                return;
            }
        }
    }

    /// Reads the spans that have no outcome yet; the first time, with seals from memory. After the last there is one.
    fn read_existing(&self, spans: &mut [Span<'_>], attempt: u32) {
        let mut by_object: BTreeMap<ObjectNumber, Vec<&mut Span<'_>>> = BTreeMap::new();
        for span in spans.iter_mut().filter(|span| span.outcome.is_none()) {
            by_object.entry(span.object).or_default().push(span);
        }
        if by_object.is_empty() {
            return;
        }
        let mut of_objects: Vec<(Fetch, Vec<&mut Span<'_>>)> = by_object
            .into_iter()
            .map(|(object, mut spans)| (self.prepare(object, &mut spans, attempt == 1), spans))
            .collect();
        self.fetch(&mut of_objects);
        for (fetch, spans) in of_objects {
            self.open_fetched(fetch, spans, attempt == ATTEMPTS);
        }
    }

    /// What must be fetched of an object.
    fn prepare(&self, object: ObjectNumber, spans: &mut [&mut Span<'_>], from_memory: bool) -> Fetch {
        let mut fetch = Fetch {
            object,
            version: spans.first().and_then(|span| span.version),
            at_once: true,
            missing_pages: Vec::new(),
            missing_keys: Vec::new(),
            keys_came: false,
            loaded: Vec::new(),
            interleaved: Vec::new(),
            result: Ok(()),
        };
        if self.layout.seals() == SealPlace::Interleaved {
            let stride = self.layout.stride() as usize;
            fetch.interleaved =
                spans.iter().map(|span| AlignedBuf::new(span.buf.len() / SECTOR_SIZE * stride)).collect();
            return fetch;
        }
        let keys = self.layout.seals() == SealPlace::Keys;
        for span in spans.iter_mut() {
            span.slots.clear();
            let mut indices = span.indices().peekable();
            let mut seals = self.seals();
            while let Some(index) = indices.peek().copied() {
                let (number, _) = self.layout.slot(object, index);
                let end = self.layout.indices_of_page(number).end;
                let page = if from_memory { seals.get(number) } else { None };
                if page.is_none() && !keys {
                    fetch.missing_pages.push(number);
                }
                while let Some(index) = indices.next_if(|index| *index < end) {
                    let slot = page.map(|page| self.slot_in(page, self.layout.slot(object, index).1));
                    let slot = slot.filter(|slot| !keys || !is_unknown(slot));
                    if keys && slot.is_none() {
                        fetch.missing_keys.push(index as u32);
                    }
                    fetch.at_once &= slot.is_none();
                    span.slots.push(slot);
                }
            }
        }
        fetch.missing_pages.sort_unstable();
        fetch.missing_pages.dedup();
        fetch.loaded = vec![Box::new([0; size_of::<SealPage>()]); fetch.missing_pages.len()];
        fetch
    }

    /// Fetches everything, all objects at once.
    fn fetch(&self, of_objects: &mut [(Fetch, Vec<&mut Span<'_>>)]) {
        let mut reads = Vec::with_capacity(of_objects.len());
        for (fetch, spans) in of_objects.iter_mut() {
            let mut read = ObjectRead::new(self.layout.store_object(fetch.object));
            let stride = self.layout.stride();
            if self.layout.seals() == SealPlace::Interleaved {
                for (span, buf) in spans.iter().zip(&mut fetch.interleaved) {
                    read.extents.push(ReadExtent { offset: span.first * stride, buf });
                }
            } else {
                for span in spans.iter_mut() {
                    read.extents.push(ReadExtent { offset: span.first * stride, buf: &mut *span.buf });
                }
            }
            if let SealPlace::Pages { first } = self.layout.seals() {
                for (number, page) in fetch.missing_pages.iter().zip(&mut fetch.loaded) {
                    let offset = self.layout.page_offset(first, *number);
                    read.extents.push(ReadExtent { offset, buf: &mut page[..] });
                }
            }
            read.keys = std::mem::take(&mut fetch.missing_keys);
            reads.push(read);
        }
        self.objects().read_objects(&mut reads);
        let results: Vec<_> = reads.into_iter().map(|read| (read.values, read.result)).collect();
        for ((fetch, spans), (values, result)) in of_objects.iter_mut().zip(results) {
            fetch.result = result;
            if values.is_empty() {
                continue;
            }
            fetch.keys_came = true;
            let len = self.layout.rows().seal_len();
            let found: BTreeMap<u64, Vec<u8>> = values.into_iter().map(|(key, value)| (key.into(), value)).collect();
            for (index, slot) in spans.iter_mut().flat_map(|span| span.indices().zip(&mut span.slots)) {
                if let Some(value) = found.get(&index).filter(|value| value.len() == len) {
                    *slot = Some(Seal::from_slice(value));
                }
            }
        }
    }

    /// Opens the sectors of an object that have come. What does not open has no outcome yet, unless data and seals came at
    /// once.
    fn open_fetched(&self, fetch: Fetch, mut spans: Vec<&mut Span<'_>>, last: bool) {
        if let Err(error) = fetch.result {
            let mut error = Some(error);
            for span in spans {
                let error = error.take().unwrap_or_else(|| {
                    StoreError::new(
                        sealdisk_store::Operation::Open,
                        std::io::Error::other("another sector's read failed"),
                    )
                });
                span.outcome = Some(Err(self.standing.unreadable(self.layout.lba_of(fetch.object, span.first), error)));
            }
            return;
        }
        let loaded: BTreeMap<SealPageNumber, &SealPage> =
            fetch.missing_pages.iter().copied().zip(fetch.loaded.iter().map(|page| &**page)).collect();
        let mut interleaved = fetch.interleaved.iter();
        for span in &mut spans {
            let missing = span.indices().zip(&mut span.slots).filter(|(_, slot)| slot.is_none());
            for (index, slot) in missing {
                let (number, offset) = self.layout.slot(fetch.object, index);
                *slot = loaded.get(&number).map(|page| self.slot_in(page, offset));
            }
            if let Some(buf) = interleaved.next() {
                self.separate(span, buf);
            }
            let opened = self.open_span(span);
            let alone = span.version.is_some_and(|version| self.versions.is_still(fetch.object, version));
            span.outcome = match opened {
                Ok(()) if fetch.at_once || alone || self.sealer.is_authenticated() => Some(Ok(())),
                Err(lba) if last || fetch.at_once && alone => Some(Err(self.standing.not_authentic(lba))),
                _ => None,
            };
        }
        self.remember(&fetch, &spans);
    }

    /// Takes sectors and slots apart that came together.
    fn separate(&self, span: &mut Span<'_>, buf: &[u8]) {
        let pairs = buf.chunks_exact(self.layout.stride() as usize);
        span.slots.clear();
        for (sector, pair) in span.buf.chunks_exact_mut(SECTOR_SIZE).zip(pairs) {
            let (data, slot) = pair.split_at(SECTOR_SIZE);
            sector.copy_from_slice(data);
            span.slots.push(Some(Seal::from_slice(slot)));
        }
    }

    /// Opens sectors in place; where one does not, all are cleared.
    fn open_span(&self, span: &mut Span<'_>) -> Result<(), Lba> {
        let indices = span.indices();
        for ((sector, slot), index) in span.buf.chunks_exact_mut(SECTOR_SIZE).zip(&span.slots).zip(indices) {
            let lba = self.layout.lba_of(span.object, index);
            let opened = slot.is_some_and(|slot| self.sealer.open(lba, &slot, sector).is_ok());
            if !opened {
                span.buf.fill(0);
                return Err(lba);
            }
        }
        Ok(())
    }

    /// Keeps slots that have come, unless the object was written meanwhile, or may be by others: without authentication
    /// nobody would notice that they are old.
    fn remember(&self, fetch: &Fetch, spans: &[&mut Span<'_>]) {
        let alone = !self.standing.is_read_only() || self.sealer.is_authenticated();
        if !alone || fetch.loaded.is_empty() && !fetch.keys_came {
            return;
        }
        let mut seals = self.seals();
        // Writers bring memory up to date before they say that they have ended.
        if !fetch.version.is_some_and(|version| self.versions.is_still(fetch.object, version)) {
            return;
        }
        for (number, page) in fetch.missing_pages.iter().zip(&fetch.loaded) {
            seals.keep(*number, page);
        }
        if self.layout.seals() == SealPlace::Keys {
            let mut changed: BTreeMap<SealPageNumber, Box<SealPage>> = BTreeMap::new();
            let slots = spans.iter().flat_map(|span| span.indices().zip(&span.slots));
            for (index, slot) in slots.filter_map(|(index, slot)| Some((index, slot.as_ref()?))) {
                let (number, offset) = self.layout.slot(fetch.object, index);
                let page = changed.entry(number).or_insert_with(|| match seals.get(number) {
                    Some(page) => Box::new(*page),
                    None => Box::new([0; size_of::<SealPage>()]),
                });
                page[offset..offset + slot.as_bytes().len()].copy_from_slice(slot.as_bytes());
            }
            changed.iter().for_each(|(number, page)| seals.keep(*number, page));
        }
    }
}

/// Whether a page in memory has nothing for an index, where its slots come one by one.
fn is_unknown(slot: &Seal) -> bool {
    slot.as_bytes().iter().all(|byte| *byte == 0)
}
