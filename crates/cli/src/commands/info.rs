//! `info`: what a volume is and how it does.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use sealdisk_cipher::{KeyContext, VolumeKey, sector_sealer};
use sealdisk_header::{Header, Payload};
use sealdisk_rados::RadosError;
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::{OBJECT_SIZE, SECTOR_SIZE};
use sealdisk_volume::Volume;
use serde::Serialize;

use crate::arguments::Info;
use crate::commands::attach::cipher_and_layout;
use crate::commands::key::{Slot, slot_table, slots};
use crate::commands::list;
use crate::commands::snapshot::Snapshot;
use crate::control::{FAILED, Health};
use crate::failure::Failure;
use crate::location::{ImageLocation, Location};
use crate::output;
use crate::progress::Progress;
use crate::registry::Registered;
use crate::size::ByteSize;

/// What `info --json` shows. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct Facts {
    /// The volume's absolute path.
    volume: String,
    uuid: String,
    label: Option<String>,
    /// `sealed`, `luks2` or `luks1`.
    kind: &'static str,
    cipher: String,
    /// What runs the cipher on this machine; unknown for LUKS2 volumes that are not attached.
    implementation: Option<String>,
    /// Whether a changed sector is noticed.
    authenticated: bool,
    layout: String,
    /// Whether sectors may carry their own seal.
    fold: bool,
    /// Bytes that are encrypted as one.
    sector_size: u32,
    /// First byte behind the header.
    offset: u64,
    /// Usable size in bytes. Without a key nobody can say whether it is true.
    size: u64,
    /// Whether it was closed in order; if not, the next `attach` brings it up to date from its journal.
    clean: bool,
    /// How the sectors of a folding volume are sealed; as of the last time everything was in place.
    sectors: Option<Forms>,
    /// Bytes that the file takes on its file system.
    stored: Option<u64>,
    /// Which volumes this one is a copy of.
    lineage: Option<String>,
    key_slots: Vec<Slot>,
    /// The image that it lies in.
    image: Option<ImageFacts>,
    /// How it does if it is attached by this user.
    attached: Option<Attached>,
}

/// How many sectors are sealed in which way.
#[derive(Serialize)]
struct Forms {
    /// Sectors that carry their own seal.
    folded: u64,
    /// Sectors with their seal elsewhere.
    plain: u64,
    /// Sectors that are sealed as zero.
    zero: u64,
}

/// An image on Ceph.
#[derive(Serialize)]
struct ImageFacts {
    /// The cluster's UUID.
    cluster: String,
    pool: String,
    namespace: String,
    name: String,
    id: String,
    /// Bytes.
    size: u64,
    /// The address of whoever writes to it.
    lock_owner: Option<String>,
    /// Oldest first.
    snapshots: Vec<Snapshot>,
}

/// An attached volume.
#[derive(Serialize)]
struct Attached {
    name: String,
    pid: u32,
    address: String,
    read_only: bool,
    /// As in `list --json`.
    state: String,
    /// As in `list --json`.
    waiting_since: Option<u64>,
    /// Why it failed, if it did.
    reason: Option<String>,
    /// What is known to be missing of it.
    damage: Option<String>,
    /// The volume's counters since it was attached.
    counters: BTreeMap<String, u64>,
}

/// Needs no key: tells what the header says, which only a successful `attach` or `check` confirms.
pub fn run(options: &Info, quiet: bool) -> Result<(), Failure> {
    let location = Location::find(&options.volume)?;
    let header = location.header_file()?.load()?;
    let facts = facts(&location, &header, quiet || options.json)?;
    if options.json { output::say_json(&facts) } else { print(&facts) }
}

fn facts(location: &Location, header: &Header, quiet: bool) -> Result<Facts, Failure> {
    let store = location.open_unlocked()?;
    let inspection = Volume::inspect(&*store, header.payload())?;
    let (cipher, layout) = cipher_and_layout(header.payload());
    let registered = location.attached();
    let health = registered.as_ref().filter(|registered| registered.alive).and_then(list::health);
    let implementation = match &health {
        Some(health) => Some(health.implementation.clone()),
        None => implementation(header.payload()),
    };
    let attached = registered.and_then(|registered| attached(registered, health));
    let (stored, image) = match location {
        Location::File(path) => (stored(path), None),
        Location::Image(image) => (None, Some(image_facts(image)?)),
    };
    let (kind, authenticated, fold, sector_size, offset, lineage) = match header.payload() {
        Payload::Plain(plain) => {
            (if header.is_luks1() { "luks1" } else { "luks2" }, false, false, plain.sector_size, plain.offset, None)
        }
        Payload::Sealed(sealed) => (
            "sealed",
            sealed.cipher.is_authenticated(),
            sealed.fold,
            SECTOR_SIZE as u32,
            sealed.offset,
            Some(sealed.lineage.to_string()),
        ),
    };
    Ok(Facts {
        volume: location.to_string(),
        uuid: header.uuid().to_owned(),
        label: header.label().map(str::to_owned),
        kind,
        cipher,
        implementation,
        authenticated,
        layout,
        fold,
        sector_size,
        offset,
        size: inspection.size,
        clean: inspection.clean,
        sectors: if fold { forms(&*store, location, header, quiet)? } else { None },
        stored,
        lineage,
        key_slots: slots(header),
        image,
        attached,
    })
}

/// Reads every seal, which is 1.2 % of what is stored.
fn forms(store: &dyn Store, location: &Location, header: &Header, quiet: bool) -> Result<Option<Forms>, Failure> {
    let mut progress = Progress::new(&location.to_string(), false, quiet);
    let forms = Volume::sector_forms(store, header.payload(), &mut |done, total| {
        progress.update(done * OBJECT_SIZE, total * OBJECT_SIZE);
    });
    progress.finish();
    Ok(forms?.map(|forms| Forms { folded: forms.folded, plain: forms.plain, zero: forms.zero }))
}

