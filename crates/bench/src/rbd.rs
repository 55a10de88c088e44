//! Disks on images of a Ceph cluster, over NBD: Sealdisk's layouts, and librbd with and without its own encryption.
//!
//! Everyone's disk is served at once, and each load goes through all of them before the next one comes. So what is compared
//! was measured within seconds of each other.

mod ceph;
mod contestant;
mod image;
mod subject;
mod targets;
mod volume;

use std::path::{Path, PathBuf};

use sealdisk_cipher::CipherName;
use sealdisk_rados::Credentials;

use crate::disk::Turn;
use crate::fio::{Job, size_for_people};
use crate::machine::Machine;
use crate::places::{Places, drop_caches};
use crate::programs::{FIO, INITDB, QEMU, RBD};
use crate::results::{LeftOut, Measure, Operation, Results};
use crate::{BenchError, Interrupt, Progress, pages};

use self::ceph::Facts;
use self::contestant::{Contestant, Means, VOLUME_KEY};
use self::image::Place;
use self::subject::{Subject, order, subjects};

pub use self::subject::BASELINE;
pub use self::targets::targets;
pub use self::volume::{ServedVolume, VolumeKind, serve};

/// The sizes of the paper's figures, in bytes: 4 KiB to 4 MiB.
pub const BLOCK_SIZES: [u64; 11] = {
    let mut sizes = [4 << 10; 11];
    let mut i = 1;
    while i < sizes.len() {
        sizes[i] = sizes[i - 1] * 2;
        i += 1;
    }
    sizes
};

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sealdisk's own program.
    pub sealdisk: PathBuf,
    /// The cluster, and as whom to use it.
    pub credentials: Credentials,
    /// The pool for the images.
    pub pool: String,
    /// Size of each disk in bytes.
    pub size: u64,
    /// Sizes of operations in bytes, among [`BLOCK_SIZES`].
    pub block_sizes: Vec<u64>,
    /// Of the sealed volumes.
    pub cipher: CipherName,
    /// Bytes that a volume may take in memory.
    pub memory: u64,
    /// How often everyone is measured.
    pub rounds: u32,
    /// How long a job runs, in seconds.
    pub seconds: u64,
    /// Only these subjects; all if empty.
    pub only: Vec<String>,
    /// Whether this is only a look.
    pub quick: bool,
}

/// What must be known to read the figures.
const NOTES: [&str; 3] = [
    "librbd is reached through QEMU's NBD server and Sealdisk through its own. Both get the same requests from the same \
     program. QEMU's takes 16 requests at a time from a connection, which is why there are two connections.",
    "Random bytes and database pages reach fio in the same way, from a file that its buffers are mapped to, so that what is \
     written makes no difference to whoever writes it. Database pages are those of tables, indexes and log of a PostgreSQL \
     cluster that is made for the benchmark.",
    "An operation's processor time is that of the process that serves the disk, all its threads and Ceph's libraries \
     included. The cluster's daemons are not in it.",
];

/// A failure of Ceph's, of an image or of a volume, in its own words.
fn failure(error: impl std::fmt::Display) -> BenchError {
    BenchError::Wrong(error.to_string())
}

