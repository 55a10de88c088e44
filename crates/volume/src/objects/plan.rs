//! What is written of one object: its sectors, and their slots wherever the layout has them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sealdisk_cipher::{Form, Seal, SealedForm};
use sealdisk_layout::{ObjectNumber, SealPageNumber, SealPlace};
use sealdisk_store::{ObjectRead, ReadExtent};
use sealdisk_units::SECTOR_SIZE;
use zeroize::Zeroizing;

use super::ObjectVolume;
use super::change::{Change, Content, Contents, Run};
use super::turns::Turn;
use crate::VolumeError;
use crate::metadata::seal_cache::SealPage;

/// Pages of slots by number.
pub(super) type Pages = BTreeMap<SealPageNumber, Box<SealPage>>;

/// What a slot becomes.
enum NewSlot {
    Seal(Seal),
    Zero,
    FoldMark,
}

/// What is written of one object, before it is put in the store's terms.
pub(super) struct Plan<'a> {
    pub(super) object: ObjectNumber,
    /// The object does not exist yet: everything of it is written.
    pub(super) new: bool,
    /// Bytes of the object, by offset.
    pub(super) bytes: Vec<(u64, Cow<'a, [u8]>)>,
    /// Bytes that become zero: first and count.
    pub(super) zeros: Vec<(u64, u64)>,
    /// Keys and their values.
    pub(super) keys: Vec<(u32, Seal)>,
    /// The pages of slots as they will be.
    pub(super) pages: Pages,
}

impl ObjectVolume {
    /// What is to be written; `None` if nothing is. `whole` stands for a change of a part of a sector.
    pub(super) fn plan<'a>(&self, turn: &'a Turn, whole: Option<&'a Change>) -> Result<Option<Plan<'a>>, VolumeError> {
        let object = turn.object;
        let new = !self.exists(object)?;
        let changes: Vec<&Change> = match whole {
            Some(whole) => vec![whole],
            None => turn.changes.iter().map(|queued| &queued.change).collect(),
        };
        let contents = Contents::of(&changes);
        if contents.runs.is_empty() || new && !contents.has_sectors() {
            return Ok(None);
        }
        let mut plan = Plan {
            object,
            new,
            bytes: Vec::new(),
            zeros: Vec::new(),
            keys: Vec::new(),
            pages: if new { self.zero_pages(object)? } else { self.known_pages(object, &contents)? },
        };
        self.set_slots(&mut plan, &contents)?;
        match self.layout.seals() {
            SealPlace::Interleaved => self.interleave(&mut plan, &contents),
            SealPlace::Pages { .. } | SealPlace::Keys => lay_out(&mut plan, &contents),
        }
        Ok(Some(plan))
    }

    /// If a part of a sector is changed: the change of the whole sector.
    pub(super) fn make_whole(&self, turn: &Turn) -> Result<Option<Change>, Arc<VolumeError>> {
        let [queued] = &turn.changes[..] else { return Ok(None) };
        let Change::Part { index, bytes, plain } = &queued.change else { return Ok(None) };
        let lba = self.layout.lba_of(turn.object, *index);
        let mut sector = Zeroizing::new([0; SECTOR_SIZE]);
        self.read_sector(lba, &mut sector[..])?;
        sector[bytes.clone()].copy_from_slice(plain);
        Ok(Some(self.seal(lba, &sector[..])?))
    }

    /// Pages of an object in which every sector is zero.
    fn zero_pages(&self, object: ObjectNumber) -> Result<Pages, VolumeError> {
        let rows = self.layout.rows();
        let mut nonces = self.standing.draw_nonces(rows.sectors_per_object() as usize)?;
        let pages = rows.seal_pages_of(object).map(|number| {
            let mut page = Box::new([0; size_of::<SealPage>()]);
            for (index, nonce) in self.layout.indices_of_page(number).zip(&mut nonces) {
                let seal = self.sealer.seal_zero(self.layout.lba_of(object, index), nonce);
                put(&mut page, self.layout.slot(object, index).1, &seal);
            }
            (number, page)
        });
        Ok(pages.collect())
    }

