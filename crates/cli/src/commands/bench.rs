//! `bench`: Sealdisk beside its peers. What is measured, and how, lies in the crate `sealdisk-bench`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sealdisk_bench::report::Report;
use sealdisk_bench::{BenchError, Interrupt, Offer, Progress, Results, Target, Verdict, local, postgres, rbd};
use sealdisk_rados::{Credentials, ImageName};

use crate::arguments::bench::{Bench, CephPool, Common, PassThrough, Rbd, ServedImage};
use crate::failure::{Failure, Kind};
use crate::helper::helper;
use crate::memory::{self, Place, Shares};
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
            check_size(size)?;
            let settings = local::Options {
                sealdisk: own_program()?,
                folder: absolute(&options.files.dir)?,
                size: size.0,
                rounds: options.common.rounds(options.files.rounds),
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
                folder: absolute(&options.files.dir)?,
                scale: options.scale.unwrap_or(if quick { 10 } else { 100 }),
                rounds: options.common.rounds(options.files.rounds),
                seconds: options.seconds.unwrap_or(if quick { 3 } else { 30 }),
                only: options.common.only.clone(),
                quick,
            };
            let mut progress = options.common.progress(quiet);
            let results = postgres::run(&settings, &mut progress, &interrupt)?;
            options.common.report(&results, &postgres::targets(), "plain-loop", &progress)
        }
        Bench::Rbd(options) => run_rbd(options, quiet, &interrupt),
        Bench::Image(options) => serve_image(options, &interrupt),
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

fn run_rbd(options: &Rbd, quiet: bool, interrupt: &Interrupt) -> Result<(), Failure> {
    let quick = options.common.quick;
    let size = options.size.unwrap_or(ByteSize(if quick { 128 << 20 } else { 1 << 30 }));
    check_size(size)?;
    let settings = rbd::Options {
        sealdisk: own_program()?,
        credentials: options.pool.credentials()?,
        pool: options.pool.pool.clone(),
        size: size.0,
        block_sizes: block_sizes(&options.block_sizes, quick)?,
        cipher: options.cipher,
        memory: options.memory.0,
        rounds: options.common.rounds(options.rounds),
        seconds: options.seconds.unwrap_or(if quick { 1 } else { 4 }),
        only: options.common.only.clone(),
        quick,
    };
    // What is too little is to be said now, and not by the first server.
    Shares::of(options.memory, Place::Ceph)?;
    let mut progress = options.common.progress(quiet);
    let results = rbd::run(&settings, &mut progress, interrupt)?;
    options.common.report(&results, &rbd::targets(&settings.block_sizes), rbd::BASELINE, &progress)
}

/// The sizes of operations to measure, in order.
fn block_sizes(asked: &[ByteSize], quick: bool) -> Result<Vec<u64>, Failure> {
    if let Some(wrong) = asked.iter().find(|size| !rbd::BLOCK_SIZES.contains(&size.0)) {
        return Err(Failure::usage(format_args!("--block-sizes {wrong}: powers of two from 4K to 4M are measured")));
    }
    let quick_ones = |size: u64| [4 << 10, 64 << 10, 1 << 20, 4 << 20].contains(&size);
    let wanted =
        |size: u64| if asked.is_empty() { !quick || quick_ones(size) } else { asked.contains(&ByteSize(size)) };
    Ok(rbd::BLOCK_SIZES.into_iter().filter(|size| wanted(*size)).collect())
}

fn serve_image(options: &ServedImage, interrupt: &Interrupt) -> Result<(), Failure> {
    // As for an attached volume.
    memory::bound_allocator(Place::Ceph);
    let ServedImage { pool, image, cipher, layout, fold, memory, key_file, socket } = options;
    let image = ImageName { pool: pool.pool.clone(), namespace: String::new(), image: image.clone(), snapshot: None };
    let kind = rbd::VolumeKind { cipher: *cipher, layout: *layout, fold: *fold };
    let shares = Shares::of(*memory, Place::Ceph)?.of_kind(Place::Ceph, &kind.payload());
    let served = rbd::ServedVolume {
        image,
        credentials: pool.credentials()?,
        kind,
        key: key_file.clone(),
        socket: socket.clone(),
        memory: shares.volume,
        requests: shares.requests,
    };
    Ok(rbd::serve(&served, interrupt)?)
}

impl CephPool {
    fn credentials(&self) -> Result<Credentials, Failure> {
        let absolute = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        Ok(Credentials { conf: absolute(&self.conf)?, id: self.id.clone(), keyring: absolute(&self.keyring)? })
    }
}

fn check_size(size: ByteSize) -> Result<(), Failure> {
    if size < LEAST_SIZE || !size.0.is_multiple_of(1 << 20) {
        return Err(Failure::usage(format_args!("--size is {LEAST_SIZE} or more, in whole MiB")));
    }
    Ok(())
}

impl Common {
    fn rounds(&self, rounds: u32) -> u32 {
        if self.quick { 1 } else { rounds }
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
