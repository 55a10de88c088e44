//! The command line: what can be said, not what it does. Completions and manual pages are made from these definitions.

pub mod bench;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use sealdisk_cipher::CipherName;
use sealdisk_header::Pbkdf;
use sealdisk_layout::LayoutName;

use self::bench::Bench;
use crate::size::ByteSize;
use crate::volume_name::{VolumeName, volume_name};

/// Encryption at rest for databases: sealed disks in a file, on a block device or on Ceph.
///
/// A volume is an encrypted disk. It lies in a file, on a block device or in an image on Ceph, and is attached as a disk
/// that any file system or database can use. Every sector is authenticated and encrypted with a fresh random nonce; a sector that was changed
/// behind Sealdisk's back is a read error, never data.
#[derive(Parser)]
#[command(name = "sealdisk", version, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Print nothing but errors and what was asked for.
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a new volume.
    Format(Format),
    /// Offer a volume as a disk, and return when the disk is ready.
    Attach(Attach),
    /// Flush a volume and stop offering it.
    Detach(Detach),
    /// List the attached volumes.
    List(List),
    /// Show what a volume's header says, and how it does if it is attached.
    Info(Info),
    /// Read and authenticate every sector of a detached volume.
    Check(Check),
    /// Change the usable size of a detached volume.
    Resize(Resize),
    /// Manage the passphrases and key files that open a volume.
    #[command(subcommand)]
    Key(Key),
    /// Save or restore a volume's header.
    #[command(subcommand)]
    Header(Header),
    /// Destroy the key slots of a volume, and with them everything on it.
    Erase(Erase),
    /// Manage the snapshots of a volume on Ceph.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Measure this machine: Sealdisk beside other programs, in turn.
    #[command(subcommand)]
    Bench(Bench),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man(Man),
}

/// What every command that touches a volume needs.
#[derive(Args, Clone)]
pub struct Volume {
    /// The volume: a file, a block device, or an image on Ceph, rbd:POOL/[NAMESPACE/]IMAGE.
    #[arg(id = "volume", value_name = "VOLUME", value_hint = ValueHint::AnyPath, value_parser = volume_name())]
    pub name: VolumeName,
    #[command(flatten)]
    pub ceph: CephOptions,
}

/// Who speaks to which cluster. Without these options, as Ceph's own programs find it out.
#[derive(Args, Clone, Default)]
pub struct CephOptions {
    /// Ceph's configuration [default: $CEPH_CONF, /etc/ceph/ceph.conf].
    #[arg(long, help_heading = "Ceph", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub conf: Option<PathBuf>,
    /// The user, without `client.` [default: admin].
    #[arg(long, help_heading = "Ceph", value_name = "ID")]
    pub id: Option<String>,
    /// The file with the user's key [default: as the configuration says].
    #[arg(long, help_heading = "Ceph", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub keyring: Option<PathBuf>,
}

/// Where the passphrase comes from.
#[derive(Args, Clone, Default)]
pub struct KeySource {
    /// Read the key from this file, every byte of it as cryptsetup(8) does; `-` is standard input.
    ///
    /// A newline at the end of the file is part of the key. Without this option a passphrase is asked for at the
    /// terminal, or, if standard input is not a terminal, read from it up to the first newline.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,
}

/// How hard a passphrase is made to guess. The names are cryptsetup's.
#[derive(Args, Clone)]
#[command(next_help_heading = "Key derivation")]
pub struct KeyDerivation {
    /// The function that turns the passphrase into a key [default: argon2id].
    #[arg(long, value_enum, value_name = "NAME")]
    pub pbkdf: Option<PbkdfName>,
    /// How long one derivation takes on this machine, in milliseconds.
    ///
    /// The time buys memory, up to 1 GiB or half of what is free, and passes only after that. However slow the machine,
    /// there are 4 passes over 64 MiB. cryptsetup's default is 2000.
    #[arg(long, value_name = "MS", default_value_t = Pbkdf::DEFAULT_TIME_MS, conflicts_with = "pbkdf_force_iterations", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    pub iter_time: u32,
    /// Passes of Argon2, instead of what takes the time of --iter-time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    pub pbkdf_force_iterations: Option<u32>,
    /// Memory of Argon2 in KiB [default: 1048576].
    #[arg(long, value_name = "KIB", requires = "pbkdf_force_iterations", value_parser = clap::value_parser!(u32).range(32..=4_194_304))]
    pub pbkdf_memory: Option<u32>,
    /// Threads of Argon2 [default: 4].
    #[arg(long, value_name = "N", requires = "pbkdf_force_iterations", value_parser = clap::value_parser!(u32).range(1..=4))]
    pub pbkdf_parallel: Option<u32>,
}