    /// The pages of the slots that may change, as far as they should be in memory: a page of which some slots stay can
    /// only be written whole if it is known.
    fn known_pages(&self, object: ObjectNumber, contents: &Contents<'_>) -> Result<Pages, VolumeError> {
        let mut pages = Pages::new();
        let mut missing = Vec::new();
        {
            let mut seals = self.seals();
            for number in contents.runs.iter().flat_map(|run| self.pages_of(object, run)) {
                match seals.get(number) {
                    Some(page) => drop(pages.insert(number, Box::new(*page))),
                    None => missing.push(number),
                }
            }
            missing.dedup();
            // Where memory is short, few slots are written rather than a page read, but for the marks of folded sectors,
            // which need not be written at all where they are known.
            if !(seals.has_room() || self.sealer.folds()) {
                missing.clear();
            }
        }
        if let SealPlace::Pages { first } = self.layout.seals()
            && !missing.is_empty()
        {
            let mut loaded: Vec<Box<SealPage>> = vec![Box::new([0; size_of::<SealPage>()]); missing.len()];
            let mut read = ObjectRead::new(self.layout.store_object(object));
            for (number, page) in missing.iter().zip(&mut loaded) {
                read.extents.push(ReadExtent { offset: self.layout.page_offset(first, *number), buf: &mut page[..] });
            }
            let mut reads = [read];
            self.objects().read_objects(&mut reads);
            let [read] = reads;
            read.result.map_err(|error| self.standing.store_error(error))?;
            pages.extend(missing.into_iter().zip(loaded));
        }
        Ok(pages)
    }

    fn pages_of(&self, object: ObjectNumber, run: &Run<'_>) -> impl Iterator<Item = SealPageNumber> + use<> {
        let indices = run.indices();
        let first = self.layout.slot(object, indices.start).0;
        let last = self.layout.slot(object, indices.end - 1).0;
        (first.0..=last.0).map(SealPageNumber)
    }

    /// Puts the new slots in their pages, or among the bytes and keys that are written.
    fn set_slots(&self, plan: &mut Plan<'_>, contents: &Contents<'_>) -> Result<(), VolumeError> {
        let slots = self.new_slots(plan, contents);
        let without_nonce = |(_, slot): &&(u64, NewSlot)| !matches!(slot, NewSlot::Seal(_));
        let mut nonces = self.standing.draw_nonces(slots.iter().filter(without_nonce).count())?;
        for (index, slot) in &slots {
            let lba = self.layout.lba_of(plan.object, *index);
            let mut nonce = || nonces.next().expect("one for each that needs one");
            let seal = match slot {
                NewSlot::Seal(seal) => *seal,
                NewSlot::Zero => self.sealer.seal_zero(lba, nonce()),
                NewSlot::FoldMark => self.sealer.fold_mark(lba, nonce()),
            };
            let (number, offset) = self.layout.slot(plan.object, *index);
            match plan.pages.get_mut(&number) {
                Some(page) => put(page, offset, &seal),
                // Not in memory: the slot alone is written.
                None => self.set_alone(plan, *index, &seal),
            }
        }
        self.write_known_slots(plan, slots.iter().map(|(index, _)| *index));
        Ok(())
    }

    /// The slots that change, by index.
    fn new_slots(&self, plan: &Plan<'_>, contents: &Contents<'_>) -> Vec<(u64, NewSlot)> {
        let mut slots = Vec::new();
        for run in &contents.runs {
            for (nth, index) in run.indices().enumerate() {
                let slot = match run.content {
                    Content::Zeros(_) => NewSlot::Zero,
                    Content::Sectors { sealed, .. } => match sealed[nth].form {
                        SealedForm::Plain => NewSlot::Seal(sealed[nth].seal),
                        // A mark says nothing of the content, and stays.
                        SealedForm::Folded if self.has_fold_mark(plan, index) => continue,
                        SealedForm::Folded => NewSlot::FoldMark,
                    },
                };
                slots.push((index, slot));
            }
        }
        slots
    }

    fn has_fold_mark(&self, plan: &Plan<'_>, index: u64) -> bool {
        let (number, offset) = self.layout.slot(plan.object, index);
        let Some(page) = plan.pages.get(&number) else { return false };
        let slot = self.slot_in(page, offset);
        let lba = self.layout.lba_of(plan.object, index);
        self.sealer.claimed_form(&slot) == Some(Form::FoldMark) && self.sealer.open_fold_mark(lba, &slot).is_ok()
    }

    fn set_alone(&self, plan: &mut Plan<'_>, index: u64, slot: &Seal) {
        let (number, offset) = self.layout.slot(plan.object, index);
        match self.layout.seals() {
            SealPlace::Pages { first } => {
                let at = self.layout.page_offset(first, number) + offset as u64;
                match plan.bytes.last_mut() {
                    // Neighbours in a page lie side by side.
                    Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.to_mut().extend(slot.as_bytes()),
                    _ => plan.bytes.push((at, slot.as_bytes().to_vec().into())),
                }
            }
            SealPlace::Keys => {
                // A page of unknown slots but for this one: zeros are no slot, and are looked up when they are needed.
                let page = plan.pages.entry(number).or_insert_with(|| Box::new([0; size_of::<SealPage>()]));
                put(page, offset, slot);
            }
            SealPlace::Interleaved => {
                let page = plan.pages.entry(number).or_insert_with(|| Box::new([0; size_of::<SealPage>()]));
                put(page, offset, slot);
            }
        }
    }

