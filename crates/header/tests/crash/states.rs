//! What a crash may leave of a sequence of writes.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use crate::trace::Epoch;

/// What no device tears.
const PIECE: usize = 512;

/// One piece of one write.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    pub offset: usize,
    pub bytes: &'a [u8],
}

pub fn pieces(epoch: &Epoch) -> Vec<Piece<'_>> {
    let of_write = epoch.iter().flat_map(|write| {
        assert!(write.offset.is_multiple_of(PIECE));
        let chunks = write.bytes.chunks(PIECE).enumerate();
        chunks.map(|(number, bytes)| Piece { offset: write.offset + number * PIECE, bytes })
    });
    of_write.collect()
}

/// A subset of the pieces that were under way, in an order in which they may have reached the medium. Beside evenly
/// mixed subsets there are those in which errors hide: all but one, only one, all before one, all of some writes.
pub fn survivors<'a>(epoch: &'a Epoch, random: &mut StdRng) -> Vec<Piece<'a>> {
    let mut all = pieces(epoch);
    if all.is_empty() {
        return all;
    }
    if random.random_bool(0.3) {
        all.shuffle(random);
    }
    let chosen = random.random_range(0..all.len());
    match random.random_range(0..6) {
        0 => all.truncate(chosen),
        1 => drop(all.remove(chosen)),
        2 => all = vec![all[chosen]],
        3 => {
            let kept: Vec<bool> = epoch.iter().map(|_| random.random()).collect();
            all = epoch
                .iter()
                .zip(kept)
                .filter(|(_, kept)| *kept)
                .flat_map(|(write, _)| {
                    let chunks = write.bytes.chunks(PIECE).enumerate();
                    chunks.map(|(number, bytes)| Piece { offset: write.offset + number * PIECE, bytes })
                })
                .collect();
        }
        _ => {
            let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
            all.retain(|_| random.random_bool(share));
        }
    }
    all
}
