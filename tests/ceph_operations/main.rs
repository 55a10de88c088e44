//! What operations of Ceph do to volumes. `docs/ceph-operations.md` has the tables that are measured here.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

mod attached;
mod disk;
mod operations;

use std::fs;
use std::path::Path;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, Payload, PlainPayload, SealedPayload};
use sealdisk_units::SECTOR_SIZE;
use support::Scratch;
use support::ceph::Pool;
use support::images::Images;
use support::payload;

use attached::ROWS;
use disk::{Disk, SIZE};
use operations::OPERATIONS;

/// A column of the table.
struct Layout {
    name: &'static str,
    payload: fn() -> Payload,
}

const LAYOUTS: [Layout; 6] = [
    Layout { name: "packed", payload: || sealed(LayoutName::Packed, false) },
    Layout { name: "packed, folded", payload: || sealed(LayoutName::Packed, true) },
    Layout { name: "object-end", payload: || sealed(LayoutName::ObjectEnd, false) },
    Layout { name: "omap", payload: || sealed(LayoutName::Omap, false) },
    Layout { name: "unaligned", payload: || sealed(LayoutName::Unaligned, false) },
    Layout { name: "length-preserving", payload: || Payload::Plain(PLAIN) },
];

fn sealed(layout: LayoutName, fold: bool) -> Payload {
    Payload::Sealed(SealedPayload { layout, ..payload(CipherName::Aegis256, fold) })
}

const PLAIN: PlainPayload = PlainPayload { offset: 0, size: Some(SIZE), sector_size: SECTOR_SIZE as u32, iv_tweak: 0 };

/// Whether a layout survives each of the operations. They leave images behind in the pools.
fn column(images: &Images, folder: &Path, number: usize) -> Vec<bool> {
    let survives = |(row, (name, operation)): (usize, &(&str, operations::Operation))| {
        let image = format!("ops/disk-{row}-{number}");
        let mut disk = Disk::new(images, folder, &image, (LAYOUTS[number].payload)());
        let copies = operation(&mut disk);
        assert!(!copies.is_empty(), "{name}");
        let losses = copies.iter().filter_map(|(copy, content)| disk.loss(copy, content));
        losses.inspect(|loss| println!("{name}: {loss}")).count() == 0
    };
    OPERATIONS.iter().enumerate().map(survives).collect()
}

#[test]
fn what_survives_which_operation_is_what_the_documentation_says() {
    let images = Images::new(&[
        ("ops", Pool::Replicated(2)),
        ("ops-other", Pool::Replicated(2)),
        ("ops-data", Pool::ErasureCoded),
    ]);
    images.rbd("mirror pool enable ops image");
    let folder = Scratch::new("sealdisk-operations-");
    // They mostly wait for Ceph and its programs.
    let columns: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let (images, folder) = (&images, folder.path());
        let columns = (0..LAYOUTS.len()).map(|number| scope.spawn(move || column(images, folder, number)));
        columns.collect::<Vec<_>>().into_iter().map(|column| column.join().unwrap()).collect()
    });
    let mut table = heading();
    for (row, (name, _)) in OPERATIONS.iter().enumerate() {
        let cells = columns.iter().map(|kept| if kept[row] { " yes |" } else { " **no** |" });
        table += &format!("| {name} |{}\n", cells.collect::<String>());
    }
    assert_documented(&table);
}

#[test]
fn what_happens_to_an_attached_volume_is_what_the_documentation_says() {
    let images = Images::new(&[("attached", Pool::Replicated(2)), ("attached-other", Pool::Replicated(2))]);
    let folder = Scratch::new("sealdisk-operations-");
    let mut table = "| operation | what happens |\n|---|---|\n".to_owned();
    std::thread::scope(|scope| {
        for (number, row) in ROWS.iter().enumerate() {
            table += &format!("| {} | {} |\n", row.operation, row.effect);
            let (images, folder) = (&images, folder.path());
            let show = move || {
                let client = images.of_another_client();
                let payload = sealed(LayoutName::Packed, number % 2 == 0);
                (row.show)(Disk::new(&client, folder, &format!("attached/disk-{number}"), payload));
            };
            // A thread's name is in the report of its failure.
            std::thread::Builder::new().name(row.operation.to_owned()).spawn_scoped(scope, show).unwrap();
        }
    });
    assert_documented(&table);
}

#[track_caller]
fn assert_documented(table: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ceph-operations.md");
    let told = fs::read_to_string(&page).unwrap();
    assert!(told.contains(table), "{} has another table than what happens:\n{table}", page.display());
}

/// What the tables rest on: a copy that is not the disk is found out.
#[test]
fn a_changed_copy_is_not_the_disk() {
    let images = Images::new(&[("ops-changed", Pool::Replicated(2))]);
    let folder = Scratch::new("sealdisk-operations-");
    let check = |Layout { name, payload }: &Layout| {
        let mut disk = Disk::new(&images, folder.path(), &format!("ops-changed/{name}").replace(", ", "-"), payload());
        let image = disk.image.clone();
        assert_eq!(disk.loss(&image, &disk.content), None, "{name}");
        images.rbd(&format!("snap create --no-progress {image}@s"));
        let before = disk.change(&image);
        assert!(disk.loss(&image, &before).is_some(), "{name}");
        assert!(disk.loss(&format!("{image}@s"), &disk.content).is_some(), "{name}");
        // Two bytes in the last object but one, which is full of sectors (without seals there may be only one).
        let place = disk.image_size().saturating_sub(2 * payload().object_size() - (1 << 20));
        images.librbd_writes(&image, place, 1, 0x5a);
        images.librbd_writes(&image, place + 1, 1, 0xa5);
        assert!(disk.loss(&image, &disk.content).is_some(), "{name}");
    };
    std::thread::scope(|scope| {
        for layout in &LAYOUTS {
            scope.spawn(|| check(layout));
        }
    });
}

fn heading() -> String {
    let names = LAYOUTS.map(|layout| layout.name).join(" | ");
    format!("| operation | {names} |\n|---|{}\n", "---|".repeat(LAYOUTS.len()))
}
