//! Who takes part, and what Sealdisk wants to reach.

use crate::fio::{Job, RANDOM_READ, RANDOM_WRITE, SEQUENTIAL_READ, SEQUENTIAL_WRITE};
use crate::targets::Target;

/// A disk that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scenario {
    /// Short and unique.
    pub(super) name: &'static str,
    /// For people.
    pub(super) what: &'static str,
    /// What serves it.
    pub(super) kind: Kind,
    /// Whether database pages are written to it, instead of random bytes.
    pub(super) writes_pages: bool,
}

/// What serves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sealdisk: a volume with this cipher.
    Volume { cipher: &'static str, fold: bool },
    /// Sealdisk without encryption.
    PassThrough,
    /// qemu-storage-daemon.
    Qemu { luks: bool },
    /// nbdkit.
    Nbdkit { luks: bool },
}

const fn volume(name: &'static str, cipher: &'static str, what: &'static str) -> Scenario {
    Scenario { name, what, kind: Kind::Volume { cipher, fold: false }, writes_pages: false }
}

const fn other(name: &'static str, kind: Kind, what: &'static str) -> Scenario {
    Scenario { name, what, kind, writes_pages: false }
}

/// Everyone, in the order of a round.
pub(super) const SCENARIOS: [Scenario; 11] = [
    volume("aegis-256", "aegis-256", "Sealdisk, sealed, packed, random data"),
    other("qemu-luks", Kind::Qemu { luks: true }, "qemu-storage-daemon with its LUKS driver, AES-256-XTS"),
    Scenario {
        name: "aegis-256-fold",
        what: "Sealdisk, sealed, packed, folding, PostgreSQL pages",
        kind: Kind::Volume { cipher: "aegis-256", fold: true },
        writes_pages: true,
    },
    volume("aes-256-xts", "aes-256-xts", "Sealdisk, LUKS2, length-preserving"),
    other("pass-through", Kind::PassThrough, "Sealdisk's path without encryption, seals or journal"),
    other("qemu-plain", Kind::Qemu { luks: false }, "qemu-storage-daemon without encryption"),
    volume("aes-256-gcm", "aes-256-gcm", "Sealdisk, sealed, packed, random data"),
    volume("xchacha20-poly1305", "xchacha20-poly1305", "Sealdisk, sealed, packed, random data"),
    volume("aes-256-xts-random", "aes-256-xts-random", "Sealdisk, random IVs, not authenticated, random data"),
    other("nbdkit-luks", Kind::Nbdkit { luks: true }, "nbdkit with its LUKS filter, AES-256-XTS; no direct I/O"),
    other("nbdkit-plain", Kind::Nbdkit { luks: false }, "nbdkit's file plugin without encryption; no direct I/O"),
];

impl Scenario {
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Volume { .. } | Kind::PassThrough)
    }

    pub(super) fn is_chosen(&self, only: &[String]) -> bool {
        only.is_empty() || only.iter().any(|name| name == self.name)
    }
}

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name)
}

/// What is to be reached, all of it beside qemu-storage-daemon's LUKS.
pub fn targets() -> Vec<Target> {
    let target = |subject: &str, job: Job, least| Target::at_least(least, subject, "qemu-luks", job.name());
    let sealed = [(RANDOM_READ, 2.0), (SEQUENTIAL_READ, 2.0), (RANDOM_WRITE, 1.5), (SEQUENTIAL_WRITE, 2.0)];
    let mut targets: Vec<_> = sealed.map(|(job, least)| target("aegis-256", job, least)).into();
    targets.push(target("aegis-256-fold", RANDOM_WRITE, 2.0));
    let all = [RANDOM_READ, SEQUENTIAL_READ, RANDOM_WRITE, SEQUENTIAL_WRITE];
    targets.extend(all.map(|job| target("aes-256-xts", job, 3.0)));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::JOBS;

    #[test]
    fn names_are_unique_and_targets_speak_of_what_is_measured() {
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), SCENARIOS.len());
        for target in targets() {
            assert!(names().any(|name| name == target.subject) && names().any(|name| name == target.peer));
            assert!(JOBS.iter().any(|job| job.name() == target.measure));
        }
    }
}
