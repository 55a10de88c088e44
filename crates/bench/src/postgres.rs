//! PostgreSQL under pgbench, on file systems on disks of every kind.

pub(crate) mod cluster;
mod stack;

use std::path::PathBuf;
use std::time::Duration;

use crate::machine::Machine;
use crate::places::{Places, drop_caches};
use crate::programs::{CP, GOCRYPTFS, POSTGRES, QEMU, run as run_program};
use crate::results::{LeftOut, Measure, Results, Sample, Subject};
use crate::targets::Target;
use crate::{BenchError, Interrupt, Progress};

use self::cluster::{Cluster, Setting};
use self::stack::{Kind, STACKS, Stack};

/// What is measured.
const MEASURE: &str = "tpcb-like";
/// Clients of pgbench.
const CLIENTS: &str = "20";
/// Bytes of a database of scale 1.
const BYTES_PER_SCALE: u64 = 16 << 20;
/// Bytes that a cluster may take beside its tables: log, history, indexes, dead rows.
const ROOM: u64 = 4 << 30;
/// Server settings; everything else is PostgreSQL's default.
const SETTINGS: [Setting; 6] = [
    Setting("shared_buffers=128MB"),
    Setting("max_connections=50"),
    Setting("max_wal_size=1GB"),
    Setting("checkpoint_timeout=5min"),
    Setting("synchronous_commit=on"),
    Setting("full_page_writes=on"),
];

/// How to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Sealdisk's own program.
    pub sealdisk: PathBuf,
    /// Where disks lie while they are measured.
    pub folder: PathBuf,
    /// pgbench's scale: 16 MB each; shared buffers are 128 MB.
    pub scale: u64,
    /// How often every stack is measured.
    pub rounds: u32,
    /// How long pgbench runs, in seconds.
    pub seconds: u64,
    /// Only these stacks; all if empty.
    pub only: Vec<String>,
    /// Whether this is only a look.
    pub quick: bool,
}

/// The names of all stacks.
pub fn names() -> impl Iterator<Item = &'static str> {
    STACKS.iter().map(|stack| stack.name)
}

/// What is to be reached.
pub fn targets() -> Vec<Target> {
    let beside = |peer: &str, least| Target::at_least(least, "sealed-fold", peer, MEASURE);
    vec![beside("pass-through", 0.95), beside("plain-loop", 0.90), beside("qemu-luks", 1.0), beside("gocryptfs", 1.0)]
}

