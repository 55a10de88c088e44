//! The operations: each returns images and snapshots, and what a disk on them must hold.

use crate::disk::{Content, Disk};

/// What must be where, afterwards.
type Copies = Vec<(String, Content)>;
/// What is done.
pub type Operation = fn(&mut Disk<'_>) -> Copies;

/// What images are given that `rbd` makes by itself, lest it gives them an object map.
pub const FEATURES: &str = "--image-feature layering,exclusive-lock,deep-flatten";

/// The rows of the table.
pub const OPERATIONS: [(&str, Operation); 16] = [
    ("`rbd snap create`, the image written, the snapshot read", snapshot),
    ("`rbd snap rollback`", rollback),
    ("`rbd cp`", copy),
    ("`rbd deep cp`, the copy and its snapshot", deep_copy),
    ("`rbd export` and `import`", export),
    ("`rbd export --export-format 2` and `import`, with a snapshot", export_with_snapshots),
    ("`rbd export-diff` and `import-diff`, from nothing and from a snapshot", differences),
    ("`rbd migration prepare`, `execute`, `commit`, to another pool", migration),
    ("`rbd clone`, read through", clone),
    ("`rbd clone`, written: copy-up by Sealdisk", clone_written),
    ("`rbd clone`, then `rbd flatten`", clone_flattened),
    ("`rbd clone`, a snapshot, written, then `rbd flatten`: all of them, and the parent", clone_of_all_kinds),
    ("`rbd sparsify`, with an object of zeros, and with erasure-coded data", sparsify),
    ("`rbd resize`: grown, and shrunk to what it was", grow_and_shrink),
    ("`rbd mirror image demote` and `promote`", demote_and_promote),
    ("`rbd trash mv` and `restore`", trash),
];

fn snapshot(disk: &mut Disk<'_>) -> Copies {
    let image = disk.image.clone();
    disk.rbd(&format!("snap create --no-progress {image}@s"));
    let before = disk.change(&image);
    vec![(format!("{image}@s"), before), (image, disk.content.clone())]
}

fn rollback(disk: &mut Disk<'_>) -> Copies {
    let (image, past) = snapshot(disk).remove(0);
    disk.rbd(&format!("snap rollback --no-progress {image}"));
    vec![(disk.image.clone(), past)]
}

fn copy(disk: &mut Disk<'_>) -> Copies {
    let copy = disk.elsewhere("copy");
    disk.rbd(&format!("cp --no-progress {FEATURES} {} {copy}", disk.image));
    vec![(copy, disk.content.clone())]
}

fn deep_copy(disk: &mut Disk<'_>) -> Copies {
    let past = snapshot(disk).remove(0).1;
    let copy = disk.elsewhere("copy");
    disk.rbd(&format!("deep cp --no-progress {FEATURES} {} {copy}", disk.image));
    vec![(copy.clone(), disk.content.clone()), (format!("{copy}@s"), past)]
}

fn export(disk: &mut Disk<'_>) -> Copies {
    let (file, copy) = (disk.file("exported"), disk.beside("imported"));
    disk.rbd(&format!("export --no-progress {} {}", disk.image, file.display()));
    disk.rbd(&format!("import --no-progress {} {} {copy}", disk.options(), file.display()));
    vec![(copy, disk.content.clone())]
}

fn export_with_snapshots(disk: &mut Disk<'_>) -> Copies {
    let past = snapshot(disk).remove(0).1;
    let (file, copy) = (disk.file("exported"), disk.beside("imported"));
    disk.rbd(&format!("export --no-progress --export-format 2 {} {}", disk.image, file.display()));
    disk.rbd(&format!("import --no-progress --export-format 2 {FEATURES} {} {copy}", file.display()));
    vec![(copy.clone(), disk.content.clone()), (format!("{copy}@s"), past)]
}

fn differences(disk: &mut Disk<'_>) -> Copies {
    let past = snapshot(disk).remove(0).1;
    disk.rbd(&format!("snap create --no-progress {}@t", disk.image));
    let (first, second, copy) = (disk.file("first"), disk.file("second"), disk.elsewhere("copy"));
    disk.rbd(&format!("export-diff --no-progress {}@s {}", disk.image, first.display()));
    disk.rbd(&format!("export-diff --no-progress --from-snap s {}@t {}", disk.image, second.display()));
    disk.rbd(&format!("create {copy} --size {}B {}", disk.image_size(), disk.options()));
    disk.rbd(&format!("import-diff --no-progress {} {copy}", first.display()));
    disk.rbd(&format!("import-diff --no-progress {} {copy}", second.display()));
    vec![(format!("{copy}@s"), past), (format!("{copy}@t"), disk.content.clone()), (copy, disk.content.clone())]
}

fn migration(disk: &mut Disk<'_>) -> Copies {
    let past = snapshot(disk).remove(0).1;
    let place = disk.elsewhere("migrated");
    disk.rbd(&format!("migration prepare {FEATURES} {} {place}", disk.image));
    disk.rbd(&format!("migration execute --no-progress {place}"));
    disk.rbd(&format!("migration commit --no-progress {place}"));
    vec![(place.clone(), disk.content.clone()), (format!("{place}@s"), past)]
}

/// A clone of a new snapshot `c`, in another pool.
pub fn clone_of(disk: &Disk<'_>) -> String {
    let child = disk.elsewhere("clone");
    disk.rbd(&format!("snap create --no-progress {}@c", disk.image));
    disk.rbd(&format!("clone --rbd-default-clone-format 2 {FEATURES} {}@c {child}", disk.image));
    child
}

fn clone(disk: &mut Disk<'_>) -> Copies {
    vec![(clone_of(disk), disk.content.clone())]
}

fn clone_written(disk: &mut Disk<'_>) -> Copies {
    let child = clone_of(disk);
    let before = disk.change(&child);
    vec![(child, disk.content.clone()), (disk.image.clone(), before)]
}

fn clone_flattened(disk: &mut Disk<'_>) -> Copies {
    let child = clone_of(disk);
    disk.rbd(&format!("flatten --no-progress {child}"));
    vec![(child, disk.content.clone())]
}

fn clone_of_all_kinds(disk: &mut Disk<'_>) -> Copies {
    let child = clone_of(disk);
    disk.rbd(&format!("snap create --no-progress {child}@s"));
    let before = disk.change(&child);
    disk.rbd(&format!("flatten --no-progress {child}"));
    vec![
        (format!("{child}@s"), before.clone()),
        (child, disk.content.clone()),
        (format!("{}@c", disk.image), before.clone()),
        (disk.image.clone(), before),
    ]
}

fn sparsify(disk: &mut Disk<'_>) -> Copies {
    let mut coded = disk.coded("ops-data");
    let disks = std::iter::once(disk).chain(&mut coded);
    let sparsify = |disk: &mut Disk<'_>| {
        disk.clear_an_object();
        disk.rbd(&format!("sparsify --no-progress {}", disk.image));
        (disk.image.clone(), disk.content.clone())
    };
    disks.map(sparsify).collect()
}

fn grow_and_shrink(disk: &mut Disk<'_>) -> Copies {
    let size = disk.image_size();
    disk.rbd(&format!("resize --no-progress --size {}B {}", size + (3 << 20), disk.image));
    disk.rbd(&format!("resize --no-progress --allow-shrink --size {size}B {}", disk.image));
    vec![(disk.image.clone(), disk.content.clone())]
}

fn demote_and_promote(disk: &mut Disk<'_>) -> Copies {
    disk.rbd(&format!("mirror image enable {} snapshot", disk.image));
    disk.rbd(&format!("mirror image demote {}", disk.image));
    disk.rbd(&format!("mirror image promote {}", disk.image));
    vec![(disk.image.clone(), disk.content.clone())]
}

fn trash(disk: &mut Disk<'_>) -> Copies {
    let id = disk.id();
    disk.rbd(&format!("trash mv {}", disk.image));
    disk.rbd(&format!("trash restore {}/{id}", disk.pool()));
    vec![(disk.image.clone(), disk.content.clone())]
}
