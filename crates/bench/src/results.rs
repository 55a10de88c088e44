//! What was measured: subjects, measures, samples.

use serde::Serialize;

use crate::{Machine, Ratio, Summary};

/// Everything that a benchmark found out.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// What was compared, as a heading.
    pub title: String,
    /// Where.
    pub machine: Machine,
    /// How: names and values, for people.
    pub settings: Vec<(String, String)>,
    /// What must be known to read the figures.
    pub notes: Vec<String>,
    /// How many rounds were complete.
    pub rounds: u32,
    /// Whether this was only a look: too short to conclude anything from.
    pub quick: bool,
    /// What was compared.
    pub subjects: Vec<Subject>,
    /// What was measured of each.
    pub measures: Vec<Measure>,
    /// The measurements.
    pub samples: Vec<Sample>,
    /// What should have been compared, and why it was not.
    pub left_out: Vec<LeftOut>,
}

/// One of those that are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// Short and unique.
    pub name: String,
    /// What it is.
    pub what: String,
    /// Whether it is Sealdisk, which is bound to a limit of memory.
    pub is_ours: bool,
    /// The commands that set it up and served it.
    pub commands: Vec<String>,
    /// The most memory that its process had resident in any round, in bytes; 0 where there is no process.
    pub peak_memory: u64,
    /// What else was seen.
    pub remarks: Vec<String>,
}

/// Something that is measured; more is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Measure {
    /// Short and unique.
    pub name: String,
    /// For people.
    pub title: String,
    /// Of the values.
    pub unit: String,
    /// What was run.
    pub command: String,
    /// Its place in a series, if it belongs to one.
    #[serde(flatten)]
    pub point: Option<Point>,
}

/// A place in a series of measures that differ by size only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Point {
    /// What is done.
    pub operation: Operation,
    /// Bytes of one operation.
    pub block_size: u64,
}

/// What is done to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Of which subject.
    pub subject: String,
    /// Of what.
    pub measure: String,
    /// In which round, from 1 on.
    pub round: u32,
    /// In the measure's unit.
    pub value: f64,
    /// Latency that 99 of 100 operations kept, in microseconds; 0 where it is not known.
    pub p99_latency: f64,
    /// Processor time of the subject's process for one operation, in microseconds.
    pub processor_time: f64,
}

/// What should have been compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Which subject.
    pub subject: String,
    /// Why, and what to do about it.
    pub reason: String,
}

impl Results {
    /// A subject's values of a measure, by round.
    pub fn values(&self, subject: &str, measure: &str) -> Vec<(u32, f64)> {
        self.samples_of(subject, measure).map(|sample| (sample.round, sample.value)).collect()
    }

    fn samples_of<'a>(&'a self, subject: &'a str, measure: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.subject == subject && sample.measure == measure)
    }

    /// What a subject's values of a measure amount to.
    pub fn summary(&self, subject: &str, measure: &str) -> Option<Summary> {
        Summary::of(self.samples_of(subject, measure).map(|sample| sample.value))
    }

    /// The median of a subject's processor time for an operation.
    pub fn processor_time(&self, subject: &str, measure: &str) -> Option<f64> {
        Summary::of(self.samples_of(subject, measure).map(|sample| sample.processor_time)).map(|s| s.median)
    }

    /// The median of a subject's latency at the 99th percentile.
    pub fn p99_latency(&self, subject: &str, measure: &str) -> Option<f64> {
        Summary::of(self.samples_of(subject, measure).map(|sample| sample.p99_latency)).map(|s| s.median)
    }

    /// A subject's processor time for an operation, by round.
    pub fn processor_times(&self, subject: &str, measure: &str) -> Vec<(u32, f64)> {
        self.samples_of(subject, measure).map(|sample| (sample.round, sample.processor_time)).collect()
    }

    /// One subject over another.
    pub fn ratio(&self, ours: &str, theirs: &str, measure: &str) -> Option<Ratio> {
        Ratio::of(&self.values(ours, measure), &self.values(theirs, measure))
    }
}
