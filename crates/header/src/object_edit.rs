//! How an edited header is put where it belongs when that is no file: in objects, each of which changes as a whole.
//!
//! In between two changes the writer may die. So key material that the new header names comes first, then the header's
//! copies, and what nobody names any more is wiped last. Whatever lies in the copies' own object changes with them: in an
//! object of 4 MiB that is all there is, except for the material of the later key slots.

use std::ops::Range;

use crate::{HeaderCopy, HeaderMap};

/// What is compared and written: no cipher and no copy has smaller parts.
const BLOCK: usize = 4096;

/// What becomes of one object. Offsets are those in the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectEdit {
    /// Its number; objects of one size lie one behind the other.
    pub object: u64,
    /// Bytes that must be there: nobody else has changed the header meanwhile.
    pub expected: Vec<(u64, Vec<u8>)>,
    /// Bytes that are written.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// First byte and number of bytes that become zero.
    pub zeros: Vec<(u64, u64)>,
}

/// When a block may change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Material,
    Copies,
    Wipe,
}

impl ObjectEdit {
    /// The edits, in their order, that make `after` of `before`, where `map` says what lies where in `after`. Both are the
    /// bytes of the device from its first on, up to the end of the key area at least. Nothing need be where `before`
    /// holds no header.
    ///
    /// Key material that nobody names any more becomes zero, whatever stands in its place in `after`.
    pub fn between(before: &[u8], after: &[u8], map: &HeaderMap, object_size: u64) -> Vec<Self> {
        let len = before.len().min(after.len()).min(map.key_area.end as usize);
        let changed: Vec<(usize, Stage)> = (0..len)
            .step_by(BLOCK)
            .filter(|&start| before[block(start, len)] != after[block(start, len)])
            .map(|start| (start, stage(start as u64, map)))
            .filter(|(start, stage)| *stage != Stage::Wipe || !is_zero(&before[block(*start, len)]))
            .collect();
        let objects_of = |range: Range<u64>| range.start / object_size..range.end.div_ceil(object_size);
        // If all copies are in one object, there is nothing before and nothing after.
        let copies = objects_of(map.copies.clone());
        let joined = if copies.end - copies.start == 1 { Some(copies.start) } else { None };
        let mut edits = Vec::new();
        for now in [Stage::Material, Stage::Copies, Stage::Wipe] {
            for object in 0..(len as u64).div_ceil(object_size) {
                let belongs = |&&(start, stage): &&(usize, Stage)| {
                    let stage = if joined == Some(object) { Stage::Copies } else { stage };
                    start as u64 / object_size == object && stage == now
                };
                let mut edit = Self { object, ..Self::default() };
                for &(start, stage) in changed.iter().filter(belongs) {
                    edit.add(start as u64 % object_size, stage, &after[block(start, len)]);
                }
                if !edit.writes.is_empty() || !edit.zeros.is_empty() {
                    edits.push(edit);
                }
            }
        }
        let first = &before[..BLOCK.min(len)];
        // Both forms of header begin with this, and every change of theirs changes it.
        if HeaderCopy::len_of(first).is_ok() || first.starts_with(b"LUKS\xba\xbe") {
            edits.iter_mut().filter(|edit| edit.object == 0).for_each(|edit| {
                if edit.writes.iter().any(|(offset, _)| *offset == 0) {
                    edit.expected.push((0, first.to_vec()));
                }
            });
        }
        edits
    }

    fn add(&mut self, offset: u64, stage: Stage, bytes: &[u8]) {
        if stage == Stage::Wipe || is_zero(bytes) {
            match self.zeros.last_mut() {
                Some((start, len)) if *start + *len == offset => *len += bytes.len() as u64,
                _ => self.zeros.push((offset, bytes.len() as u64)),
            }
        } else {
            match self.writes.last_mut() {
                Some((start, whole)) if *start + whole.len() as u64 == offset => whole.extend_from_slice(bytes),
                _ => self.writes.push((offset, bytes.to_vec())),
            }
        }
    }
}

fn block(start: usize, len: usize) -> Range<usize> {
    start..(start + BLOCK).min(len)
}

fn stage(start: u64, map: &HeaderMap) -> Stage {
    if start < map.copies.end {
        Stage::Copies
    } else if map.key_material.iter().any(|area| area.start < start + BLOCK as u64 && start < area.end) {
        Stage::Material
    } else {
        Stage::Wipe
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