/// Measures.
pub fn run(options: &Options, progress: &mut Progress, interrupt: &Interrupt) -> Result<Results, BenchError> {
    FIO.find()?;
    let chosen = chosen(options)?;
    let jobs = jobs_of(&options.block_sizes);
    let places = Places::new(&std::env::temp_dir())?;
    let facts = Facts { credentials: &options.credentials, pool: &options.pool, interrupt };
    let mut results = empty_results(options, &facts, &jobs)?;
    let mut means = means(options, &places)?;

    progress.begin((chosen.len() * (1 + options.rounds as usize * jobs.len())) as u64);
    let mut contestants = Vec::new();
    for subject in chosen {
        progress.step(&format!("{}: making and filling the disk", subject.name));
        let name = subject.name.clone();
        match prepare(subject, &mut means, interrupt) {
            Ok(contestant) => contestants.push(contestant),
            Err(error @ (BenchError::Missing { .. } | BenchError::Unsuited(_))) => {
                progress.warn(&format!("{name} is left out: {error}"));
                results.left_out.push(LeftOut { subject: name, reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    for round in 1..=options.rounds {
        drop_caches();
        for contestant in &mut contestants {
            contestant.serve(&means, interrupt)?;
            // A disk in use: what its server keeps of it in memory is there.
            contestant.disk().read_through(contestant.content(), &places, interrupt)?;
        }
        for (number, job) in jobs.iter().enumerate() {
            for i in order(contestants.len(), number + round as usize - 1) {
                let contestant = &contestants[i];
                let name = &contestant.subject.name;
                progress.step(&format!("round {round}: {name}, {}", job.name()));
                let turn = Turn { job: *job, content: contestant.content(), seconds: options.seconds, round };
                results.samples.push(contestant.disk().measure(name, turn, &places, interrupt)?);
            }
        }
        contestants.iter_mut().try_for_each(Contestant::stop)?;
        results.rounds = round;
        results.machine.note_load();
    }
    for mut contestant in contestants {
        contestant.note_folding("after the last round", &means)?;
        results.subjects.push(described(&contestant));
        contestant.remove()?;
    }
    progress.finish();
    Ok(results)
}

/// Who takes part.
fn chosen(options: &Options) -> Result<Vec<Subject>, BenchError> {
    if options.cipher.seal_len() == 0 {
        let why = format!("cipher {} seals nothing; length-preserving is measured with it anyway", options.cipher);
        return Err(BenchError::Wrong(why));
    }
    let mut all = subjects(options.cipher);
    let known = all.iter().map(|subject| &*subject.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.only.iter().find(|name| all.iter().all(|subject| subject.name != **name)) {
        return Err(BenchError::Wrong(format!("there is no subject '{unknown}'; there are {known}")));
    }
    all.retain(|subject| options.only.is_empty() || options.only.contains(&subject.name));
    Ok(all)
}

/// All reads before all writes, from small to large: what small writes leave in pieces is whole again after the largest, when
/// the next round reads.
fn jobs_of(block_sizes: &[u64]) -> Vec<Job> {
    let of = |operation| block_sizes.iter().map(move |size| Job::of_series(operation, *size));
    of(Operation::Read).chain(of(Operation::Write)).collect()
}

fn measure(job: Job, seconds: u64) -> Measure {
    Measure { point: Some(job.point()), ..job.measure(seconds) }
}

fn means<'a>(options: &'a Options, places: &'a Places) -> Result<Means<'a>, BenchError> {
    let prefix = places.run_folder().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let random = places.run("random");
    write_random(&random, most_in_flight(options))?;
    Ok(Means {
        sealdisk: options.sealdisk.clone(),
        credentials: &options.credentials,
        place: Place::new(&options.credentials, &options.pool, prefix)?,
        places,
        key: volume::make_key(&places.run(VOLUME_KEY))?,
        size: options.size,
        memory: options.memory,
        random,
        pages: None,
    })
}

/// Bytes of content that are enough for every job.
fn most_in_flight(options: &Options) -> u64 {
    jobs_of(&options.block_sizes).into_iter().chain([Job::FILL]).map(Job::in_flight).max().unwrap_or(0)
}

fn write_random(path: &Path, len: u64) -> Result<(), BenchError> {
    let source = std::fs::File::open("/dev/urandom").map_err(BenchError::io("/dev/urandom"))?;
    let mut file = std::fs::File::create(path).map_err(BenchError::path(path))?;
    std::io::copy(&mut std::io::Read::take(source, len), &mut file).map(drop).map_err(BenchError::path(path))
}

fn prepare(subject: Subject, means: &mut Means<'_>, interrupt: &Interrupt) -> Result<Contestant, BenchError> {
    let content = if !subject.writes_pages {
        means.random.clone()
    } else if let Some(pages) = &means.pages {
        pages.clone()
    } else {
        let len = std::fs::metadata(&means.random).map_err(BenchError::path(&means.random))?.len();
        means.pages.insert(pages::make(len, means.places, interrupt)?).clone()
    };
    Contestant::make(subject, content, means, interrupt)
}

fn described(contestant: &Contestant) -> crate::Subject {
    let Contestant { subject, commands, remarks, peak_memory, .. } = contestant;
    crate::Subject {
        name: subject.name.clone(),
        what: subject.what.clone(),
        is_ours: subject.is_ours(),
        commands: commands.clone(),
        peak_memory: *peak_memory,
        remarks: remarks.clone(),
    }
}

fn empty_results(options: &Options, facts: &Facts<'_>, jobs: &[Job]) -> Result<Results, BenchError> {
    let mut machine = Machine::of(Path::new("/"));
    // Nothing of what is measured lies on one of this machine's.
    machine.file_system.clear();
    machine.versions = [FIO, QEMU, RBD, INITDB]
        .into_iter()
        .filter_map(|program| Some((program.name.to_owned(), program.version().ok()?)))
        .collect();
    machine.versions.insert(0, ("sealdisk".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    machine.note_load();
    let sizes = options.block_sizes.iter().map(|size| size_for_people(*size)).collect::<Vec<_>>().join(", ");
    let settings = [
        ("disk size", format!("{} MiB, written once before", options.size >> 20)),
        ("images", "objects of 4 MiB (object-end, unaligned: 8 MiB, half of them empty); no object map".to_owned()),
        ("sizes", sizes),
        ("rounds", format!("{}, each with a new process for everyone", options.rounds)),
        ("order", "all reads, then all writes; each load goes through everyone, first and last alternately".to_owned()),
        ("a job", format!("{} s, its last flush included", options.seconds)),
        ("transport", "NBD on a unix socket, two connections with 16 requests in flight on each".to_owned()),
        (
            "caches",
            "librbd's cache is off (QEMU's cache.direct=on); before each round the kernel's is dropped, and each disk read once"
                .to_owned(),
        ),
        ("Sealdisk's memory", format!("{} MiB for the volume", options.memory >> 20)),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    Ok(Results {
        title: "Disks on a Ceph cluster".to_owned(),
        machine,
        settings: settings.into_iter().chain(facts.all()?).collect(),
        notes: NOTES.map(str::to_owned).to_vec(),
        rounds: 0,
        quick: options.quick,
        subjects: Vec::new(),
        measures: jobs.iter().map(|job| measure(*job, options.seconds)).collect(),
        samples: Vec::new(),
        left_out: Vec::new(),
    })
}
