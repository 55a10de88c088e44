//! `snapshot`: what a volume was at a moment.

use sealdisk_rados::{ImageSnapshot, RadosError};
use sealdisk_store::OpenMode;
use serde::Serialize;

use crate::arguments::{Snapshot as Options, SnapshotList, SnapshotOf, SnapshotRollback, Volume};
use crate::failure::Failure;
use crate::location::{ImageLocation, Location};
use crate::output;
use crate::progress::Progress;
use crate::question::confirm;
use crate::size::ByteSize;
use crate::volume_name::VolumeName;

/// A snapshot, as `snapshot list --json` shows it: an array of these. Fields are added, never renamed or removed.
#[derive(Serialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// Its number, as in `rbd snap ls`.
    id: u64,
    /// Bytes of the image then.
    size: u64,
}

impl From<ImageSnapshot> for Snapshot {
    fn from(snapshot: ImageSnapshot) -> Self {
        Self { name: snapshot.name, id: snapshot.id, size: snapshot.size }
    }
}

/// Runs one of the commands.
pub fn run(snapshot: &Options, quiet: bool) -> Result<(), Failure> {
    match snapshot {
        Options::Create(options) => create(options),
        Options::List(options) => list(options),
        Options::Remove(options) => remove(options),
        Options::Rollback(options) => roll_back(options, quiet),
    }
}

/// Whoever has the volume attached writes nothing while the snapshot is made.
fn create(options: &SnapshotOf) -> Result<(), Failure> {
    let (image, snapshot) = find(&options.volume)?;
    let open = image.whole_image(OpenMode::ReadWrite)?;
    open.create_snapshot(&snapshot).map_err(|error| match error.errno() {
        Some(libc::EEXIST) => Failure::busy(format_args!("{image} exists already")),
        _ => image.failure(error),
    })
}

fn remove(options: &SnapshotOf) -> Result<(), Failure> {
    let (image, snapshot) = find(&options.volume)?;
    if let Some(holder) = Location::Image(image.clone()).attached().filter(|holder| holder.alive) {
        return Err(holder.in_the_way());
    }
    let open = image.whole_image(OpenMode::ReadWrite)?;
    open.remove_snapshot(&snapshot).map_err(|error| match error.errno() {
        Some(libc::EBUSY) => Failure::busy(format_args!(
            "{image} is protected, or has clones; see `rbd snap unprotect` and `rbd children`"
        )),
        _ => image.failure(error),
    })
}

fn list(options: &SnapshotList) -> Result<(), Failure> {
    let image = image(&options.volume)?;
    let found = image.whole_image(OpenMode::ReadOnly)?.snapshots().map_err(|error| image.failure(error))?;
    let found: Vec<Snapshot> = found.into_iter().map(Snapshot::from).collect();
    if options.json {
        return output::say_json(&found);
    }
    if found.is_empty() {
        return Ok(());
    }
    let heading = ["ID", "NAME", "IMAGE SIZE"].map(str::to_owned).to_vec();
    let rows = found.iter().map(|s| vec![s.id.to_string(), s.name.clone(), ByteSize(s.size).to_string()]);
    output::say(&output::table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()))
}

/// Refused while the volume is attached, here or elsewhere: its key, its caches and its journal are those of now.
fn roll_back(options: &SnapshotRollback, quiet: bool) -> Result<(), Failure> {
    let (image, snapshot) = find(&options.volume)?;
    let mut whole = image.clone();
    whole.name.snapshot = None;
    if let Some(holder) = Location::Image(whole.clone()).attached().filter(|holder| holder.alive) {
        return Err(holder.in_the_way());
    }
    let handle = whole.whole_image(OpenMode::ReadWrite)?;
    let known = handle.snapshots().map_err(|error| image.failure(error))?;
    if !known.iter().any(|known| known.name == snapshot) {
        return Err(Failure::device(format_args!("there is no {image}; see `sealdisk snapshot list {whole}`")));
    }
    whole.refuse_while_written()?;
    handle.lock().map_err(|error| image.failure(error))?;
    if !options.force {
        confirm(&format!("This makes {whole} what it was at {snapshot}; what was written since is lost."))?;
    }
    let size = handle.size().map_err(|error| image.failure(error))?;
    let mut progress = Progress::new(&image.to_string(), options.progress.progress_json, quiet);
    let rolled_back = handle.roll_back_with(&snapshot, &mut |done, total| {
        // librbd counts objects.
        let bytes = |objects: u64| (u128::from(size) * u128::from(objects) / u128::from(total.max(1))) as u64;
        progress.update(bytes(done), size);
    });
    if rolled_back.is_ok() {
        progress.update(size, size);
    }
    progress.finish();
    rolled_back.and_then(|()| handle.unlock()).map_err(|error: RadosError| image.failure(error))
}

/// The image, and the snapshot that was named.
fn find(volume: &Volume) -> Result<(ImageLocation, String), Failure> {
    let VolumeName::Image(name) = &volume.name else { return Err(not_an_image(volume)) };
    let Some(snapshot) = name.snapshot.clone() else {
        return Err(Failure::usage(format_args!("which snapshot? Say {}@SNAPSHOT", volume.name)));
    };
    Ok((ImageLocation::connect(name, &volume.ceph)?, snapshot))
}

fn image(volume: &Volume) -> Result<ImageLocation, Failure> {
    match &volume.name {
        VolumeName::Image(name) => ImageLocation::connect(name, &volume.ceph),
        VolumeName::Path(_) => Err(not_an_image(volume)),
    }
}

fn not_an_image(volume: &Volume) -> Failure {
    Failure::usage(format_args!(
        "{}: only images on Ceph have snapshots; of a file or device, use those of its file system or volume manager while \
         it is detached",
        volume.name
    ))
}
