//! What Sealdisk wants to reach on a cluster.

use super::subject::{BASELINE, folded, in_vain, length_preserving, sealed};
use crate::fio::Job;
use crate::results::Operation;
use crate::targets::{Goal, Target};

/// What is to be reached at these sizes of operations, in bytes.
pub fn targets(block_sizes: &[u64]) -> Vec<Target> {
    let mut targets = Vec::new();
    for operation in [Operation::Read, Operation::Write] {
        // Seals that find no room in their sectors cost something, writes more than reads.
        let with_seals_elsewhere = match operation {
            Operation::Read => 0.95,
            Operation::Write => 0.85,
        };
        for (subject, peer, least) in [
            (length_preserving(), BASELINE.to_owned(), 1.0),
            (folded(), length_preserving(), 0.97),
            (sealed(), length_preserving(), with_seals_elsewhere),
            (in_vain(), length_preserving(), with_seals_elsewhere),
        ] {
            targets.extend(
                block_sizes
                    .iter()
                    .map(|size| Target::at_least(least, &*subject, &*peer, Job::of_series(operation, *size).name())),
            );
        }
    }
    for operation in [Operation::Read, Operation::Write] {
        for subject in [length_preserving(), folded(), sealed()] {
            let measure = Job::of_series(operation, 4 << 10).name();
            let goal = Goal::ProcessorTimeAtMost(1.0);
            targets.push(Target { subject, peer: BASELINE.to_owned(), measure, goal });
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use sealdisk_cipher::CipherName;

    use super::super::subject::subjects;
    use super::super::{BLOCK_SIZES, jobs_of};
    use super::*;

    #[test]
    fn targets_speak_of_what_is_measured() {
        let subjects = subjects(CipherName::Aegis256);
        let targets = targets(&BLOCK_SIZES);
        for target in &targets {
            for name in [&target.subject, &target.peer] {
                assert!(subjects.iter().any(|subject| subject.name == *name), "{name} is not measured");
            }
            assert!(jobs_of(&BLOCK_SIZES).iter().any(|job| job.name() == target.measure), "{}", target.measure);
        }
        assert_eq!(targets.len(), 2 * 4 * 11 + 6);
    }
}
