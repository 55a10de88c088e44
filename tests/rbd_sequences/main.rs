//! Random sequences of everything that is done to a volume on Ceph, against a model that is plain bytes: in every layout,
//! with snapshots, clones, other sizes, and ends of all kinds.
//!
//! Each sequence depends on the seed alone. `SEALDISK_SEED=…` repeats a run, and `SEALDISK_SEQUENCE_STEPS=1000`
//! makes it longer.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

mod compare;
mod content;
mod family;
mod kind;
mod steps;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use support::Random;
use support::ceph::Pool;
use support::images::Images;

use family::Family;
use kind::Kind;

/// Of each kind's sequence.
const STEPS: u32 = 40;
/// Sequences at once. They mostly wait for Ceph.
const AT_ONCE: usize = 8;

#[test]
fn a_volume_is_the_disk_that_the_model_says_whatever_is_done_to_it() {
    let images = Images::new(&[("sequences", Pool::Replicated(2)), ("sequences-data", Pool::ErasureCoded)]);
    images.rbd("namespace create sequences/ns");
    let seed = Random::seed_from_environment("rbd_sequences");
    let steps = std::env::var("SEALDISK_SEQUENCE_STEPS").map_or(STEPS, |text| text.parse().unwrap());
    let kinds = Kind::all(&mut Random::new(seed));
    let (waiting, failures) = (Mutex::new(kinds.iter().zip(seed..)), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((kind, seed)) = next() {
                    let failure = sequence(&images, kind, Random::new(seed), steps).err();
                    failures.lock().unwrap().extend(failure);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "SEALDISK_SEED={seed} repeats this.\n{}", failures.join("\n"));
}

/// One volume's, and its clones'; an error tells all that was done.
fn sequence(images: &Images, kind: &Kind, mut random: Random, steps: u32) -> Result<(), String> {
    let size = steps::new_size(kind, &mut random);
    let mut family = Family::new(images, kind, size, random);
    for step in 1..=steps {
        let done = catch_unwind(AssertUnwindSafe(|| match step {
            1 => steps::begin(&mut family, kind),
            last if last == steps => family.finish(),
            _ => steps::take(&mut family, kind),
        }));
        if let Err(cause) = done {
            let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let cause = text.or_else(|| cause.downcast_ref().cloned()).unwrap_or_default();
            let told = family.told.join("\n  ");
            return Err(format!("{}, step {step}: {cause}\nafter\n  {told}", kind.name));
        }
    }
    Ok(())
}
