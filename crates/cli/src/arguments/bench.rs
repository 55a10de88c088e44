//! What can be said of `bench`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueHint};

use super::ProgressStyle;
use crate::size::ByteSize;

/// `bench`.
#[derive(Subcommand)]
pub enum Bench {
    /// Disks over NBD under fio: Sealdisk's ciphers, its path without encryption, QEMU and nbdkit.
    ///
    /// Everyone is measured in turn, round by round, with the same jobs. Peers that are not installed are left out, and
    /// the report says so.
    Local(Local),
    /// PostgreSQL under pgbench on disks of every kind. Only for root.
    Postgres(Postgres),
    /// Serve a file as a disk without any encryption, to be measured.
    #[command(hide = true)]
    PassThrough(PassThrough),
}

/// What both benchmarks need.
#[derive(Args)]
pub struct Common {
    /// Write data.json, report.md, report.html and plots into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Keep the disks in this folder, on the file system to be measured, while the benchmark runs.
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// How often everyone is measured.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(5..), conflicts_with = "quick")]
    pub rounds: u32,
    /// One short round, to see that everything works; no measurement.
    #[arg(long)]
    pub quick: bool,
    /// Only these, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    #[command(flatten)]
    pub progress: ProgressStyle,
}

/// `bench local`.
#[derive(Args)]
pub struct Local {
    #[command(flatten)]
    pub common: Common,
    /// Size of each disk [default: 2G, or 64M with --quick].
    #[arg(long)]
    pub size: Option<ByteSize>,
    /// How long each job runs [default: 5, or 1 with --quick].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
}

/// `bench postgres`.
#[derive(Args)]
pub struct Postgres {
    #[command(flatten)]
    pub common: Common,
    /// pgbench's scale, 16 MB each [default: 100, or 10 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scale: Option<u64>,
    /// How long each run takes [default: 30, or 3 with --quick].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
}

/// `bench pass-through`.
#[derive(Args)]
#[command(group(ArgGroup::new("offer").required(true)))]
pub struct PassThrough {
    /// The file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Serve NBD on this unix socket.
    #[arg(long, value_name = "PATH", group = "offer")]
    pub socket: Option<PathBuf>,
    /// Mount FUSE in this folder, and put a loop device on it.
    #[arg(long, value_name = "DIR", group = "offer")]
    pub mount: Option<PathBuf>,
}
