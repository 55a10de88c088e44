//! What can be said of `bench`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueHint};
use sealdisk_cipher::CipherName;
use sealdisk_layout::LayoutName;

use super::{ProgressStyle, cipher_parser, layout_parser};
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
    /// Disks on images of a Ceph cluster: every layout, and librbd with and without its own encryption.
    ///
    /// Random reads and writes of 4 KiB to 4 MiB, 32 in flight, on filled images that are made for it and removed
    /// afterwards. The pool needs room for one of them for each subject, in as many copies as it keeps.
    Rbd(Rbd),
    /// Serve a volume without a header on an RBD image, to be measured.
    #[command(hide = true)]
    Image(ServedImage),
    /// Serve a file as a disk without any encryption, to be measured.
    #[command(hide = true)]
    PassThrough(PassThrough),
}

/// What all benchmarks need.
#[derive(Args)]
pub struct Common {
    /// Write data.json, data.csv, report.md, report.html and plots into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// One short round, to see that everything works; no measurement.
    #[arg(long)]
    pub quick: bool,
    /// Only these, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    #[command(flatten)]
    pub progress: ProgressStyle,
}

/// What benchmarks on a file system need.
#[derive(Args)]
pub struct OnFiles {
    /// Keep the disks in this folder, on the file system to be measured, while the benchmark runs.
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// How often everyone is measured.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(5..), conflicts_with = "quick")]
    pub rounds: u32,
}

/// `bench local`.
#[derive(Args)]
pub struct Local {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub files: OnFiles,
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
    #[command(flatten)]
    pub files: OnFiles,
    /// pgbench's scale, 16 MB each [default: 100, or 10 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scale: Option<u64>,
    /// How long each run takes [default: 30, or 3 with --quick].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
}

/// `bench rbd`.
#[derive(Args)]
pub struct Rbd {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub pool: CephPool,
    /// Size of each disk [default: 1G, or 128M with --quick].
    #[arg(long)]
    pub size: Option<ByteSize>,
    /// Sizes of operations, powers of two from 4K to 4M, separated by commas [default: all of them, or 4K, 64K, 1M and 4M with
    /// --quick].
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub block_sizes: Vec<ByteSize>,
    /// How sealed volumes are encrypted.
    #[arg(long, short, value_name = "NAME", default_value_t = CipherName::default_for_this_cpu(), value_parser = cipher_parser())]
    pub cipher: CipherName,
    /// The most memory that an attached volume may take.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: ByteSize,
    /// How often everyone is measured.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(10..), conflicts_with = "quick")]
    pub rounds: u32,
    /// How long each job runs [default: 4, or 1 with --quick].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
}

/// A pool of a Ceph cluster, and who uses it.
#[derive(Args)]
pub struct CephPool {
    /// The pool for the images.
    #[arg(long, value_name = "POOL")]
    pub pool: String,
    /// Ceph's configuration file [default: $CEPH_CONF, or /etc/ceph/ceph.conf].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub conf: Option<PathBuf>,
    /// The user, without "client." [default: admin].
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// The file with the user's key [default: where the configuration says].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keyring: Option<PathBuf>,
}

/// `bench image`.
#[derive(Args)]
pub struct ServedImage {
    #[command(flatten)]
    pub pool: CephPool,
    /// The image.
    #[arg(long)]
    pub image: String,
    /// How sectors are encrypted.
    #[arg(long, value_parser = cipher_parser())]
    pub cipher: CipherName,
    /// Where seals lie.
    #[arg(long, value_parser = layout_parser())]
    pub layout: LayoutName,
    /// Whether sectors are folded.
    #[arg(long)]
    pub fold: bool,
    /// The most memory that the volume may take.
    #[arg(long)]
    pub memory: ByteSize,
    /// The file with the volume's key: 64 bytes.
    #[arg(long)]
    pub key_file: PathBuf,
    /// Serve NBD on this unix socket.
    #[arg(long)]
    pub socket: PathBuf,
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
