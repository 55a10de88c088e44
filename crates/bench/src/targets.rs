//! What Sealdisk wants to reach beside whom, and whether it did.

use serde::Serialize;

use crate::{Ratio, Results};

/// The most memory that an attached volume may take, in bytes.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 20;

/// A ratio that is to be reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    /// Whose value is over the line.
    pub subject: &'static str,
    /// Whose is under it.
    pub peer: &'static str,
    /// Of what.
    pub measure: &'static str,
    /// The least ratio.
    pub at_least: f64,
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
    /// How it went.
    pub fn judge(&self, results: &Results) -> Outcome {
        let ratio = results.ratio(self.subject, self.peer, self.measure);
        let verdict = match ratio {
            None => Verdict::NotMeasured,
            Some(ratio) if ratio.of_medians >= self.at_least => Verdict::Met,
            Some(_) => Verdict::Missed,
        };
        Outcome { target: self.clone(), ratio, verdict }
    }
}