    /// The slots whose pages are in memory, as they are written.
    fn write_known_slots(&self, plan: &mut Plan<'_>, changed: impl Iterator<Item = u64>) {
        let object = plan.object;
        match self.layout.seals() {
            SealPlace::Interleaved => {}
            SealPlace::Keys => {
                let indices: Vec<u64> = match plan.new {
                    true => (0..self.layout.rows().sectors_per_object()).collect(),
                    false => changed.collect(),
                };
                for index in indices {
                    let (number, offset) = self.layout.slot(object, index);
                    let slot = self.slot_in(&plan.pages[&number], offset);
                    plan.keys.push((index as u32, slot));
                }
            }
            SealPlace::Pages { first } => {
                let mut numbers: Vec<SealPageNumber> = match plan.new {
                    true => plan.pages.keys().copied().collect(),
                    false => changed.map(|index| self.layout.slot(object, index).0).collect(),
                };
                numbers.dedup();
                for number in numbers {
                    let Some(page) = plan.pages.get(&number) else { continue };
                    let at = self.layout.page_offset(first, number);
                    match plan.bytes.last_mut() {
                        Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.to_mut().extend(&page[..]),
                        _ => plan.bytes.push((at, page.to_vec().into())),
                    }
                }
            }
        }
    }

    /// Sectors and slots in turn. A new object is written whole.
    fn interleave(&self, plan: &mut Plan<'_>, contents: &Contents<'_>) {
        let stride = self.layout.stride();
        let slot_of = |plan: &Plan<'_>, index: u64| {
            let (number, offset) = self.layout.slot(plan.object, index);
            self.slot_in(&plan.pages[&number], offset)
        };
        if plan.new {
            let count = self.layout.rows().sectors_per_object();
            let mut bytes = vec![0; (count * stride) as usize];
            for index in 0..count {
                let at = (index * stride) as usize + SECTOR_SIZE;
                let slot = slot_of(plan, index);
                bytes[at..at + slot.as_bytes().len()].copy_from_slice(slot.as_bytes());
            }
            for run in &contents.runs {
                if let Content::Sectors { text, .. } = run.content {
                    for (sector, index) in text.chunks_exact(SECTOR_SIZE).zip(run.indices()) {
                        bytes[(index * stride) as usize..][..SECTOR_SIZE].copy_from_slice(sector);
                    }
                }
            }
            plan.bytes.push((0, bytes.into()));
            return;
        }
        for run in &contents.runs {
            let mut bytes = Vec::with_capacity((run.indices().end - run.first) as usize * stride as usize);
            for (nth, index) in run.indices().enumerate() {
                match run.content {
                    Content::Sectors { text, .. } => bytes.extend(&text[nth * SECTOR_SIZE..][..SECTOR_SIZE]),
                    Content::Zeros(_) => bytes.resize(bytes.len() + SECTOR_SIZE, 0),
                }
                bytes.extend(slot_of(plan, index).as_bytes());
            }
            plan.bytes.push((run.first * stride, bytes.into()));
        }
    }

    /// A slot in its page.
    pub(super) fn slot_in(&self, page: &SealPage, offset: usize) -> Seal {
        Seal::from_slice(&page[offset..offset + self.layout.rows().seal_len()])
    }
}

/// Sectors one after the other, neighbours in one piece: each piece costs the store as much as it has bytes, and more.
fn lay_out<'a>(plan: &mut Plan<'a>, contents: &Contents<'a>) {
    let mut pieces: Vec<(u64, Cow<'a, [u8]>)> = Vec::new();
    for run in &contents.runs {
        let start = run.first * SECTOR_SIZE as u64;
        match run.content {
            Content::Sectors { text, .. } => match pieces.last_mut() {
                Some((at, bytes)) if *at + bytes.len() as u64 == start => bytes.to_mut().extend(text),
                _ => pieces.push((start, text.into())),
            },
            Content::Zeros(_) if plan.new => {}
            Content::Zeros(count) => plan.zeros.push((start, count * SECTOR_SIZE as u64)),
        }
    }
    plan.bytes.splice(0..0, pieces);
}

fn put(page: &mut SealPage, offset: usize, slot: &Seal) {
    let bytes = slot.as_bytes();
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
}
