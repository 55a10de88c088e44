//! How many sectors of some files fold, and how long folding takes: `fold_share FILE...`

use std::time::Instant;

use sealdisk_cipher::{fold, unfold};

const SECTOR: usize = 4096;
const SEAL: usize = 48;

fn main() -> std::io::Result<()> {
    let (mut zeros, mut folded, mut stubborn) = (0_u64, 0_u64, 0_u64);
    let mut spent = [std::time::Duration::ZERO; 2];
    for path in std::env::args_os().skip(1) {
        for sector in std::fs::read(path)?.as_chunks::<SECTOR>().0 {
            if sector.iter().all(|byte| *byte == 0) {
                zeros += 1;
                continue;
            }
            let mut text = [0; SECTOR - SEAL];
            let started = Instant::now();
            let folds = fold(sector, &mut text);
            spent[usize::from(folds)] += started.elapsed();
            if !folds {
                stubborn += 1;
                continue;
            }
            folded += 1;
            let mut back = [0xff; SECTOR];
            unfold(&text, &mut back).expect("what was folded unfolds");
            assert_eq!(&back, sector);
        }
    }
    let share = 100.0 * folded as f64 / (folded + stubborn).max(1) as f64;
    println!("{zeros} sectors of zeros; of the others {folded} fold and {stubborn} do not: {share:.2} %");
    let each = |total: std::time::Duration, count: u64| total.as_nanos() as u64 / count.max(1);
    println!("ns a sector: {} that folds, {} that does not", each(spent[1], folded), each(spent[0], stubborn));
    Ok(())
}
