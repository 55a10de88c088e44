//! Repeatable random numbers: a failure is run again with the seed that it printed.

use sealdisk_store::Choices;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose test cases.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers that depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the environment variable `SEALDISK_SEED`, or a new one; printed either way.
    pub fn seed_from_environment(test: &str) -> u64 {
        let seed = match std::env::var("SEALDISK_SEED") {
            Ok(text) => text.parse().expect("SEALDISK_SEED is a number"),
            Err(_) => {
                let mut bytes = [0; 8];
                getrandom::fill(&mut bytes).unwrap();
                u64::from_le_bytes(bytes)
            }
        };
        println!("{test}: run again with SEALDISK_SEED={seed}");
        seed
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether an event of this chance happens.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Random bytes.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

impl Choices for Random {
    fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}