/// Functions that turn a passphrase into a key.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum PbkdfName {
    /// Argon2id (RFC 9106).
    Argon2id,
}

/// How work that takes long shows how far it is.
#[derive(Args, Clone, Default)]
pub struct ProgressStyle {
    /// Report progress as JSON lines on standard output, with the fields of cryptsetup's option of this name.
    #[arg(long)]
    pub progress_json: bool,
}

/// `format`.
#[derive(Args)]
pub struct Format {
    #[command(flatten)]
    pub volume: Volume,
    /// Usable size: 20G, 20GiB, 512M. The header and the seals come on top. For a block device, or an image that exists:
    /// all of it by default.
    #[arg(long, short)]
    pub size: Option<ByteSize>,
    /// The pool for the data of a new image on Ceph; an erasure-coded one, for instance.
    #[arg(long, value_name = "POOL", help_heading = "Ceph")]
    pub data_pool: Option<String>,
    /// How sectors are encrypted: aegis-256, aegis-256x4, aes-256-gcm, xchacha20-poly1305, aes-256-xts-random or aes-256-xts.
    ///
    /// The default is the fastest that notices changes: aegis-256x4 on processors with AES instructions for several blocks
    /// (VAES), aegis-256 on those with instructions for one, xchacha20-poly1305 elsewhere. aes-256-xts with
    /// layout length-preserving is an ordinary LUKS2 volume: neither authenticated nor safe against comparing two states
    /// of a sector.
    #[arg(long, short, value_name = "NAME", value_parser = cipher_parser())]
    pub cipher: Option<CipherName>,
    /// Where seals lie: packed, or length-preserving for aes-256-xts; on Ceph there are others [default: the one that suits the cipher].
    #[arg(long, value_name = "NAME", value_parser = layout_parser())]
    pub layout: Option<LayoutName>,
    /// Let sectors that can be shrunk a little carry their own seal, which saves database pages a second write.
    ///
    /// Whether a sector is folded can be seen on the store. Published patents claim neighbouring ideas; see the
    /// architecture document.
    #[arg(long)]
    pub fold: bool,
    #[command(flatten)]
    pub key: KeySource,
    /// A label for the header.
    #[arg(long, short = 'L')]
    pub label: Option<String>,
    /// Overwrite whatever the file, device or image holds.
    #[arg(long)]
    pub force: bool,
    /// Encryption sector of an aes-256-xts volume [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = ["512", "1024", "2048", "4096"], help_heading = "LUKS2 (aes-256-xts) only")]
    pub sector_size: Option<String>,
    /// Volume key of an aes-256-xts volume: 512 bits (AES-256) or 256 bits (AES-128) [default: 512].
    #[arg(long, value_name = "BITS", value_parser = ["256", "512"], help_heading = "LUKS2 (aes-256-xts) only")]
    pub key_size: Option<String>,
    /// Where the data of an aes-256-xts volume begin, in bytes [default: 16M].
    #[arg(long, value_name = "BYTES", help_heading = "LUKS2 (aes-256-xts) only")]
    pub offset: Option<ByteSize>,
    #[command(flatten)]
    pub derivation: KeyDerivation,
}

/// `attach`.
#[derive(Args)]
pub struct Attach {
    #[command(flatten)]
    pub volume: Volume,
    /// How the disk is offered.
    #[arg(long = "as", value_enum, value_name = "HOW", default_value = "auto")]
    pub how: How,
    /// Where NBD clients find the disk: unix:/path or HOST:PORT. Implies --as nbd.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// What the disk is called [default: the volume's file name without its extension, or the image's].
    #[arg(long, short)]
    pub name: Option<String>,
    /// Refuse writes. A snapshot of an image is always read-only.
    #[arg(long, short)]
    pub read_only: bool,
    #[command(flatten)]
    pub key: KeySource,
    /// Serve in this process instead of a daemon's, until a signal or `sealdisk detach`.
    #[arg(long, short)]
    pub foreground: bool,
    /// The most memory the attached volume may take.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub memory: ByteSize,
}