/// Measures.
pub fn run(options: &Options, progress: &mut Progress, interrupt: &Interrupt) -> Result<Results, BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::Wrong("only root can mount the file systems that this benchmark needs".to_owned()));
    }
    if let Some(unknown) = options.only.iter().find(|name| !names().any(|known| known == name.as_str())) {
        let known = names().collect::<Vec<_>>().join(", ");
        return Err(BenchError::Wrong(format!("there is no stack '{unknown}'; there are {known}")));
    }
    let places = Places::new(&options.folder)?;
    let mut machine = Machine::of(&options.folder);
    machine.versions = versions();
    machine.note_load();
    let mut results = empty_results(options, machine);
    let chosen: Vec<Kind> = STACKS
        .into_iter()
        .filter(|stack| options.only.is_empty() || options.only.iter().any(|n| n == stack.name))
        .collect();
    progress.begin(1 + chosen.len() as u64 * u64::from(1 + options.rounds));

    progress.step("making the database");
    let template = make_template(options, &places, interrupt)?;
    let mut stacks = Vec::new();
    for kind in chosen {
        progress.step(&format!("{}: making the disk and copying the database to it", kind.name));
        match prepare(kind, options, &places, &template, interrupt) {
            Ok(stack) => stacks.push(stack),
            Err(error @ BenchError::Missing { .. }) => {
                progress.warn(&format!("{} is left out: {error}", kind.name));
                results.left_out.push(LeftOut { subject: kind.name.to_owned(), reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    template.remove()?;
    let mut peaks = vec![0; stacks.len()];
    for round in 1..=options.rounds {
        for (stack, peak) in stacks.iter_mut().zip(&mut peaks) {
            progress.step(&format!("round {round}: {}", stack.name()));
            let (sample, memory) = measure(stack, round, options, &places, interrupt)?;
            results.samples.push(sample);
            *peak = memory.max(*peak);
        }
        results.rounds = round;
        results.machine.note_load();
    }
    results.subjects = stacks.iter().zip(peaks).map(|(stack, peak_memory)| subject(stack, peak_memory)).collect();
    progress.finish();
    Ok(results)
}

fn versions() -> Vec<(String, String)> {
    let mut versions = vec![("sealdisk".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    let programs = [POSTGRES, QEMU, GOCRYPTFS];
    versions
        .extend(programs.into_iter().filter_map(|program| Some((program.name.to_owned(), program.version().ok()?))));
    versions
}

fn subject(stack: &Stack, peak_memory: u64) -> Subject {
    Subject {
        name: stack.name().to_owned(),
        what: stack.what().to_owned(),
        is_ours: stack.is_ours(),
        commands: stack.commands().to_vec(),
        peak_memory,
        remarks: Vec::new(),
    }
}

fn pgbench_arguments(seconds: &str) -> [&str; 6] {
    ["-c", CLIENTS, "-j", "2", "-T", seconds]
}

fn empty_results(options: &Options, machine: Machine) -> Results {
    let seconds = options.seconds.to_string();
    let settings = SETTINGS.map(|Setting(setting)| setting).join(", ");
    let settings = [
        (
            "database",
            format!("pgbench scale {} (about {} MiB), shared buffers 128 MiB", options.scale, options.scale * 15),
        ),
        ("server", settings),
        ("rounds", format!("{}, in turn", options.rounds)),
        (
            "before each run",
            "disk attached, file system mounted, server started, small tables vacuumed, history truncated, checkpoint, page cache dropped"
                .to_owned(),
        ),
        ("after each run", "checkpoint, server stopped, file system unmounted, disk detached".to_owned()),
        ("file system", "ext4 with default options on the disk; gocryptfs lies on the file system below".to_owned()),
    ];
    Results {
        title: "PostgreSQL".to_owned(),
        machine,
        settings: settings.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        notes: Vec::new(),
        rounds: 0,
        quick: options.quick,
        subjects: Vec::new(),
        measures: vec![Measure {
            name: MEASURE.to_owned(),
            title: format!("pgbench, TPC-B-like, {CLIENTS} clients"),
            unit: "transactions/s".to_owned(),
            command: format!("pgbench -n {}", pgbench_arguments(&seconds).join(" ")),
            point: None,
        }],
        samples: Vec::new(),
        left_out: Vec::new(),
    }
}

/// Makes the database once; every stack gets a copy.
fn make_template(options: &Options, places: &Places, interrupt: &Interrupt) -> Result<Cluster, BenchError> {
    let cluster = Cluster::create(&places.data("template"), places, interrupt)?;
    let server = cluster.start(&SETTINGS, interrupt)?;
    cluster.pgbench(&["-i", "-q", "-s", &options.scale.to_string()], interrupt)?;
    cluster.query("checkpoint", interrupt)?;
    cluster.stop(server)?;
    Ok(cluster)
}

fn prepare(
    kind: Kind,
    options: &Options,
    places: &Places,
    template: &Cluster,
    interrupt: &Interrupt,
) -> Result<Stack, BenchError> {
    let size = ROOM + options.scale * BYTES_PER_SCALE;
    let mut stack = Stack::make(kind, &options.sealdisk, size, places, interrupt)?;
    let up = stack.up(places, interrupt)?;
    run_program(CP.command()?.arg("-a").arg(template.folder()).arg(up.mount_point().join("data")), interrupt)?;
    up.down(interrupt)?;
    Ok(stack)
}

/// One run on one stack. Returns the peak memory of the process that serves the disk, too.
fn measure(
    stack: &mut Stack,
    round: u32,
    options: &Options,
    places: &Places,
    interrupt: &Interrupt,
) -> Result<(Sample, u64), BenchError> {
    let up = stack.up(places, interrupt)?;
    let cluster = Cluster::at(&up.mount_point().join("data"), places)?;
    let server = cluster.start(&SETTINGS, interrupt)?;
    cluster.query("vacuum pgbench_branches, pgbench_tellers", interrupt)?;
    cluster.query("truncate pgbench_history", interrupt)?;
    cluster.query("checkpoint", interrupt)?;
    drop_caches();
    let before = up.processor_time();
    let seconds = options.seconds.to_string();
    let mut arguments = vec!["-n"];
    arguments.extend(pgbench_arguments(&seconds));
    let report = cluster.pgbench(&arguments, interrupt)?;
    let used = up.processor_time().saturating_sub(before);
    cluster.query("checkpoint", interrupt)?;
    let memory = up.peak_memory();
    cluster.stop(server)?;
    up.down(interrupt)?;
    let report = Report::parse(&report)?;
    let sample = Sample {
        subject: stack.name().to_owned(),
        measure: MEASURE.to_owned(),
        round,
        value: report.per_second,
        p99_latency: 0.0,
        processor_time: per_transaction(used, report.transactions),
    };
    Ok((sample, memory))
}

/// Microseconds.
fn per_transaction(used: Duration, transactions: u64) -> f64 {
    used.as_secs_f64() * 1e6 / transactions.max(1) as f64
}

/// What pgbench found.
#[derive(Debug, PartialEq)]
struct Report {
    transactions: u64,
    per_second: f64,
}

impl Report {
    fn parse(text: &str) -> Result<Self, BenchError> {
        let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let transactions = after("number of transactions actually processed: ")
            .and_then(|rest| rest.split(['/', ' ']).next()?.parse().ok());
        let per_second = after("tps = ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        match (transactions, per_second) {
            (Some(transactions), Some(per_second)) if transactions > 0 => Ok(Self { transactions, per_second }),
            _ => Err(BenchError::Wrong(format!("pgbench did not say how fast it was:\n{text}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbench_is_understood() {
        let text = "transaction type: <builtin: TPC-B (sort of)>\n\
                    number of transactions actually processed: 36402\n\
                    number of failed transactions: 0 (0.000%)\n\
                    latency average = 10.9 ms\n\
                    tps = 1820.125 (without initial connection time)\n";
        assert_eq!(Report::parse(text).unwrap(), Report { transactions: 36402, per_second: 1820.125 });
        let limited = text.replace("36402", "36402/40000");
        assert_eq!(Report::parse(&limited).unwrap().transactions, 36402);
        assert!(Report::parse("pgbench: error: aborted").is_err());
    }

    #[test]
    fn targets_speak_of_what_is_measured() {
        for target in targets() {
            assert!(names().any(|name| name == target.subject) && names().any(|name| name == target.peer));
            assert_eq!(target.measure, MEASURE);
        }
    }
}
