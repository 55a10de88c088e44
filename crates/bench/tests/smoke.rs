//! The whole benchmark, as small as it gets: everything starts, is measured, is reported, and is gone afterwards.
//!
//! Needs root and what the benchmark compares with; a missing program fails the test and names its Debian package.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::programs::{find, sealdisk, succeed};
use tempfile::TempDir;

/// A folder to measure in, with a benchmark that leaves its report in `report`.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        // On the file system of the build: a temporary one in memory may have no direct I/O.
        let place = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        fs::create_dir(place.path("disks")).unwrap();
        place
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = sealdisk();
        command.arg("bench").args(arguments).arg("--quick");
        command.arg("--dir").arg(self.path("disks")).arg("--out").arg(self.path("report"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn report(&self) -> Value {
        for file in ["data.csv", "report.md", "report.html"] {
            assert!(fs::metadata(self.path("report").join(file)).unwrap().len() > 0);
        }
        serde_json::from_slice(&fs::read(self.path("report/data.json")).unwrap()).unwrap()
    }

    /// Nothing of the benchmark is left: no file, no process, no mount, no loop device.
    fn is_clean(&self) {
        assert_eq!(fs::read_dir(self.path("disks")).unwrap().count(), 0);
        let disks = self.path("disks").display().to_string();
        let mentions = |path: &Path| fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&disks));
        for process in fs::read_dir("/proc").unwrap() {
            let command = process.unwrap().path().join("cmdline");
            assert!(!mentions(&command), "{}", String::from_utf8_lossy(&fs::read(&command).unwrap_or_default()));
        }
        assert!(!mentions(Path::new("/proc/self/mounts")));
        for device in fs::read_dir("/sys/block").unwrap() {
            assert!(!mentions(&device.unwrap().path().join("loop/backing_file")));
        }
    }
}

/// Every subject has a sample of every measure, and nobody was left out.
fn check_samples(data: &Value, subjects: &[&str], measures: usize) {
    assert_eq!(data["left_out"], Value::Array(Vec::new()));
    let samples = data["samples"].as_array().unwrap();
    assert_eq!(samples.len(), subjects.len() * measures);
    for subject in subjects {
        let of_subject = samples.iter().filter(|sample| sample["subject"] == *subject);
        assert_eq!(of_subject.filter(|sample| sample["value"].as_f64().unwrap() > 0.0).count(), measures, "{subject}");
    }
    for subject in data["subjects"].as_array().unwrap().iter().filter(|subject| subject["is_ours"] == true) {
        let peak = subject["peak_memory"].as_u64().unwrap();
        assert!(peak > 0 && peak < 256 << 20, "{subject}");
    }
}

#[test]
fn disks_of_every_kind_are_measured() {
    let place = Place::new();
    let subjects = ["aegis-256-fold", "aes-256-xts", "pass-through", "qemu-luks", "nbdkit-luks"];
    let said = succeed(&mut place.bench(&["local", "--size", "32M", "--progress-json", "--only", &subjects.join(",")]));
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["steps_done"], &last["steps"]), (&"29".into(), &"30".into()));
    let data = place.report();
    check_samples(&data, &subjects, 5);
    // Real database pages were written, and they fold.
    let folding = data["subjects"].as_array().unwrap().iter().find(|subject| subject["name"] == "aegis-256-fold");
    let remark = folding.unwrap()["remarks"][0].as_str().unwrap();
    let share: f64 = remark.split(' ').next().unwrap().parse().unwrap();
    assert!(share > 90.0, "{remark}");
    let verdicts: Vec<_> = data["targets"].as_array().unwrap().iter().map(|target| &target["verdict"]).collect();
    assert_eq!(verdicts.len(), 9);
    // Without aegis-256 there is nothing to say of its four targets.
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == "not-measured").count(), 4);
    place.is_clean();
}

#[test]
fn databases_on_stacks_of_every_kind_are_measured() {
    let place = Place::new();
    let said = succeed(&mut place.bench(&["postgres", "--scale", "2", "--seconds", "5"]));
    assert!(said.contains("| sealed-fold |") && said.contains("| gocryptfs |"));
    check_samples(&place.report(), &["sealed-fold", "pass-through", "plain-loop", "qemu-luks", "gocryptfs"], 1);
    place.is_clean();
}

#[test]
fn a_peer_that_is_not_installed_is_left_out_loudly() {
    let place = Place::new();
    let programs = place.path("programs");
    fs::create_dir(&programs).unwrap();
    for (program, package) in [("fio", "fio"), ("sh", "dash"), ("dd", "coreutils")] {
        symlink(find(program, package), programs.join(program)).unwrap();
    }
    let only = ["--only", "pass-through,nbdkit-plain", "--size", "32M"];
    let output = place.bench(&["local"]).args(only).env("PATH", &programs).output().unwrap();
    assert!(output.status.success());
    let why = "nbdkit is missing: install the Debian package nbdkit";
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("warning: nbdkit-plain is left out: {why}")));
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("nbdkit-plain is LEFT OUT: {why}")));
    let data = place.report();
    assert_eq!(data["left_out"][0]["subject"], "nbdkit-plain");
    assert_eq!(data["samples"].as_array().unwrap().len(), 5);

    // Without fio nothing can be measured at all.
    fs::remove_file(programs.join("fio")).unwrap();
    let output = place.bench(&["local"]).env("PATH", &programs).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("install the Debian package fio"));
    place.is_clean();
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let place = Place::new();
    for (benchmark, in_progress) in [("local", "round 1: aegis-256,"), ("postgres", "round 1: sealed-fold")] {
        let log = place.path("log");
        let mut command = place.bench(&[benchmark, "--seconds", "100"]);
        if benchmark == "postgres" {
            command.args(["--scale", "1", "--only", "sealed-fold"]);
        } else {
            command.args(["--size", "32M", "--only", "aegis-256"]);
        }
        let mut child = command.stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null()).spawn().unwrap();
        while !fs::read_to_string(&log).unwrap().contains(in_progress) {
            assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(700));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        assert!(fs::read_to_string(&log).unwrap().contains("sealdisk: interrupted"));
        assert!(!place.path("report").exists());
        place.is_clean();
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    for (arguments, says) in [
        (vec!["local", "--only", "rot13"], "there is no scenario 'rot13'; there are aegis-256,"),
        (vec!["postgres", "--only", "rot13"], "there is no stack 'rot13'"),
        (vec!["local", "--rounds", "9"], "cannot be used with"),
        (vec!["local", "--size", "1M"], "--size is 32 MiB or more"),
    ] {
        let output = place.bench(&arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.contains(says), "{complaint}");
    }
    place.is_clean();
}
