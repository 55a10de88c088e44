//! `bench rbd` on a real cluster, as small as it gets: everyone is measured, everything is reported, nothing is left.
//!
//! Needs what the benchmark compares with; a missing program fails the test and names its Debian package.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::ceph::{Cluster, Pool};
use support::programs::{sealdisk, succeed};
use tempfile::TempDir;

/// A pool of its own in the shared cluster, and a folder in which the benchmark keeps its files.
struct Place {
    cluster: &'static Cluster,
    pool: &'static str,
    folder: TempDir,
}

impl Place {
    fn new(pool: &'static str) -> Self {
        let cluster = Cluster::shared();
        cluster.create_pool(pool, Pool::Replicated(2));
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("temporary")).unwrap();
        Self { cluster, pool, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = sealdisk();
        command.args(["bench", "rbd", "--quick", "--size", "32M", "--pool", self.pool, "--conf"]);
        command.arg(self.cluster.conf()).args(arguments).env("TMPDIR", self.path("temporary"));
        command
    }

    /// Nothing of the benchmark is left: no image, no file, no process.
    fn is_clean(&self) {
        assert_eq!(self.cluster.run(&format!("rbd ls {}", self.pool)), "");
        assert_eq!(fs::read_dir(self.path("temporary")).unwrap().count(), 0);
        let conf = self.cluster.conf().display().to_string();
        for process in fs::read_dir("/proc").unwrap() {
            let command = fs::read(process.unwrap().path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            // Of other tests of this cluster there may be some.
            assert!(!(command.contains(&conf) && command.contains(self.pool)), "{command}");
        }
    }

    /// Starts a benchmark and waits until it says that it does this.
    fn start(&self, arguments: &[&str], in_progress: &str) -> Child {
        let log = self.path("log");
        let mut command = self.bench(arguments);
        let mut child = command.stderr(File::create(&log).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        while !fs::read_to_string(&log).unwrap().contains(in_progress) {
            assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(50));
        }
        child
    }
}

fn names(values: &Value) -> BTreeSet<&str> {
    values.as_array().unwrap().iter().map(|value| value["name"].as_str().unwrap()).collect()
}

/// The shares of folded sectors, in percent, that the report remarks on: once the disk is full, and after the last round.
fn folded(data: &Value, subject: &str) -> [f64; 2] {
    let subjects = data["subjects"].as_array().unwrap();
    let found = subjects.iter().find(|found| found["name"] == subject).unwrap();
    [0, 1].map(|i| found["remarks"][i].as_str().unwrap().split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn everyone_is_measured_and_reported() {
    let place = Place::new("measured");
    // Not where clients look by themselves, for a user who may do what images need and nothing else.
    let all = format!("profile rbd pool={}", place.pool);
    let keyring = place.cluster.create_user("measurer", &[("mon", "profile rbd"), ("osd", &all)]);
    let moved = place.path("keyring");
    fs::rename(keyring, &moved).unwrap();
    let (report, keyring) = (place.path("report"), moved.display().to_string());
    let arguments = ["--block-sizes", "64K,4K", "--progress-json", "--id", "measurer", "--keyring", &keyring, "--out"];
    let said = succeed(place.bench(&arguments).arg(&report));
    place.is_clean();

    let data: Value = serde_json::from_slice(&fs::read(report.join("data.json")).unwrap()).unwrap();
    assert_eq!(data["left_out"], Value::Array(Vec::new()));
    let (subjects, measures) = (names(&data["subjects"]), names(&data["measures"]));
    for subject in ["length-preserving", "packed", "packed-fold", "packed-fold-random", "librbd", "librbd-luks2"] {
        assert!(subjects.contains(subject), "{subject} is missing");
    }
    assert_eq!(measures, BTreeSet::from(["random-read-4k", "random-read-64k", "random-write-4k", "random-write-64k"]));
    let samples = data["samples"].as_array().unwrap();
    assert_eq!(samples.len(), subjects.len() * measures.len());
    for subject in &subjects {
        let of_subject = samples.iter().filter(|sample| sample["subject"] == *subject);
        let known = of_subject.filter(|sample| {
            ["value", "processor_time", "p99_latency"].iter().all(|field| sample[field].as_f64().unwrap() > 0.0)
        });
        assert_eq!(known.count(), measures.len(), "{subject}");
    }
    for subject in data["subjects"].as_array().unwrap() {
        let peak = subject["peak_memory"].as_u64().unwrap();
        assert!(peak > 0 && (subject["is_ours"] == false || peak < 256 << 20), "{subject}");
    }
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let steps: usize = last["steps"].as_str().unwrap().parse().unwrap();
    assert_eq!(steps, subjects.len() * (1 + measures.len()));
    assert_eq!(last["steps_done"], Value::String((steps - 1).to_string()));

    // Database pages fold, and random bytes do not.
    assert!(folded(&data, "packed-fold").iter().all(|share| *share > 90.0));
    assert!(folded(&data, "packed-fold-random").iter().all(|share| *share < 1.0));
    let verdicts = data["targets"].as_array().unwrap().iter().map(|target| target["verdict"].as_str().unwrap());
    assert!(verdicts.clone().count() > 0 && verdicts.into_iter().all(|verdict| ["met", "missed"].contains(&verdict)));
    check_files(&report, samples.len());
}

fn check_files(report: &Path, samples: usize) {
    let read = |name: &str| fs::read_to_string(report.join(name)).unwrap();
    assert_eq!(read("data.csv").lines().count(), 1 + samples);
    let plots = ["throughput-read", "throughput-write", "overhead-read", "overhead-write"];
    let html = read("report.html");
    assert_eq!(html.matches("<svg").count(), plots.len());
    assert!(!html.contains("src="), "the page needs other files");
    let text = read("report.md");
    for plot in plots {
        assert!(read(&format!("plots/{plot}.svg")).contains("<circle"));
        assert!(text.contains(&format!("(plots/{plot}.svg)")));
    }
    // Settings are for administrators.
    for fact in ["ceph version ", "measured: replicated, 2 copies", "unknown: this user may not ask"] {
        assert!(text.contains(fact), "{fact} is not in the report");
    }
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let place = Place::new("interrupted");
    let only = ["--only", "packed,librbd-luks2", "--block-sizes", "4K", "--seconds", "100"];
    for in_progress in ["packed: making and filling", "round 1: librbd-luks2"] {
        let mut bench = place.start(&only, in_progress);
        // In the middle of it.
        std::thread::sleep(Duration::from_millis(700));
        kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
        assert_eq!(bench.wait().unwrap().code(), Some(1));
        assert!(fs::read_to_string(place.path("log")).unwrap().contains("sealdisk: interrupted"));
        place.is_clean();
    }
}

fn check_refusal(bench: &mut Command, says: &str) {
    let output = bench.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(0), "{complaint}");
    assert!(complaint.contains(says), "{complaint}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new("refused");
    for (arguments, says) in [
        (vec!["--only", "rot13"], "there is no subject 'rot13'; there are length-preserving, librbd-luks2, packed,"),
        (vec!["--block-sizes", "5K"], "--block-sizes 5 KiB: powers of two from 4K to 4M are measured"),
        (vec!["--cipher", "aes-256-xts"], "cipher aes-256-xts seals nothing"),
        (vec!["--rounds", "10"], "cannot be used with"),
        (vec!["--memory", "1M"], "--memory 1 MiB is too little"),
        (vec!["--id", "nobody"], "connecting to Ceph as client.nobody"),
    ] {
        check_refusal(&mut place.bench(&arguments), says);
    }
    let mut elsewhere = sealdisk();
    elsewhere.args(["bench", "rbd", "--pool", "absent"]).env("TMPDIR", place.path("temporary"));
    check_refusal(elsewhere.env("CEPH_CONF", place.cluster.conf()), "opening pool absent: No such file");
    check_refusal(elsewhere.args(["--conf", "/no/such/file"]), "/no/such/file: No such file");
    place.is_clean();
}
