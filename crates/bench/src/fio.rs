//! The load on disks: fio(1) with its NBD engine, the same jobs for everyone.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::places::Places;
use crate::programs::{FIO, run};
use crate::{BenchError, Interrupt, Measure};

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// Short and unique.
    pub(crate) name: &'static str,
    title: &'static str,
    /// fio's name for it.
    pattern: &'static str,
    block_size: u64,
    depth: u64,
    /// A flush after every write.
    flushed: bool,
}

pub(crate) const RANDOM_READ: Job = Job {
    name: "random-read-4k",
    title: "4 KiB random read, queue depth 32",
    pattern: "randread",
    block_size: 4 << 10,
    depth: 32,
    flushed: false,
};
pub(crate) const RANDOM_WRITE: Job =
    Job { name: "random-write-4k", title: "4 KiB random write, queue depth 32", pattern: "randwrite", ..RANDOM_READ };
pub(crate) const SEQUENTIAL_READ: Job = Job {
    name: "sequential-read-1m",
    title: "1 MiB sequential read, queue depth 8",
    pattern: "read",
    block_size: 1 << 20,
    depth: 8,
    flushed: false,
};
pub(crate) const SEQUENTIAL_WRITE: Job = Job {
    name: "sequential-write-1m",
    title: "1 MiB sequential write, queue depth 8",
    pattern: "write",
    ..SEQUENTIAL_READ
};
pub(crate) const FLUSHED_WRITE: Job = Job {
    name: "flushed-write-4k",
    title: "4 KiB random write, queue depth 1, flushed each time",
    pattern: "randwrite",
    depth: 1,
    flushed: true,
    ..RANDOM_READ
};

/// All loads, in the order in which they are run.
pub(crate) const JOBS: [Job; 5] = [RANDOM_READ, SEQUENTIAL_READ, RANDOM_WRITE, SEQUENTIAL_WRITE, FLUSHED_WRITE];

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Random bytes.
    Random,
    /// This file's: at least [`MOST_IN_FLIGHT`] bytes.
    File(&'a Path),
}

/// Bytes that a job may have in flight, with what fio adds to align its buffers.
pub(crate) const MOST_IN_FLIGHT: u64 = 8 * (1 << 20) + (64 << 10);

/// How long a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// So long, wherever that gets.
    Time(Duration),
    /// Once over the whole disk.
    Disk,
}

/// What fio measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// Operations that were completed.
    pub(crate) operations: u64,
    /// Bytes in a second.
    pub(crate) bytes_per_second: f64,
    /// Operations in a second.
    pub(crate) operations_per_second: f64,
    /// Microseconds that 99 of 100 operations took at most.
    pub(crate) p99_latency: f64,
}

impl Job {
    /// A job that writes a disk once, from its beginning to its end.
    pub(crate) const FILL: Self = Self { name: "fill", ..SEQUENTIAL_WRITE };

    pub(crate) fn is_write(self) -> bool {
        self.pattern.ends_with("write")
    }

    fn is_small(self) -> bool {
        self.block_size < 1 << 20
    }

    /// What a report calls it.
    pub(crate) fn measure(self, seconds: u64) -> Measure {
        let shown = self.options("URI", Extent::Time(Duration::from_secs(seconds)), 1);
        Measure {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            unit: if self.is_small() { "IOPS" } else { "MiB/s" }.to_owned(),
            command: format!("fio {}", shown.join(" ")),
        }
    }

    /// The value in the measure's unit.
    pub(crate) fn value(self, measured: &Measured) -> f64 {
        if self.is_small() { measured.operations_per_second } else { measured.bytes_per_second / f64::from(1 << 20) }
    }

    fn options(self, uri: &str, extent: Extent, seed: u32) -> Vec<String> {
        let mut options = vec![
            format!("--name={}", self.name),
            "--ioengine=nbd".to_owned(),
            format!("--uri={uri}"),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block_size),
            format!("--iodepth={}", self.depth),
            format!("--randseed={seed}"),
        ];
        if self.pattern.starts_with("rand") {
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
        options
    }

    /// Runs it against the disk at `uri`.
    pub(crate) fn run(
        self,
        places: &Places,
        uri: &str,
        content: Content<'_>,
        extent: Extent,
        seed: u32,
        interrupt: &Interrupt,
    ) -> Result<Measured, BenchError> {
        let report = places.run("fio.json");
        let mut fio = FIO.command()?;
        // It notes in its working folder what it ran before a job.
        fio.args(self.options(uri, extent, seed)).current_dir(places.run_folder());
        fio.args(["--output-format=json", "--output"]).arg(&report);
        if let (true, Content::File(content)) = (self.is_write(), content) {
            borrow_content(&mut fio, places, content)?;
        }
        run(&mut fio, interrupt)?;
        let text = std::fs::read_to_string(&report).map_err(BenchError::path(&report))?;
        parse(&text, self.is_write())
    }
}

