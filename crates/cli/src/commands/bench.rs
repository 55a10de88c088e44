//! `bench`: Sealdisk beside its peers. What is measured, and how, lies in the crate `sealdisk-bench`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sealdisk_bench::report::Report;
use sealdisk_bench::{BenchError, Interrupt, Offer, Progress, Results, Target, Verdict, local, postgres};

use crate::arguments::bench::{Bench, Common, PassThrough};
use crate::failure::{Failure, Kind};
use crate::helper::helper;
use crate::output;
use crate::size::ByteSize;

/// The smallest disk that every job can run on.
const LEAST_SIZE: ByteSize = ByteSize(32 << 20);

/// Measures, or serves what is measured.
pub fn run(bench: &Bench, quiet: bool) -> Result<(), Failure> {
    let interrupt = Interrupt::on_signals()?;
    match bench {
        Bench::Local(options) => {
            let quick = options.common.quick;
            let size = options.size.unwrap_or(ByteSize(if quick { 64 << 20 } else { 2 << 30 }));
            if size < LEAST_SIZE || !size.0.is_multiple_of(1 << 20) {
                return Err(Failure::usage(format_args!("--size is {LEAST_SIZE} or more, in whole MiB")));
            }
            let settings = local::Options {
                sealdisk: own_program()?,
                folder: absolute(&options.common.dir)?,
                size: size.0,
                rounds: options.common.rounds(),
                seconds: options.seconds.unwrap_or(if quick { 1 } else { 5 }),
                only: options.common.only.clone(),
                quick,
            };
            let mut progress = options.common.progress(quiet);
            let results = local::run(&settings, &mut progress, &interrupt)?;
            options.common.report(&results, &local::targets(), "qemu-luks", &progress)
        }
        Bench::Postgres(options) => {
            let quick = options.common.quick;
            let settings = postgres::Options {
                sealdisk: own_program()?,
                folder: absolute(&options.common.dir)?,
                scale: options.scale.unwrap_or(if quick { 10 } else { 100 }),
                rounds: options.common.rounds(),
                seconds: options.seconds.unwrap_or(if quick { 3 } else { 30 }),
                only: options.common.only.clone(),
                quick,
            };
            let mut progress = options.common.progress(quiet);
            let results = postgres::run(&settings, &mut progress, &interrupt)?;
            options.common.report(&results, &postgres::targets(), "plain-loop", &progress)
        }
        Bench::PassThrough(PassThrough { file, socket, mount }) => {
            let offer = match (socket, mount) {
                (Some(socket), _) => Offer::Nbd(socket.clone()),
                (None, Some(folder)) => Offer::Fuse(folder.clone()),
                (None, None) => return Err(Failure::usage("give --socket or --mount")),
            };
            Ok(sealdisk_bench::serve_pass_through(file, &offer, &helper(), &interrupt)?)
        }
    }
}

impl Common {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    fn progress(&self, quiet: bool) -> Progress {
        Progress::new(self.progress.progress_json, quiet)
    }

    /// Writes the report, prints the tables, and says of every target that was missed that it was.
    fn report(
        &self,
        results: &Results,
        targets: &[Target],
        yardstick: &'static str,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let report = Report::new(results, targets, yardstick);
        if let Some(folder) = &self.out {
            report.write(folder)?;
        }
        let missed = report.outcomes().iter().filter(|outcome| outcome.verdict == Verdict::Missed).count();
        if missed > 0 && !results.quick {
            progress.warn(&format!("{missed} targets are missed"));
        }
        // Standard output is JSON lines where that was asked for.
        if self.progress.progress_json { Ok(()) } else { output::say(report.to_terminal().trim_end()) }
    }
}

/// Servers run in processes of their own, which run this program.
fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::io("finding this program", &e))
}

/// Servers have other working folders.
fn absolute(folder: &Path) -> Result<PathBuf, Failure> {
    folder.canonicalize().map_err(|e| Failure::path(folder, &e))
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let kind = match &error {
            BenchError::Io { source, .. } if source.kind() != ErrorKind::NotFound => Kind::of(source),
            _ => Kind::WrongParameters,
        };
        Self::new(kind, error)
    }
}
