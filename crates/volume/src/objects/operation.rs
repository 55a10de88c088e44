//! One operation for each object: its sectors, and their seals wherever the layout has them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use sealdisk_cipher::{Form, Seal, SealedForm};
use sealdisk_layout::{ObjectNumber, SealPageNumber, SealPlace};
use sealdisk_store::{ObjectRead, ObjectWrite, ReadExtent, Step, StoreError, WriteExtent};
use sealdisk_units::SECTOR_SIZE;
use zeroize::Zeroizing;

use super::ObjectVolume;
use super::change::{Change, Content, Contents, Run};
use super::turns::Turn;
use crate::VolumeError;
use crate::metadata::seal_cache::SealPage;

/// Pages of slots by number.
type Pages = BTreeMap<SealPageNumber, Box<SealPage>>;

/// What a slot becomes.
enum NewSlot {
    Seal(Seal),
    Zero,
    FoldMark,
}

/// What is written of one object, before it is put in the store's terms.
struct Plan<'a> {
    object: ObjectNumber,
    /// The object does not exist yet: everything of it is written.
    new: bool,
    /// Bytes of the object, by offset.
    bytes: Vec<(u64, Cow<'a, [u8]>)>,
    /// Bytes that become zero: first and count.
    zeros: Vec<(u64, u64)>,
    /// Keys and their values.
    keys: Vec<(u32, Seal)>,
    /// The pages of slots as they will be.
    pages: Pages,
}

impl ObjectVolume {
    /// Carries out the changes whose turn it is, all objects at once.
    pub(super) fn carry_out(&self, turns: &[Turn]) {
        for turn in turns {
            self.versions.begin(turn.object);
        }
        let (dropped, written): (Vec<&Turn>, Vec<&Turn>) =
            turns.iter().partition(|turn| matches!(turn.changes[..], [ref one] if matches!(one.change, Change::Drop)));
        self.write_turns(&written);
        self.drop_turns(&dropped);
        for turn in turns {
            self.versions.end(turn.object);
        }
    }

    fn write_turns(&self, turns: &[&Turn]) {
        let whole: Vec<_> = turns.iter().map(|turn| self.make_whole(turn)).collect();
        let mut planned = Vec::with_capacity(turns.len());
        for (turn, whole) in turns.iter().zip(&whole) {
            let plan = match whole {
                Ok(whole) => self.plan(turn, whole.as_ref()).map_err(Arc::new),
                Err(error) => Err(Arc::clone(error)),
            };
            match plan {
                Ok(Some(plan)) => planned.push((*turn, plan)),
                Ok(None) => end(turn, Ok(())),
                Err(error) => end(turn, Err(error)),
            }
        }
        let results = self.write_plans(planned.iter().map(|(_, plan)| plan));
        let mut created = Vec::new();
        for ((turn, plan), result) in planned.iter().zip(results) {
            match result {
                Ok(()) if plan.new => created.push((*turn, plan)),
                Ok(()) => self.adopt(turn, plan),
                Err(error) => {
                    // What was in memory may no longer be what is there, if the error is a final one.
                    end(turn, Err(Arc::new(self.store_error(error))));
                }
            }
        }
        let changes: Vec<_> = created.iter().map(|(_, plan)| (plan.object, true)).collect();
        let outcome = self.change_map(&changes).map_err(Arc::new);
        for (turn, plan) in created {
            // Of several zones, some may have changed in spite of an error.
            match (&outcome, self.exists(plan.object)) {
                (Ok(()), _) | (Err(_), Ok(true)) => self.adopt(turn, plan),
                (Err(error), _) => end(turn, Err(Arc::clone(error))),
            }
        }
    }

    /// The operation has been done: memory follows, and whoever waits is told.
    fn adopt(&self, turn: &Turn, plan: &Plan<'_>) {
        // Where a seal comes with its sector, none need be kept.
        if self.layout.seals() != SealPlace::Interleaved {
            let mut seals = self.seals();
            plan.pages.iter().for_each(|(number, page)| seals.keep(*number, page));
        }
        end(turn, Ok(()));
    }

    /// Objects leave the map, and then the store.
    fn drop_turns(&self, turns: &[&Turn]) {
        let existing: Vec<&Turn> =
            turns.iter().copied().filter(|turn| matches!(self.exists(turn.object), Ok(true))).collect();
        let changes: Vec<_> = existing.iter().map(|turn| (turn.object, false)).collect();
        let outcome = self.change_map(&changes).map_err(Arc::new);
        let removed: Vec<&Turn> =
            existing.into_iter().filter(|turn| matches!(self.exists(turn.object), Ok(false))).collect();
        let remove = |turn: &&Turn| ObjectWrite::new(self.layout.store_object(turn.object), vec![Step::Remove]);
        let mut removals: Vec<_> = removed.iter().map(remove).collect();
        self.objects().write_objects(&mut removals);
        let pages = self.layout.rows().seal_pages_per_object();
        for (turn, removal) in removed.iter().zip(removals) {
            self.seals().forget(turn.object.0 * pages..(turn.object.0 + 1) * pages);
            // It is gone, even if its space is not.
            if let Err(error) = removal.result {
                end(turn, Err(Arc::new(self.store_error(error))));
            }
        }
        for turn in turns {
            let outcome = match self.exists(turn.object) {
                Ok(false) => Ok(()),
                Ok(true) => outcome.clone(),
                Err(error) => Err(Arc::new(error)),
            };
            end(turn, outcome);
        }
    }

    /// What is to be written; `None` if nothing is. `whole` stands for a change of a part of a sector.
    fn plan<'a>(&self, turn: &'a Turn, whole: Option<&'a Change>) -> Result<Option<Plan<'a>>, VolumeError> {
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
    fn make_whole(&self, turn: &Turn) -> Result<Option<Change>, Arc<VolumeError>> {
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
        let mut nonces = self.draw_nonces(rows.sectors_per_object() as usize)?;
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
            read.result.map_err(|error| self.store_error(error))?;
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
        let mut nonces = self.draw_nonces(slots.iter().filter(without_nonce).count())?;
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

    fn write_plans<'p>(&self, plans: impl Iterator<Item = &'p Plan<'p>>) -> Vec<Result<(), StoreError>> {
        let mut writes: Vec<ObjectWrite<'p>> = plans
            .map(|plan| {
                let mut steps = Vec::new();
                if plan.new {
                    steps.push(Step::Clear);
                }
                steps.extend(plan.zeros.iter().map(|(offset, len)| Step::Zero { offset: *offset, len: *len }));
                let write = |(offset, buf): &'p (u64, Cow<'p, [u8]>)| Step::Write(WriteExtent { offset: *offset, buf });
                steps.extend(plan.bytes.iter().map(write));
                steps.extend(plan.keys.iter().map(|(key, seal)| Step::Set { key: *key, value: seal.as_bytes() }));
                ObjectWrite::new(self.layout.store_object(plan.object), steps)
            })
            .collect();
        self.objects().write_objects(&mut writes);
        writes.into_iter().map(|write| write.result).collect()
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

/// Tells everybody who waits for a turn how it ended.
fn end(turn: &Turn, outcome: Result<(), Arc<VolumeError>>) {
    for queued in &turn.changes {
        queued.end(outcome.clone());
    }
}

fn put(page: &mut SealPage, offset: usize, slot: &Seal) {
    let bytes = slot.as_bytes();
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
}
