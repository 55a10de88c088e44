//! The shrinker against its inverse, and the inverse against anything.
//!
//! The input is used twice: as a folded text, which must be refused or unfolded without a fault; and as a sector (padded
//! with noise, so that short inputs do not all fold for their zeros), which must come back if it folds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealdisk_cipher::{MAX_SEAL_LEN, fold, unfold};
use sealdisk_units::SECTOR_SIZE;

fuzz_target!(|input: &[u8]| {
    let mut sector = [0; SECTOR_SIZE];
    let _ = unfold(input, &mut sector);
    if let Some(text) = input.get(..SECTOR_SIZE - MAX_SEAL_LEN) {
        let _ = unfold(text, &mut sector);
    }

    let mut state = 1_u64;
    for (i, byte) in sector.iter_mut().enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = input.get(i).copied().unwrap_or((state >> 32) as u8);
    }
    for room in [16, 40, MAX_SEAL_LEN] {
        let mut text = vec![0; SECTOR_SIZE - room];
        if fold(&sector, &mut text) {
            let mut back = [0; SECTOR_SIZE];
            unfold(&text, &mut back).expect("what was folded unfolds");
            assert!(back == sector, "a folded sector comes back");
        }
    }
});