/// How a disk is offered.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// For root a disk /dev/sealdisk/NAME (as fuse); for others NBD on a unix socket.
    Auto,
    /// Network Block Device, for qemu, nbd-client, nbdcopy and other clients.
    Nbd,
    /// One file in a FUSE mount; for root also a loop device on it, /dev/sealdisk/NAME.
    Fuse,
}

/// `detach`.
#[derive(Args)]
pub struct Detach {
    /// The volume, or the name it was attached under.
    #[arg(value_name = "VOLUME|NAME", value_hint = ValueHint::AnyPath, value_parser = volume_name())]
    pub target: VolumeName,
    #[command(flatten)]
    pub ceph: CephOptions,
}

/// `list`.
#[derive(Args)]
pub struct List {
    /// Print a JSON array.
    ///
    /// Its objects have the fields name, volume, address, export (nbd or fuse), size (bytes), read_only, state (healthy,
    /// read-only, failed, "waiting for Ceph", attaching, ending, unresponsive or dead), waiting_since (seconds since 1970),
    /// reason, damage, pid, since (seconds since 1970), cipher, layout and log. Fields may be added.
    #[arg(long)]
    pub json: bool,
}

/// `info`.
#[derive(Args)]
pub struct Info {
    #[command(flatten)]
    pub volume: Volume,
    /// Print a JSON object.
    ///
    /// Its fields are volume, uuid, label, kind (sealed, luks2 or luks1), cipher, implementation, authenticated, layout, fold,
    /// sector_size, offset, size (bytes), clean, sectors (folded, plain, zero; for folding volumes), stored (bytes), lineage,
    /// key_slots (as `key list --json`), image (cluster, pool, namespace, name, id, size, lock_owner, snapshots; for images on
    /// Ceph) and attached (name, pid, address, read_only, state, waiting_since, reason, damage, counters). Fields may be added.
    #[arg(long)]
    pub json: bool,
}

/// `check`.
#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub volume: Volume,
    #[command(flatten)]
    pub key: KeySource,
    /// Print the report as a line of JSON.
    ///
    /// Its fields are volume, size (bytes), authenticated, sectors (how many were read), bad (numbers of the 4096-byte
    /// sectors that are not authentic), unreadable (sector, reason) and damage (what its journal has lost). Fields may be
    /// added.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub progress: ProgressStyle,
}

/// `resize`.
#[derive(Args)]
pub struct Resize {
    #[command(flatten)]
    pub volume: Volume,
    /// The new usable size: 20G, 20GiB, 512M.
    #[arg(long, short)]
    pub size: ByteSize,
    #[command(flatten)]
    pub key: KeySource,
    /// Allow shrinking, which destroys what lies beyond the new end.
    #[arg(long)]
    pub force: bool,
}

/// `key`.
#[derive(Subcommand)]
pub enum Key {
    /// Add a passphrase or key file.
    Add(KeyAdd),
    /// Remove a passphrase or key file.
    Remove(KeyRemove),
    /// Replace a passphrase or key file by another.
    Change(KeyChange),
    /// List the key slots.
    List(KeyList),
}

/// What `key add` and `key change` need.
#[derive(Args)]
pub struct TwoKeys {
    #[command(flatten)]
    pub volume: Volume,
    #[command(flatten)]
    pub key: KeySource,
    /// Read the new key from this file, every byte of it; `-` is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub new_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub derivation: KeyDerivation,
}

/// `key add`.
#[derive(Args)]
pub struct KeyAdd {
    /// The key slot to use [default: the first free one].
    #[arg(long, value_name = "N", value_parser = slot_parser())]
    pub slot: Option<u32>,
    #[command(flatten)]
    pub keys: TwoKeys,
}

