//! Comparing a volume with what it must hold.

use sealdisk_store::Choices;
use sealdisk_volume::Volume;
use support::images::assert_same;
use support::{Random, read};

use crate::content::Content;

/// Bytes that are compared at once.
const STEP: u64 = 2 << 20;

/// Compares bytes from an offset on.
pub fn compare(volume: &Volume, offset: u64, expected: &[u8], what: &str) {
    let mut found = vec![0xee; expected.len()];
    read(volume, offset, &mut found).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_same(&found, expected, &format!("{what}, from byte {offset}"));
}

/// Compares everything.
pub fn compare_all(volume: &Volume, content: &Content, what: &str) {
    assert_eq!(volume.size(), content.size(), "{what}: the size");
    for start in (0..content.size()).step_by(STEP as usize) {
        let end = content.size().min(start + STEP);
        compare(volume, start, &content.read(start..end), what);
    }
}

/// Compares some places.
pub fn look_at(volume: &Volume, content: &Content, random: &mut Random, what: &str) {
    assert_eq!(volume.size(), content.size(), "{what}: the size");
    for _ in 0..8 {
        let start = random.below(content.size());
        let end = (start + 1 + random.below(100_000)).min(content.size());
        compare(volume, start, &content.read(start..end), what);
    }
}
