//! Disks over NBD: Sealdisk's ciphers, the same path without encryption, and other programs' LUKS.

mod scenario;
pub(crate) mod setup;

use std::path::{Path, PathBuf};

use crate::disk::Turn;
use crate::fio::{Content, JOBS, Job};
use crate::machine::Machine;
use crate::places::{Places, drop_caches};
use crate::programs::{CRYPTSETUP, FIO, INITDB, NBDKIT, QEMU};
use crate::results::{LeftOut, Results, Subject};
use crate::{BenchError, Interrupt, Progress, pages};

use self::scenario::{SCENARIOS, Scenario};
use self::setup::Setup;

pub use self::scenario::{names, targets};

/// How to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Sealdisk's own program.
    pub sealdisk: PathBuf,
    /// Where volumes lie while they are measured.
    pub folder: PathBuf,
    /// Size of each disk in bytes.
    pub size: u64,
    /// How often everyone is measured.
    pub rounds: u32,
    /// How long a job runs, in seconds.
    pub seconds: u64,
    /// Only these scenarios; all if empty.
    pub only: Vec<String>,
    /// Whether this is only a look.
    pub quick: bool,
}

/// Measures.
pub fn run(options: &Options, progress: &mut Progress, interrupt: &Interrupt) -> Result<Results, BenchError> {
    FIO.find()?;
    check_only(&options.only)?;
    let places = Places::new(&options.folder)?;
    let mut machine = Machine::of(&options.folder);
    machine.versions = versions();
    machine.note_load();
    let mut run = Run { options, places, results: empty_results(options, machine), pages: None };

    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| scenario.is_chosen(&options.only)).collect();
    progress.begin((chosen.len() * (1 + options.rounds as usize * JOBS.len())) as u64);
    let mut contestants = Vec::new();
    for scenario in chosen {
        progress.step(&format!("{}: making and filling the disk", scenario.name));
        match run.prepare(scenario, interrupt) {
            Ok(contestant) => contestants.push(contestant),
            Err(error @ BenchError::Missing { .. }) => {
                progress.warn(&format!("{} is left out: {error}", scenario.name));
                run.results.left_out.push(LeftOut { subject: scenario.name.to_owned(), reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    for round in 1..=options.rounds {
        for contestant in &mut contestants {
            run.measure(contestant, round, progress, interrupt)?;
        }
        run.results.rounds = round;
        run.results.machine.note_load();
    }
    run.results.subjects = contestants.into_iter().map(|contestant| contestant.subject).collect();
    progress.finish();
    Ok(run.results)
}

/// Bytes of content that are enough for every job.
fn most_in_flight() -> u64 {
    JOBS.into_iter().chain([Job::FILL]).map(Job::in_flight).max().unwrap_or(0)
}

fn check_only(only: &[String]) -> Result<(), BenchError> {
    match only.iter().find(|name| !names().any(|known| known == name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known = names().collect::<Vec<_>>().join(", ");
            Err(BenchError::Wrong(format!("there is no scenario '{unknown}'; there are {known}")))
        }
    }
}

fn versions() -> Vec<(String, String)> {
    let mut versions = vec![("sealdisk".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    let programs = [FIO, QEMU, NBDKIT, CRYPTSETUP, INITDB];
    let others = programs.into_iter().filter_map(|program| Some((program.name.to_owned(), program.version().ok()?)));
    versions.extend(others);
    versions
}

fn empty_results(options: &Options, machine: Machine) -> Results {
    let settings = [
        ("disk size", format!("{} MiB, written once before", options.size >> 20)),
        ("rounds", format!("{}, in turn", options.rounds)),
        ("a job", format!("{} s, its last flush included", options.seconds)),
        ("transport", "NBD on a unix socket, one connection".to_owned()),
        ("below", "direct I/O, except nbdkit, whose file plugin has none: cache=none".to_owned()),
    ];
    Results {
        title: "Disks over NBD".to_owned(),
        machine,
        settings: settings.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        notes: Vec::new(),
        rounds: 0,
        quick: options.quick,
        subjects: Vec::new(),
        measures: JOBS.iter().map(|job| job.measure(options.seconds)).collect(),
        samples: Vec::new(),
        left_out: Vec::new(),
    }
}

struct Run<'a> {
    options: &'a Options,
    places: Places,
    results: Results,
    /// A file of database pages, once somebody wants it.
    pages: Option<PathBuf>,
}

/// A scenario that takes part.
struct Contestant {
    setup: Setup,
    subject: Subject,
    pages: Option<PathBuf>,
}

impl Contestant {
    fn content(&self) -> Content<'_> {
        self.pages.as_deref().map_or(Content::Random, Content::File)
    }
}

impl Run<'_> {
    /// Makes a scenario's disk and writes all of it once.
    fn prepare(&mut self, scenario: &Scenario, interrupt: &Interrupt) -> Result<Contestant, BenchError> {
        let pages = if scenario.writes_pages { Some(self.pages(interrupt)?.to_owned()) } else { None };
        let setup = Setup::make(scenario, &self.options.sealdisk, self.options.size, &self.places, interrupt)?;
        let subject = Subject {
            name: scenario.name.to_owned(),
            what: scenario.what.to_owned(),
            is_ours: scenario.is_ours(),
            commands: setup.commands().to_vec(),
            peak_memory: 0,
            remarks: Vec::new(),
        };
        let mut contestant = Contestant { setup, subject, pages };
        let server = contestant.setup.serve(&self.places, interrupt)?;
        server.fill(contestant.content(), &self.places, interrupt)?;
        server.stop()?;
        contestant.subject.remarks.extend(contestant.setup.remarks(interrupt)?);
        Ok(contestant)
    }

    fn pages(&mut self, interrupt: &Interrupt) -> Result<&Path, BenchError> {
        if self.pages.is_none() {
            self.pages = Some(pages::make(most_in_flight(), &self.places, interrupt)?);
        }
        Ok(self.pages.as_deref().expect("made just above"))
    }

    /// One round of one contestant: every job, on a server of its own.
    fn measure(
        &mut self,
        contestant: &mut Contestant,
        round: u32,
        progress: &mut Progress,
        interrupt: &Interrupt,
    ) -> Result<(), BenchError> {
        drop_caches();
        let name = contestant.subject.name.clone();
        let server = contestant.setup.serve(&self.places, interrupt)?;
        for job in JOBS {
            progress.step(&format!("round {round}: {name}, {}", job.name()));
            let turn = Turn { job, content: contestant.content(), seconds: self.options.seconds, round };
            self.results.samples.push(server.measure(&name, turn, &self.places, interrupt)?);
        }
        contestant.subject.peak_memory = contestant.subject.peak_memory.max(server.peak_memory());
        server.stop()
    }
}