/// Makes fio write the content of a file. It has no option for that, since its patterns end at 512 bytes; but its buffers
/// can be a shared mapping of a file, and after it has filled them with its own content, and before it begins, it runs a
/// command, which replaces that content.
fn borrow_content(fio: &mut Command, places: &Places, content: &Path) -> Result<(), BenchError> {
    let buffers = places.run("fio-buffers");
    File::create(&buffers).and_then(|file| file.set_len(MOST_IN_FLIGHT)).map_err(BenchError::path(&buffers))?;
    fio.arg(format!("--mem=mmapshared:{}", buffers.display())).arg("--scramble_buffers=0");
    let replace = format!("dd if={} of={} bs=1M conv=notrunc status=none", content.display(), buffers.display());
    fio.arg(format!("--exec_prerun={replace}"));
    Ok(())
}

/// Understands fio's JSON. The NBD engine may say something before it.
fn parse(text: &str, is_write: bool) -> Result<Measured, BenchError> {
    let unclear = |what: &str| BenchError::Wrong(format!("fio's report has no {what}"));
    let json = text.find('{').ok_or_else(|| unclear("JSON"))?;
    let json: Value = serde_json::from_str(&text[json..]).map_err(|error| unclear(&format!("valid JSON: {error}")))?;
    let job = &json["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(BenchError::Wrong(format!("fio reports error {}", job["error"])));
    }
    let side = &job[if is_write { "write" } else { "read" }];
    let number = |name: &str| side[name].as_f64().ok_or_else(|| unclear(name));
    // The runtime includes the last flush; fio's own rates may not.
    let seconds = number("runtime")? / 1000.0;
    let operations = side["total_ios"].as_u64().ok_or_else(|| unclear("total_ios"))?;
    if seconds <= 0.0 || operations == 0 {
        return Err(BenchError::Wrong("fio did nothing".to_owned()));
    }
    Ok(Measured {
        operations,
        bytes_per_second: number("io_bytes")? / seconds,
        operations_per_second: operations as f64 / seconds,
        p99_latency: side["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap_or(0.0) / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"fio: connected
{ "fio version": "fio-3.33", "jobs": [ { "jobname": "x", "error": 0,
  "read": { "io_bytes": 0, "runtime": 0, "total_ios": 0 },
  "write": { "io_bytes": 8388608, "runtime": 2000, "total_ios": 2048, "bw_bytes": 1,
             "clat_ns": { "percentile": { "50.000000": 1000, "99.000000": 25000 } } } } ] }"#;

    #[test]
    fn rates_come_from_totals_and_time() {
        let measured = parse(REPORT, true).unwrap();
        assert_eq!(measured.operations, 2048);
        assert_eq!(measured.operations_per_second, 1024.0);
        assert_eq!(measured.bytes_per_second, 4_194_304.0);
        assert_eq!(measured.p99_latency, 25.0);
        assert_eq!(RANDOM_WRITE.value(&measured), 1024.0);
        assert_eq!(SEQUENTIAL_WRITE.value(&measured), 4.0);
    }

    #[test]
    fn reports_of_nothing_and_of_failure_are_no_measurements() {
        for (text, is_write, says) in [
            (REPORT, false, "did nothing"),
            ("", true, "no JSON"),
            ("{", true, "no valid JSON"),
            (r#"{"jobs":[{"error":5}]}"#, true, "error 5"),
            (r#"{"jobs":[{"error":0,"read":{}}]}"#, false, "no runtime"),
            (r#"{"jobs":[]}"#, true, "error null"),
        ] {
            let error = parse(text, is_write).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn only_writes_end_with_a_flush_and_only_random_ones_may_repeat() {
        let options = |job: Job| job.options("u", Extent::Disk, 1).join(" ");
        assert!(!options(RANDOM_READ).contains("fsync") && options(RANDOM_READ).contains("norandommap"));
        assert!(options(SEQUENTIAL_WRITE).contains("--end_fsync=1") && !options(SEQUENTIAL_WRITE).contains("norandom"));
        assert!(options(FLUSHED_WRITE).contains(" --fsync=1"));
        assert!(RANDOM_READ.measure(3).command.contains("--runtime=3000ms"));
        // What a job has in flight fits into what its content is copied to.
        assert!(JOBS.iter().all(|job| job.block_size * job.depth + 8192 <= MOST_IN_FLIGHT));
    }
}
