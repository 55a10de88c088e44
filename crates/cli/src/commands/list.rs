//! `list`: what is attached.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::arguments::List;
use crate::control::{self, Answer, FAILED, Health, Request};
use crate::failure::Failure;
use crate::output;
use crate::registry::{Registered, Registry};
use crate::size::ByteSize;

/// How long a healthy daemon may take to say how it does.
const PATIENCE: Duration = Duration::from_secs(3);

/// One attached volume, as `list --json` shows it: an array of these. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct Line {
    /// The name it was attached under.
    name: String,
    /// The volume's absolute path.
    volume: String,
    /// Where clients find the disk: a path or an NBD URI.
    address: String,
    /// `nbd` or `fuse`.
    export: String,
    /// Usable size in bytes.
    size: u64,
    /// Whether writes are refused.
    read_only: bool,
    /// `healthy`; `read-only`; `failed`: takes no writes since a flush failed; `waiting for Ceph`; `attaching`; `ending`: was told to end and
    /// does as soon as the disk is not in use; `unresponsive`: its process does not answer; `dead`: its process was killed.
    state: String,
    /// Seconds since 1970 when an operation began that Ceph has not answered yet, if that is long ago.
    waiting_since: Option<u64>,
    /// Why it failed, or has not ended yet.
    reason: Option<String>,
    /// What is known to be missing of a volume whose journal is damaged, and which can be attached read-only at most.
    damage: Option<String>,
    /// The process that serves it.
    pid: u32,
    /// Seconds since 1970 when it was attached.
    since: u64,
    cipher: String,
    layout: String,
    /// What went wrong since it was attached is in this file.
    log: String,
}

/// Prints a table or JSON.
pub fn run(options: &List) -> Result<(), Failure> {
    let lines: Vec<Line> = Registry::of_this_user()?.all()?.into_iter().map(line).collect();
    if options.json {
        return output::say_json(&lines);
    }
    if lines.is_empty() {
        return Ok(());
    }
    let heading = ["NAME", "STATE", "SIZE", "DISK", "VOLUME"].map(str::to_owned).to_vec();
    let rows = lines.iter().map(|l| {
        vec![l.name.clone(), l.state.clone(), ByteSize(l.size).to_string(), l.address.clone(), l.volume.clone()]
    });
    output::say(&output::table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()))?;
    for line in &lines {
        if let Some(since) = line.waiting_since {
            output::say(&format!("{}: {}", line.name, waiting_story(since)))?;
        }
        for story in line.reason.iter().chain(&line.damage) {
            output::say(&format!("{}: {story}", line.name))?;
        }
    }
    Ok(())
}

/// What a wait means for people.
pub fn waiting_story(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(since, |now| now.as_secs());
    format!(
        "Ceph has not answered for {} seconds; nothing is lost, and `ceph status` tells what is wrong",
        now.saturating_sub(since)
    )
}

/// How the volume does, if its process lives and answers.
pub fn health(registered: &Registered) -> Option<Health> {
    match control::ask(&registered.room.control_socket(), Request::Status, PATIENCE) {
        Ok(Answer::Status(health)) => Some(health),
        _ => None,
    }
}

/// The word for how the volume does.
pub fn state(registered: &Registered, health: Option<&Health>) -> String {
    match health {
        _ if !registered.alive => "dead".to_owned(),
        _ if registered.entry.is_none() => "attaching".to_owned(),
        Some(health) => health.state.clone(),
        None => "unresponsive".to_owned(),
    }
}

fn line(registered: Registered) -> Line {
    let health = registered.alive.then(|| health(&registered)).flatten();
    let state = state(&registered, health.as_ref());
    let log = registered.room.log().display().to_string();
    let (waiting_since, reason, damage) =
        health.map(|health| (health.waiting_since, health.reason, health.damage)).unwrap_or_default();
    match registered.entry {
        Some(entry) => Line {
            name: registered.name,
            volume: entry.volume,
            address: entry.address,
            export: entry.export,
            size: entry.size,
            read_only: entry.read_only || state == FAILED,
            state,
            waiting_since,
            reason,
            damage,
            pid: entry.pid,
            since: entry.since,
            cipher: entry.cipher,
            layout: entry.layout,
            log,
        },
        None => Line {
            name: registered.name,
            volume: String::new(),
            address: String::new(),
            export: String::new(),
            size: 0,
            read_only: false,
            state,
            waiting_since,
            reason,
            damage,
            pid: 0,
            since: 0,
            cipher: String::new(),
            layout: String::new(),
            log,
        },
    }
}
