//! `check`: read and authenticate everything.

use sealdisk_header::Header;
use sealdisk_store::OpenMode;
use sealdisk_units::SECTOR_SIZE;
use sealdisk_volume::{OpenOptions, Volume};
use serde::Serialize;

use crate::arguments::Check;
use crate::failure::{Failure, Kind};
use crate::location::{Location, OpenVolume};
use crate::output;
use crate::progress::Progress;
use crate::server::damage_story;
use crate::size::ByteSize;
use crate::unlock::unlock;

/// The report, as `--json` shows it. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct Report {
    /// The volume's path.
    volume: String,
    /// Usable size in bytes.
    size: u64,
    /// Whether sectors are authenticated at all.
    authenticated: bool,
    /// Sectors that were read. What is known to be zero need not be read.
    sectors: u64,
    /// The numbers of the 4096-byte sectors that are not authentic.
    bad: Vec<u64>,
    /// Sectors that the store below could not read.
    unreadable: Vec<Unreadable>,
    /// What its damaged journal has lost: sectors may be authentic and older than they were.
    damage: Option<String>,
}

/// A sector that the store below could not read.
#[derive(Serialize)]
struct Unreadable {
    /// Its number.
    sector: u64,
    /// What the store said.
    reason: String,
}

/// Prints a line for every bad sector, and fails if there is one.
pub fn run(options: &Check, quiet: bool) -> Result<(), Failure> {
    let OpenVolume { location, store } = Location::find(&options.volume)?.open(OpenMode::ReadOnly)?;
    let file = location.header_file()?;
    let header = file.load()?;
    let key = unlock(&file, &header, &options.key)?;
    let shown = location.to_string();
    let open = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(store, &shown, header.payload(), &key, open)?;
    drop(key);

    let mut progress = Progress::new(&shown, options.progress.progress_json, quiet);
    let found = volume.check(&mut |done, total| progress.update(done, total));
    progress.finish();
    let found = found.map_err(Failure::from)?;

    let unreadable = found.unreadable.into_iter().map(|(sector, reason)| Unreadable { sector: sector.0, reason });
    let report = Report {
        volume: shown,
        size: volume.size(),
        authenticated: is_authenticated(&header),
        sectors: found.sectors,
        bad: found.not_authentic.iter().map(|sector| sector.0).collect(),
        unreadable: unreadable.collect(),
        damage: volume.status().damage.as_deref().map(damage_story),
    };
    if options.json {
        // One line: with --progress-json it is the last of several.
        output::say(&serde_json::to_string(&report).map_err(Failure::usage)?)?;
    } else {
        print(&report, quiet)?;
    }
    let complaints: Vec<_> =
        complaint(report.bad.len(), report.unreadable.len()).into_iter().chain(report.damage).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Kind::Damaged, format_args!("{}: {}", report.volume, complaints.join("; "))))
}

/// What is wrong, in numbers.
fn complaint(bad: usize, unreadable: usize) -> Option<String> {
    let sectors = |count: usize| if count == 1 { "1 sector".to_owned() } else { format!("{count} sectors") };
    let are = |count: usize| if count == 1 { "is" } else { "are" };
    match (bad, unreadable) {
        (0, 0) => None,
        (bad, 0) => Some(format!("{} {} not authentic", sectors(bad), are(bad))),
        (0, unreadable) => Some(format!("{} cannot be read", sectors(unreadable))),
        (bad, unreadable) => {
            Some(format!("{} {} not authentic, {} cannot be read", sectors(bad), are(bad), sectors(unreadable)))
        }
    }
}

fn print(report: &Report, quiet: bool) -> Result<(), Failure> {
    let place = |sector: u64| {
        let byte = sector * SECTOR_SIZE as u64;
        format!("sector {sector} (bytes {byte} to {})", byte + SECTOR_SIZE as u64)
    };
    for sector in &report.bad {
        output::say(&format!("{}: not authentic", place(*sector)))?;
    }
    for Unreadable { sector, reason } in &report.unreadable {
        output::say(&format!("{}: {reason}", place(*sector)))?;
    }
    if report.bad.is_empty() && report.unreadable.is_empty() && report.damage.is_none() && !quiet {
        let size = ByteSize(report.size);
        output::say(&match report.authenticated {
            true => format!("{size}: every sector is authentic"),
            false => format!("{size}: every sector can be read; this cipher does not authenticate them"),
        })?;
    }
    Ok(())
}

fn is_authenticated(header: &Header) -> bool {
    match header.payload() {
        sealdisk_header::Payload::Plain(_) => false,
        sealdisk_header::Payload::Sealed(sealed) => sealed.cipher.is_authenticated(),
    }
}
