//! Who takes part: the layouts that there are, with and without folding, and librbd beside them.

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, check_combination};

use super::volume::VolumeKind;

/// One of those that are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Short and unique.
    pub(super) name: String,
    /// For people.
    pub(super) what: String,
    pub(super) kind: Kind,
    /// Whether database pages are written to it, instead of random bytes.
    pub(super) writes_pages: bool,
}

/// What serves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sealdisk.
    Volume(VolumeKind),
    /// librbd, in qemu-storage-daemon.
    Librbd { luks2: bool },
}

/// librbd's own encryption, with which the paper compares.
pub const BASELINE: &str = "librbd-luks2";
/// Without encryption.
pub(super) const PLAIN: &str = "librbd";
/// Sealdisk without seals: what seals cost is told by comparison with this.
pub(super) fn length_preserving() -> String {
    LayoutName::LengthPreserving.to_string()
}

/// Everyone. Layouts that the library learns appear by themselves.
pub(super) fn subjects(cipher: CipherName) -> Vec<Subject> {
    let mut all = vec![
        Subject {
            name: length_preserving(),
            what: "Sealdisk, LUKS2, AES-256-XTS, no seals".to_owned(),
            kind: volume(CipherName::Aes256Xts, LayoutName::LengthPreserving, false),
            writes_pages: false,
        },
        librbd(BASELINE, true, "librbd with its LUKS2 encryption, AES-256-XTS, in qemu-storage-daemon"),
    ];
    let sealed = LayoutName::ALL.into_iter().filter(|layout| check_combination(cipher, *layout, false).is_ok());
    for layout in sealed.clone() {
        all.push(Subject {
            name: layout.to_string(),
            what: format!("Sealdisk, {cipher}, {layout}, random data"),
            kind: volume(cipher, layout, false),
            writes_pages: false,
        });
    }
    for layout in sealed.filter(|layout| check_combination(cipher, *layout, true).is_ok()) {
        all.push(Subject {
            name: fold_of(layout),
            what: format!("Sealdisk, {cipher}, {layout}, folding, PostgreSQL pages"),
            kind: volume(cipher, layout, true),
            writes_pages: true,
        });
        if layout == DEFAULT {
            all.push(Subject {
                name: in_vain(),
                what: format!("Sealdisk, {cipher}, {layout}, folding, random data, which does not fold"),
                kind: volume(cipher, layout, true),
                writes_pages: false,
            });
        }
    }
    all.push(librbd(PLAIN, false, "librbd without encryption, in qemu-storage-daemon"));
    all
}

/// The layout that targets speak of.
const DEFAULT: LayoutName = LayoutName::ALL[0];

/// The default layout without folding.
pub(super) fn sealed() -> String {
    DEFAULT.to_string()
}

/// The default layout, folding database pages.
pub(super) fn folded() -> String {
    fold_of(DEFAULT)
}

/// The default layout, trying to fold what cannot be folded.
pub(super) fn in_vain() -> String {
    format!("{DEFAULT}-fold-random")
}

fn fold_of(layout: LayoutName) -> String {
    format!("{layout}-fold")
}

fn volume(cipher: CipherName, layout: LayoutName, fold: bool) -> Kind {
    Kind::Volume(VolumeKind { cipher, layout, fold })
}

fn librbd(name: &str, luks2: bool, what: &str) -> Subject {
    Subject { name: name.to_owned(), what: what.to_owned(), kind: Kind::Librbd { luks2 }, writes_pages: false }
}

impl Subject {
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Volume(_))
    }
}

/// Who comes when: everyone once in each turn, first and last alternately, so that nobody is always measured while the
/// machine has still something saved up.
pub(super) fn order(subjects: usize, turn: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..subjects).map(|i| (i + turn / 2) % subjects).collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_takes_part_and_names_are_unique() {
        for cipher in CipherName::ALL.into_iter().filter(|cipher| cipher.seal_len() > 0) {
            let all = subjects(cipher);
            let mut names: Vec<&str> = all.iter().map(|subject| &*subject.name).collect();
            for layout in LayoutName::ALL {
                assert!(names.contains(&layout.as_str()), "{layout} is missing");
            }
            for name in [sealed(), folded(), in_vain()] {
                assert!(names.contains(&&*name), "{name} is missing");
            }
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn everyone_comes_once_a_turn_and_first_and_last_as_often() {
        let mut sums = vec![0; 5];
        for turn in 0..10 {
            let order = order(5, turn);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..5).collect::<Vec<_>>());
            order.iter().enumerate().for_each(|(place, subject)| sums[*subject] += place);
        }
        assert_eq!(sums, [20; 5]);
    }
}