/// What would run the cipher. That depends on the cipher and this machine alone, so that any key tells.
fn implementation(payload: &Payload) -> Option<String> {
    let Payload::Sealed(sealed) = payload else { return None };
    let key = VolumeKey::generate().ok()?;
    let context = KeyContext { cipher: sealed.cipher, lineage: sealed.lineage, context: "", epoch: 0 };
    Some(sector_sealer(&key, &context, sealed.fold).implementation().to_owned())
}

fn attached(registered: Registered, health: Option<Health>) -> Option<Attached> {
    let state = list::state(&registered, health.as_ref());
    let entry = registered.entry?;
    let waiting_since = health.as_ref().and_then(|health| health.waiting_since);
    let (reason, damage, counters) =
        health.map(|health| (health.reason, health.damage, health.counters)).unwrap_or_default();
    Some(Attached {
        waiting_since,
        name: entry.name,
        pid: entry.pid,
        address: entry.address,
        read_only: entry.read_only || state == FAILED,
        state,
        reason,
        damage,
        counters,
    })
}

fn image_facts(location: &ImageLocation) -> Result<ImageFacts, Failure> {
    let image = location.whole_image(OpenMode::ReadOnly)?;
    let facts = || -> Result<ImageFacts, RadosError> {
        Ok(ImageFacts {
            cluster: location.cluster.fsid()?,
            pool: location.name.pool.clone(),
            namespace: location.name.namespace.clone(),
            name: location.name.image.clone(),
            id: image.id()?,
            size: image.size()?,
            lock_owner: image.lock_owner()?,
            snapshots: image.snapshots()?.into_iter().map(Snapshot::from).collect(),
        })
    };
    facts().map_err(|error| location.failure(error))
}

/// Bytes that a file takes on its file system. A device takes what it has.
fn stored(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    // st_blocks counts 512 bytes whatever the file system's block (stat(2)).
    (!metadata.file_type().is_block_device()).then(|| metadata.blocks() * 512)
}

fn kind_story(kind: &str) -> &str {
    match kind {
        "luks2" => "LUKS2, as cryptsetup makes it",
        "luks1" => "LUKS1, as cryptsetup made it",
        other => other,
    }
}

fn print(facts: &Facts) -> Result<(), Failure> {
    let mut rows = vec![
        ("Volume", facts.volume.clone()),
        ("UUID", facts.uuid.clone()),
        ("Label", facts.label.clone().unwrap_or_else(|| "-".to_owned())),
        ("Kind", kind_story(facts.kind).to_owned()),
        ("Size", format!("{} ({} bytes)", ByteSize(facts.size), facts.size)),
        ("Cipher", format!("{}{}", facts.cipher, if facts.authenticated { "" } else { " (not authenticated)" })),
        ("Run by", facts.implementation.clone().unwrap_or_else(|| "-".to_owned())),
        ("Layout", format!("{}{}", facts.layout, if facts.fold { ", folding" } else { "" })),
        ("Data at", ByteSize(facts.offset).to_string()),
    ];
    if facts.sector_size != SECTOR_SIZE as u32 {
        rows.push(("Sector", format!("{} bytes", facts.sector_size)));
    }
    if let Some(stored) = facts.stored {
        rows.push(("Stored", format!("{:.1} MiB", stored as f64 / f64::from(1 << 20))));
    }
    if let Some(image) = &facts.image {
        let namespace =
            if image.namespace.is_empty() { String::new() } else { format!(", namespace {}", image.namespace) };
        rows.push(("Image", format!("{} in pool {}{namespace}, id {}", image.name, image.pool, image.id)));
        rows.push(("Locked by", image.lock_owner.clone().unwrap_or_else(|| "nobody".to_owned())));
        let names: Vec<&str> = image.snapshots.iter().map(|snapshot| &*snapshot.name).collect();
        rows.push(("Snapshots", if names.is_empty() { "none".to_owned() } else { names.join(", ") }));
    }
    if let Some(forms) = &facts.sectors {
        let written = forms.folded + forms.plain;
        let share = if written == 0 {
            "nothing written yet".to_owned()
        } else {
            format!("{:.1} % of {written} written sectors", forms.folded as f64 * 100.0 / written as f64)
        };
        rows.push(("Folded", share));
    }
    if !facts.clean && facts.attached.is_none() {
        rows.push(("Closed", "not in order; the next attach brings it up to date".to_owned()));
    }
    match &facts.attached {
        None => rows.push(("Attached", "no".to_owned())),
        Some(attached) => {
            let how = if attached.read_only { ", read-only" } else { "" };
            rows.push((
                "Attached",
                format!("{} at {}{how} (process {})", attached.name, attached.address, attached.pid),
            ));
            let reason = attached.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
            rows.push(("State", format!("{}{reason}", attached.state)));
            rows.extend(attached.waiting_since.map(|since| ("Waiting", list::waiting_story(since))));
            rows.extend(attached.damage.iter().map(|damage| ("Damage", damage.clone())));
            let counters = attached.counters.iter().map(|(name, count)| format!("{count} {}", name.replace('_', " ")));
            rows.push(("Counters", counters.collect::<Vec<_>>().join(", ")));
        }
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![format!("{name}:"), value]).collect();
    output::say(&output::table(&rows))?;
    output::say(&format!("\n{}", slot_table(&facts.key_slots)))
}
