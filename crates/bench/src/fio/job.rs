//! Kinds of load, their names, and what fio(1) is told of them.

use std::time::Duration;

use super::Measured;
use crate::results::{Measure, Operation, Point};

/// A kind of load. Its name and its title follow from what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    operation: Operation,
    random: bool,
    /// Bytes of a request.
    block_size: u64,
    /// Requests in flight, on all connections together.
    depth: u64,
    /// Connections to the disk, which share the requests evenly.
    connections: u64,
    /// A flush after every write.
    flushed: bool,
    unit: Unit,
}

/// What a job's figures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Operations in a second.
    Operations,
    /// MiB in a second.
    Mebibytes,
}

/// How long a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// So long, wherever that gets.
    Time(Duration),
    /// Once over the whole disk.
    Disk,
}

pub(crate) const RANDOM_READ: Job = Job {
    operation: Operation::Read,
    random: true,
    block_size: 4 << 10,
    depth: 32,
    connections: 1,
    flushed: false,
    unit: Unit::Operations,
};
pub(crate) const RANDOM_WRITE: Job = Job { operation: Operation::Write, ..RANDOM_READ };
pub(crate) const SEQUENTIAL_READ: Job =
    Job { random: false, block_size: 1 << 20, depth: 8, unit: Unit::Mebibytes, ..RANDOM_READ };
pub(crate) const SEQUENTIAL_WRITE: Job = Job { operation: Operation::Write, ..SEQUENTIAL_READ };
pub(crate) const FLUSHED_WRITE: Job = Job { depth: 1, flushed: true, ..RANDOM_WRITE };

/// The loads of `bench local`, in the order in which they are run.
pub(crate) const JOBS: [Job; 5] = [RANDOM_READ, SEQUENTIAL_READ, RANDOM_WRITE, SEQUENTIAL_WRITE, FLUSHED_WRITE];

impl Job {
    /// A job that writes a disk once, from its beginning to its end.
    pub(crate) const FILL: Self = SEQUENTIAL_WRITE;

    /// A job that reads it so.
    pub(crate) const READ_THROUGH: Self = SEQUENTIAL_READ;

    /// Random operations of `block_size` bytes, as one of a series over sizes, all of them in MiB/s. There are 32 in
    /// flight, 16 on each of two connections: QEMU's server takes no more than 16 from one.
    pub(crate) const fn of_series(operation: Operation, block_size: u64) -> Self {
        Self { operation, block_size, connections: 2, unit: Unit::Mebibytes, ..RANDOM_READ }
    }

    /// Short and unique, such as `random-read-4k`.
    pub(crate) fn name(self) -> String {
        let pattern = if self.flushed { "flushed" } else { self.pattern() };
        let size = match self.block_size {
            size if size >= 1 << 20 => format!("{}m", size >> 20),
            size => format!("{}k", size >> 10),
        };
        format!("{pattern}-{}-{size}", self.operation)
    }

    /// For people.
    fn title(self) -> String {
        let Self { operation, depth, .. } = self;
        let flushed = if self.flushed { ", flushed each time" } else { "" };
        format!("{} {} {operation}, queue depth {depth}{flushed}", size_for_people(self.block_size), self.pattern())
    }

    /// Its place among those that differ from it by size or operation only.
    pub(crate) fn point(self) -> Point {
        Point { operation: self.operation, block_size: self.block_size }
    }

