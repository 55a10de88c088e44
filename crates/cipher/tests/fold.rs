//! The shrinker and its inverse.

use proptest::prelude::*;
use sealdisk_cipher::{FoldError, fold, unfold};
use sealdisk_units::SECTOR_SIZE;

/// The lengths of the seals there are.
const ROOMS: [usize; 3] = [16, 40, 48];

type Sector = [u8; SECTOR_SIZE];

/// Folds for every length of seal, checks that it unfolds, and says how often it folded.
fn folds(sector: &Sector) -> usize {
    ROOMS
        .into_iter()
        .filter(|room| {
            let mut text = vec![0xaa; SECTOR_SIZE - room];
            let folded = fold(sector, &mut text);
            if folded {
                let mut back = [0x55; SECTOR_SIZE];
                assert_eq!(unfold(&text, &mut back), Ok(()));
                assert_eq!(&back, sector);
                let mut again = vec![0xbb; SECTOR_SIZE - room];
                assert!(fold(sector, &mut again));
                assert_eq!(text, again, "the same sector gives the same text");
            } else {
                assert!(text.iter().all(|byte| *byte == 0xaa), "what does not fold is left alone");
            }
            folded
        })
        .count()
}

/// Noise that never repeats five bytes by chance, or hardly ever.
fn noise(seed: u64) -> Sector {
    let mut state = seed | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

#[test]
fn noise_does_not_fold_and_patterns_do() {
    assert_eq!(folds(&noise(1)), 0);
    assert_eq!(folds(&[0; SECTOR_SIZE]), 3);
    assert_eq!(folds(&[0xff; SECTOR_SIZE]), 3);
    for period in 2..200 {
        assert_eq!(folds(&std::array::from_fn(|i| noise(2)[i % period])), 3, "period {period}");
    }
}

#[test]
fn a_run_folds_wherever_it_is() {
    for start in (0..SECTOR_SIZE - 64).chain([SECTOR_SIZE - 64]) {
        let mut sector = noise(3);
        sector[start..start + 64].fill(0);
        assert_eq!(folds(&sector), 3, "zeros at {start}");
    }
}

#[test]
fn the_rows_of_an_index_fold() {
    // A B-tree's leaf: 16-byte tuples that differ in two or three bytes, no free space, and otherwise noise.
    let mut sector = noise(4);
    for (i, tuple) in sector[2048..].as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let [low, high] = (i as u16).to_le_bytes();
        *tuple = [0, 0, high, 7, low, 0, 16, 0, low, high, 3, 0, 0, 0, 0, 0];
    }
    assert_eq!(folds(&sector), 3);
}

/// The example of the format in the documentation, by hand.
#[test]
fn the_format_is_the_documented_one() {
    let mut sector = noise(5);
    let from = sector[7..7 + 21].to_vec();
    sector[100..121].copy_from_slice(&from);
    // A room of 16 takes 16 + 1 + 4 bytes of holes.
    let mut text = [0; SECTOR_SIZE - 16];
    assert!(fold(&sector, &mut text));
    let hole: u32 = 100 | 93 << 12 | 20 << 24;
    assert_eq!(text[0], 1);
    assert_eq!(text[1..5], hole.to_le_bytes());
    assert_eq!(text[5..105], sector[..100]);
    assert_eq!(text[105..], sector[121..]);
}

#[test]
fn impossible_texts_are_refused() {
    let mut sector = [0; SECTOR_SIZE];
    let text = |holes: &[u32], len: usize| {
        let mut text = vec![holes.len() as u8];
        holes.iter().for_each(|hole| text.extend(hole.to_le_bytes()));
        text.resize(len, 0xcc);
        text
    };
    let hole = |before: u32, distance: u32, len: u32| before | distance << 12 | (len - 1) << 24;
    assert_eq!(unfold(&text(&[hole(1, 1, 21)], 4080), &mut sector), Ok(()));
    for bad in [
        vec![],
        text(&[], 4080),                   // No hole and yet shorter.
        text(&[hole(0, 1, 21)], 4080),     // Repeats what is before the sector.
        text(&[hole(1, 0, 21)], 4080),     // Repeats itself.
        text(&[hole(5, 6, 21)], 4080),     // Reaches before the sector.
        text(&[hole(1, 1, 20)], 4080),     // Too little in holes.
        text(&[hole(1, 1, 22)], 4080),     // Too much.
        text(&[hole(4090, 1, 21)], 4080),  // Past the end of the text.
        text(&[hole(4000, 1, 200)], 4080), // Past the end of the sector.
        vec![255; 1000],                   // More holes than there is text for.
        vec![255; SECTOR_SIZE],
    ] {
        assert_eq!(unfold(&bad, &mut sector), Err(FoldError), "{:?}", &bad[..bad.len().min(8)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_folds_unfolds(
        seed: u64,
        copies in prop::collection::vec((0..SECTOR_SIZE, 1..SECTOR_SIZE, 1..300_usize), 0..40),
    ) {
        let mut sector = noise(seed);
        for (at, distance, len) in copies {
            for i in at.max(distance)..(at + len).min(SECTOR_SIZE) {
                sector[i] = sector[i - distance];
            }
        }
        folds(&sector);
    }

    #[test]
    fn few_kinds_of_bytes_unfold(sector in prop::collection::vec(0..3_u8, SECTOR_SIZE)) {
        folds(sector[..].try_into().unwrap());
    }

    #[test]
    fn any_text_may_be_unfolded(text in prop::collection::vec(any::<u8>(), 0..=SECTOR_SIZE)) {
        let mut sector = [0; SECTOR_SIZE];
        let _ = unfold(&text, &mut sector);
    }

    #[test]
    fn a_damaged_text_may_be_unfolded(seed: u64, at in 0..60_usize, byte: u8) {
        let mut sector = noise(seed);
        for i in 1000..1200 {
            sector[i] = sector[i - 40];
        }
        let mut text = [0; SECTOR_SIZE - 48];
        prop_assert!(fold(&sector, &mut text));
        text[at] = byte;
        let _ = unfold(&text, &mut sector);
    }
}
