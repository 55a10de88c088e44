//! What operations of Ceph do to volumes, layout by layout. `docs/ceph-operations.md` has the table that is measured here.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

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

#[test]
fn the_table_in_the_documentation_is_what_happens() {
    let images = Images::new(&[
        ("ops", Pool::Replicated(2)),
        ("ops-other", Pool::Replicated(2)),
        ("ops-data", Pool::ErasureCoded),
    ]);
    images.rbd("mirror pool enable ops image");
    let folder = Scratch::new("sealdisk-operations-");
    let mut table = heading();
    for (number, (name, operation)) in OPERATIONS.iter().enumerate() {
        let mut row = format!("| {name} |");
        let measure = |column: usize| {
            let mut disk =
                Disk::new(&images, folder.path(), &format!("ops/disk-{number}-{column}"), (LAYOUTS[column].payload)());
            let copies = operation(&mut disk);
            assert!(!copies.is_empty(), "{name}");
            let losses = copies.iter().filter_map(|(copy, content)| disk.loss(copy, content));
            losses.inspect(|loss| println!("{name}: {loss}")).count() == 0
        };
        // They mostly wait for Ceph's programs.
        let kept: Vec<bool> = std::thread::scope(|scope| {
            let columns = (0..LAYOUTS.len()).map(|column| scope.spawn(move || measure(column)));
            columns.collect::<Vec<_>>().into_iter().map(|column| column.join().unwrap()).collect()
        });
        kept.into_iter().for_each(|kept| row += if kept { " yes |" } else { " **no** |" });
        println!("{row}");
        table += &format!("{row}\n");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ceph-operations.md");
    let told = fs::read_to_string(&page).unwrap();
    assert!(told.contains(&table), "{} has another table than what happens:\n{table}", page.display());
}

/// What the table rests on: a copy that is not the disk is found out.
#[test]
fn a_changed_copy_is_not_the_disk() {
    let images = Images::new(&[("ops-changed", Pool::Replicated(2))]);
    let folder = Scratch::new("sealdisk-operations-");
    for (number, Layout { name, payload }) in LAYOUTS.iter().enumerate() {
        let mut disk = Disk::new(&images, folder.path(), &format!("ops-changed/disk-{number}"), payload());
        let image = disk.image.clone();
        assert_eq!(disk.loss(&image, &disk.content), None, "{name}");
        images.rbd(&format!("snap create --no-progress {image}@s"));
        let before = disk.change(&image);
        assert!(disk.loss(&image, &before).is_some(), "{name}");
        assert!(disk.loss(&format!("{image}@s"), &disk.content).is_some(), "{name}");
        // Two bytes in the last object but one, which is full of sectors.
        let place = disk.image_size() - (5 << 20);
        images.librbd_writes(&image, place, 1, 0x5a);
        images.librbd_writes(&image, place + 1, 1, 0xa5);
        assert!(disk.loss(&image, &disk.content).is_some(), "{name}");
    }
}

fn heading() -> String {
    let names = LAYOUTS.map(|layout| layout.name).join(" | ");
    format!("| operation | {names} |\n|---|{}\n", "---|".repeat(LAYOUTS.len()))
}