    fn pattern(self) -> &'static str {
        if self.random { "random" } else { "sequential" }
    }

    pub(crate) fn is_write(self) -> bool {
        self.operation == Operation::Write
    }

    pub(crate) fn connections(self) -> u64 {
        self.connections
    }

    /// Bytes that the job may have in flight on one connection, with what fio adds to align its buffers.
    pub(crate) fn in_flight(self) -> u64 {
        self.block_size * (self.depth / self.connections) + (64 << 10)
    }

    /// What a report calls it.
    pub(crate) fn measure(self, seconds: u64) -> Measure {
        let shown = self.options("URI", Extent::Time(Duration::from_secs(seconds)), 1);
        let shown = shown.into_iter().chain((1..=self.connections).map(|number| self.job_option(number)));
        Measure {
            name: self.name(),
            title: self.title(),
            unit: match self.unit {
                Unit::Operations => "IOPS",
                Unit::Mebibytes => "MiB/s",
            }
            .to_owned(),
            command: format!("fio {}", shown.collect::<Vec<_>>().join(" ")),
            point: None,
        }
    }

    /// The value in the measure's unit.
    pub(crate) fn value(self, measured: &Measured) -> f64 {
        match self.unit {
            Unit::Operations => measured.operations_per_second,
            Unit::Mebibytes => measured.bytes_per_second / f64::from(1 << 20),
        }
    }

    /// What holds for all connections.
    pub(super) fn options(self, uri: &str, extent: Extent, seed: u32) -> Vec<String> {
        let mut options = vec![
            "--ioengine=nbd".to_owned(),
            format!("--uri={uri}"),
            format!("--rw={}{}", if self.random { "rand" } else { "" }, self.operation),
            format!("--bs={}", self.block_size),
            format!("--iodepth={}", self.depth / self.connections),
            format!("--randseed={seed}"),
        ];
        if self.random {
            options.push("--norandommap".to_owned());
        }
        if let Extent::Time(time) = extent {
            options.extend(["--time_based".to_owned(), format!("--runtime={}ms", time.as_millis())]);
        }
        if self.is_write() {
            // A disk with a write cache owes what it still holds: the last flush is part of the time.
            options.push("--end_fsync=1".to_owned());
        }
        if self.flushed {
            options.push("--fsync=1".to_owned());
        }
        if self.connections > 1 {
            options.push("--group_reporting".to_owned());
        }
        options
    }

    /// What begins a connection's own options. Numbers start at 1.
    pub(super) fn job_option(self, number: u64) -> String {
        match self.connections {
            1 => format!("--name={}", self.name()),
            _ => format!("--name={}-{number}", self.name()),
        }
    }
}

/// A power of two of bytes, as people say it.
pub(crate) fn size_for_people(size: u64) -> String {
    if size >= 1 << 20 { format!("{} MiB", size >> 20) } else { format!("{} KiB", size >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_titles_say_what_a_job_is() {
        let names: Vec<_> = JOBS.iter().map(|job| job.name()).collect();
        assert_eq!(
            names,
            ["random-read-4k", "sequential-read-1m", "random-write-4k", "sequential-write-1m", "flushed-write-4k"]
        );
        let title = FLUSHED_WRITE.measure(1).title;
        assert_eq!(title, "4 KiB random write, queue depth 1, flushed each time");
        assert_eq!(Job::of_series(Operation::Read, 4 << 20).measure(1).title, "4 MiB random read, queue depth 32");
    }

    #[test]
    fn only_writes_end_with_a_flush_and_only_random_ones_may_repeat() {
        let options = |job: Job| job.options("u", Extent::Disk, 1).join(" ");
        assert!(!options(RANDOM_READ).contains("fsync") && options(RANDOM_READ).contains("norandommap"));
        assert!(options(SEQUENTIAL_WRITE).contains("--end_fsync=1") && !options(SEQUENTIAL_WRITE).contains("norandom"));
        assert!(options(FLUSHED_WRITE).contains(" --fsync=1"));
        assert!(RANDOM_READ.measure(3).command.contains("--runtime=3000ms"));
    }

    #[test]
    fn connections_share_what_is_in_flight() {
        let command = Job::of_series(Operation::Write, 8 << 10).measure(1).command;
        for part in ["--rw=randwrite", "--bs=8192", "--iodepth=16", "--group_reporting", "-8k-1 ", "-8k-2"] {
            assert!(command.contains(part), "{part} is not in {command}");
        }
        assert!(!RANDOM_READ.measure(1).command.contains("group_reporting"));
    }
}