/// `key remove`.
#[derive(Args)]
pub struct KeyRemove {
    #[command(flatten)]
    pub volume: Volume,
    #[command(flatten)]
    pub key: KeySource,
    /// Remove this key slot, whatever its passphrase.
    #[arg(long, value_name = "N", conflicts_with = "key_file", value_parser = slot_parser())]
    pub slot: Option<u32>,
    /// Remove even the last key slot, after which the volume can never be opened again.
    #[arg(long)]
    pub force: bool,
}

/// `key change`.
#[derive(Args)]
pub struct KeyChange {
    /// Change the passphrase of this key slot only.
    #[arg(long, value_name = "N", value_parser = slot_parser())]
    pub slot: Option<u32>,
    #[command(flatten)]
    pub keys: TwoKeys,
}

/// `key list`.
#[derive(Args)]
pub struct KeyList {
    #[command(flatten)]
    pub volume: Volume,
    /// Print a JSON array.
    ///
    /// Its objects have the fields slot, priority (ignore, normal or prefer), pbkdf, iterations, memory_kib, threads and
    /// bound. Fields may be added.
    #[arg(long)]
    pub json: bool,
}

/// `header`.
#[derive(Subcommand)]
pub enum Header {
    /// Save the header, with its key slots, to a new file.
    ///
    /// Whoever has the file and a passphrase that was valid when it was made can open the volume, even after that
    /// passphrase has been removed.
    Backup(HeaderBackup),
    /// Put a saved header back.
    Restore(HeaderRestore),
}

/// `header backup`.
#[derive(Args)]
pub struct HeaderBackup {
    #[command(flatten)]
    pub volume: Volume,
    /// The file to make.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// `header restore`.
#[derive(Args)]
pub struct HeaderRestore {
    #[command(flatten)]
    pub volume: Volume,
    /// The file that `header backup` made.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Restore even if the file belongs to another volume or the volume's header cannot be read, and do not ask.
    #[arg(long)]
    pub force: bool,
}

/// `erase`.
#[derive(Args)]
pub struct Erase {
    #[command(flatten)]
    pub volume: Volume,
    /// Do not ask.
    #[arg(long)]
    pub force: bool,
}

/// `snapshot`.
#[derive(Subcommand)]
pub enum Snapshot {
    /// Make a snapshot: the disk as a crash at this moment would leave it. Also while it is attached.
    Create(SnapshotOf),
    /// List the snapshots.
    List(SnapshotList),
    /// Remove a snapshot.
    Remove(SnapshotOf),
    /// Make the volume what it was at a snapshot. What was written since is lost; the volume must not be attached.
    Rollback(SnapshotRollback),
}

/// `snapshot create` and `snapshot remove`.
#[derive(Args)]
pub struct SnapshotOf {
    /// The snapshot: rbd:POOL/[NAMESPACE/]IMAGE@SNAPSHOT.
    #[command(flatten)]
    pub volume: Volume,
}

/// `snapshot list`.
#[derive(Args)]
pub struct SnapshotList {
    #[command(flatten)]
    pub volume: Volume,
    /// Print a JSON array.
    ///
    /// Its objects have the fields name, id and size (bytes of the image). Fields may be added.
    #[arg(long)]
    pub json: bool,
}

/// `snapshot rollback`.
#[derive(Args)]
pub struct SnapshotRollback {
    /// The snapshot: rbd:POOL/[NAMESPACE/]IMAGE@SNAPSHOT.
    #[command(flatten)]
    pub volume: Volume,
    /// Do not ask.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub progress: ProgressStyle,
}

/// `completions`.
#[derive(Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Args)]
pub struct Man {
    /// The folder to write to; it must exist.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}

/// LUKS2 has key slots 0 to 31.
fn slot_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..32)
}

fn cipher_parser() -> impl clap::builder::TypedValueParser<Value = CipherName> {
    use clap::builder::TypedValueParser;
    let names = CipherName::ALL.map(CipherName::as_str);
    clap::builder::PossibleValuesParser::new(names).try_map(|name| name.parse::<CipherName>())
}

fn layout_parser() -> impl clap::builder::TypedValueParser<Value = LayoutName> {
    use clap::builder::TypedValueParser;
    let names = LayoutName::ALL.map(LayoutName::as_str);
    clap::builder::PossibleValuesParser::new(names).try_map(|name| name.parse::<LayoutName>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }
}
