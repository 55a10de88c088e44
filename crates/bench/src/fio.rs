//! The load on disks: fio(1) with its NBD engine, the same jobs for everyone.

mod job;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::places::Places;
use crate::programs::{FIO, run};
use crate::{BenchError, Interrupt};

pub(crate) use self::job::{
    Extent, JOBS, Job, RANDOM_READ, RANDOM_WRITE, SEQUENTIAL_READ, SEQUENTIAL_WRITE, size_for_people,
};

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Random bytes.
    Random,
    /// This file's: at least [`Job::in_flight`] bytes.
    File(&'a Path),
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
        for number in 1..=self.connections() {
            fio.arg(self.job_option(number));
            if let (true, Content::File(content)) = (self.is_write(), content) {
                let buffers = places.make_in_memory(&format!("fio-buffers-{number}"), self.in_flight())?;
                borrow_content(&mut fio, &buffers, self.in_flight(), content);
            }
        }
        run(&mut fio, interrupt)?;
        let text = std::fs::read_to_string(&report).map_err(BenchError::path(&report))?;
        parse(&text, self.is_write())
    }
}

/// Makes fio write the content of a file. It has no option for that, since its patterns end at 512 bytes; but its buffers
/// can be a shared mapping of a file, and after it has filled them with its own content, and before it begins, it runs a
/// command, which replaces that content.
fn borrow_content(fio: &mut Command, buffers: &Path, len: u64, content: &Path) {
    fio.arg(format!("--mem=mmapshared:{}", buffers.display())).arg("--scramble_buffers=0");
    let (from, to) = (content.display(), buffers.display());
    let replace = format!("dd if={from} of={to} bs=1M iflag=count_bytes count={len} conv=notrunc status=none");
    fio.arg(format!("--exec_prerun={replace}"));
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
}
