//! Medians, spreads and ratios of a few samples.

use serde::Serialize;

/// What some samples amount to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Summary {
    /// Of some samples; `None` of none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self { median, min, max, count: sorted.len() })
    }
}

/// One subject over another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median over median.
    pub of_medians: f64,
    /// The least and the most of the ratios round by round, which shows how much chance there is in it.
    pub min: f64,
    /// See `min`.
    pub max: f64,
}

impl Ratio {
    /// `ours` over `theirs`, each as (round, value). Rounds that only one of them has count for its median only.
    pub fn of(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<Self> {
        let median = |samples: &[(u32, f64)]| Summary::of(samples.iter().map(|(_, value)| *value)).map(|s| s.median);
        let of_medians = median(ours)? / median(theirs)?;
        let by_round = ours.iter().filter_map(|(round, value)| {
            let (_, other) = theirs.iter().find(|(other, _)| other == round)?;
            Some(value / other)
        });
        let spread = Summary::of(by_round);
        let (min, max) = spread.map_or((of_medians, of_medians), |spread| (spread.min, spread.max));
        Some(Self { of_medians, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_in_any_order() {
        let odd = Summary::of([9.0, 1.0, 5.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.count), (5.0, 1.0, 9.0, 3));
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Summary::of([7.0]).unwrap().median, 7.0);
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn a_ratio_compares_medians_and_shows_the_rounds() {
        let ours = [(1, 10.0), (2, 30.0), (3, 20.0)];
        let theirs = [(1, 10.0), (2, 10.0), (3, 5.0)];
        let ratio = Ratio::of(&ours, &theirs).unwrap();
        assert_eq!((ratio.of_medians, ratio.min, ratio.max), (2.0, 1.0, 4.0));
        let apart = Ratio::of(&[(1, 6.0)], &[(2, 3.0)]).unwrap();
        assert_eq!((apart.of_medians, apart.min, apart.max), (2.0, 2.0, 2.0));
        assert_eq!(Ratio::of(&ours, &[]), None);
    }
}
