//! What Sealdisk wants to reach beside whom, and whether it did.

use serde::Serialize;

use crate::{Ratio, Results};

/// The most memory that an attached volume may take, in bytes.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 20;

/// A ratio that is to be reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// Whose value is over the line.
    pub subject: String,
    /// Whose is under it.
    pub peer: String,
    /// Of what.
    pub measure: String,
    /// Of which of its figures, and where the ratio must be.
    #[serde(flatten)]
    pub goal: Goal,
}

/// Where a ratio must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The value is at least so many times the peer's.
    AtLeast(f64),
    /// Processor time for an operation is at most so many times the peer's.
    ProcessorTimeAtMost(f64),
}

impl Goal {
    fn is_reached_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::ProcessorTimeAtMost(most) => ratio <= most,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least:.2}"),
            Self::ProcessorTimeAtMost(most) => write!(f, "processor time at most {most:.2}"),
        }
    }
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The ratio of the medians reaches the target.
    Met,
    /// It does not.
    Missed,
    /// One of the two was left out.
    NotMeasured,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
        })
    }
}

/// A target and how it went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The target.
    #[serde(flatten)]
    pub target: Target,
    /// What was reached.
    pub ratio: Option<Ratio>,
    /// Whether that is enough.
    pub verdict: Verdict,
}

impl Target {
    /// A value that is to be at least so many times the peer's.
    pub(crate) fn at_least(
        least: f64,
        subject: impl Into<String>,
        peer: impl Into<String>,
        measure: impl Into<String>,
    ) -> Self {
        let (subject, peer, measure) = (subject.into(), peer.into(), measure.into());
        Self { subject, peer, measure, goal: Goal::AtLeast(least) }
    }

    /// How it went.
    pub fn judge(&self, results: &Results) -> Outcome {
        let Self { subject, peer, measure, goal } = self;
        let ratio = match goal {
            Goal::AtLeast(_) => results.ratio(subject, peer, measure),
            Goal::ProcessorTimeAtMost(_) => {
                Ratio::of(&results.processor_times(subject, measure), &results.processor_times(peer, measure))
            }
        };
        // Of a time that was too short to be seen there is no ratio.
        let ratio = ratio.filter(|ratio| ratio.of_medians.is_finite());
        let verdict = match ratio {
            None => Verdict::NotMeasured,
            Some(ratio) if goal.is_reached_by(ratio.of_medians) => Verdict::Met,
            Some(_) => Verdict::Missed,
        };
        Outcome { target: self.clone(), ratio, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_better_except_of_time() {
        assert!(Goal::AtLeast(1.0).is_reached_by(1.0) && !Goal::AtLeast(1.0).is_reached_by(0.99));
        assert!(
            Goal::ProcessorTimeAtMost(1.0).is_reached_by(1.0) && !Goal::ProcessorTimeAtMost(1.0).is_reached_by(1.01)
        );
    }

    #[test]
    fn a_goal_stands_in_the_data_by_its_name() {
        let mut target = Target::at_least(0.97, "a", "b", "m");
        assert_eq!(serde_json::to_value(&target).unwrap()["at_least"], 0.97);
        target.goal = Goal::ProcessorTimeAtMost(1.0);
        assert_eq!(serde_json::to_value(&target).unwrap()["processor_time_at_most"], 1.0);
    }
}
