//! Making room in a sector for its own seal.

use sealdisk_units::SECTOR_SIZE;

/// A text that no sector folds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a folded sector")]
pub struct FoldError;

/// Folds `sector` into `out`, which is shorter by what a seal needs. `false`: it does not give up that much, and what is
/// in `out` is not defined.
pub fn fold(_sector: &[u8; SECTOR_SIZE], _out: &mut [u8]) -> bool {
    false
}

/// The inverse of [`fold`].
pub fn unfold(_folded: &[u8], _sector: &mut [u8; SECTOR_SIZE]) -> Result<(), FoldError> {
    Err(FoldError)
}
