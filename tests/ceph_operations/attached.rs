//! The operations on an image whose volume is attached: what the documentation says of each, and what shows that it is so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sealdisk_rados::{Image, ImageEvent, Pool, Watch};
use sealdisk_store::OpenMode;
use sealdisk_units::SECTOR_SIZE;
use sealdisk_volume::{State, Volume, VolumeError};
use support::images::name;
use support::programs::{eventually, run, succeed};
use support::{Random, read, write};

use crate::disk::{Content, Disk, SIZE, lost};
use crate::operations::{FEATURES, clone_of};

/// A row of the table.
pub struct Row {
    pub operation: &'static str,
    pub effect: &'static str,
    /// Does the operation to a volume, whose client nobody else is, and fails if it has another effect.
    pub show: fn(Disk<'_>),
}

/// The rows of the table.
pub const ROWS: [Row; 13] = [
    Row {
        operation: "`rbd snap create`",
        effect: "Writing pauses until it is made. The snapshot is what a crash at that moment would have left, and opens \
                 read-only.",
        show: create_snapshot,
    },
    Row { operation: "`rbd snap rm`", effect: "Nothing.", show: remove_snapshot },
    Row { operation: "`rbd snap rollback`", effect: "Ceph refuses: the image is locked.", show: roll_back },
    Row { operation: "`rbd clone` of one of its snapshots", effect: "Nothing.", show: clone },
    Row {
        operation: "`rbd flatten` of a clone",
        effect: "Goes on beside reading and writing. Then the parent may be removed.",
        show: flatten,
    },
    Row {
        operation: "`rbd snap rm` of a clone's parent's snapshot, `rbd trash mv` of the parent",
        effect: "Nothing: the clone goes on reading it (clone format 2).",
        show: throw_the_parent_away,
    },
    Row {
        operation: "`rbd migration` of a clone's parent",
        effect: "Nothing is written any more, and what the parent has is not read. Attach again when it is committed. \
                 Before that, detach what is attached read-only, which is not told (Ceph warns of it too).",
        show: migrate_the_parent,
    },
    Row {
        operation: "`rbd resize`, larger",
        effect: "Nothing: the disk stays as large as it was attached.",
        show: grow,
    },
    Row {
        operation: "`rbd resize`, smaller",
        effect: "Cuts the volume off. What was behind the new end is lost, also if the image grows again.",
        show: shrink,
    },
    Row { operation: "`rbd sparsify`", effect: "Nothing, or what the table above says.", show: sparsify },
    Row {
        operation: "`rbd feature enable … object-map`",
        effect: "Nothing is written any more; the volume must be detached, and the feature turned off.",
        show: enable_object_map,
    },
    Row {
        operation: "`rbd migration prepare`, `rbd rm` of the image itself",
        effect: "Ceph refuses: the image is in use.",
        show: remove,
    },
    Row {
        operation: "`rbd lock rm`, `ceph osd blocklist add`",
        effect: "Not one byte more is written by who had the lock.",
        show: take_the_lock,
    },
];

/// The disk holds what it held, and can be written, as if nothing had happened.
#[track_caller]
fn goes_on(disk: &mut Disk<'_>, volume: &Volume) {
    assert_eq!(lost(volume, &disk.content), None);
    disk.overwrite(volume).unwrap();
    assert_eq!(lost(volume, &disk.content), None);
    assert_eq!((volume.status().state, volume.size()), (State::Healthy, SIZE));
}

/// And when it is attached the next time, it is the same.
#[track_caller]
fn nothing_has_happened(mut disk: Disk<'_>, image: &str, volume: Volume) {
    goes_on(&mut disk, &volume);
    volume.close().unwrap();
    assert_eq!(disk.loss(image, &disk.content), None);
}

/// Why the volume takes no write any more. It may hear of the reason some time later.
#[track_caller]
fn refusal(volume: &Volume) -> String {
    let mut refused = None;
    eventually("it takes no write any more", || {
        refused = write(volume, 0, &[7; SECTOR_SIZE]).and_then(|()| volume.flush()).err();
        refused.is_some()
    });
    refused.unwrap().to_string()
}

/// What a command of `rbd` complained of that must fail.
#[track_caller]
fn refused_by_ceph(disk: &Disk<'_>, command: &str) -> String {
    let output = run(disk.images.cluster.program("rbd").args(command.split(' ')));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{command}: {complaint}");
    complaint
}

fn snapshot_of(disk: &Disk<'_>) -> String {
    let snapshot = format!("{}@s", disk.image);
    disk.rbd(&format!("snap create --no-progress {snapshot}"));
    snapshot
}

/// Sectors all over the disk that are written in rounds.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    begun: AtomicU64,
    flushed: AtomicU64,
    writes: AtomicU64,
}

impl Load {
    fn sectors() -> impl Iterator<Item = u64> {
        (0..SIZE / SECTOR_SIZE as u64).step_by(41)
    }

    fn content(lba: u64, round: u64) -> Vec<u8> {
        let mut sector = vec![0; SECTOR_SIZE];
        Random::new(lba * 100_003 + round).fill(&mut sector);
        sector[..8].copy_from_slice(&round.to_le_bytes());
        sector
    }

    fn run(&self, volume: &Volume) -> Result<(), VolumeError> {
        for round in 1.. {
            self.begun.store(round, Ordering::SeqCst);
            for lba in Self::sectors() {
                write(volume, lba * SECTOR_SIZE as u64, &Self::content(lba, round))?;
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            volume.flush()?;
            self.flushed.store(round, Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) {
                break;
            }
        }
        Ok(())
    }

    fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::SeqCst)
    }

    fn stands_still(&self) -> bool {
        let before = self.writes.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(400));
        self.writes.load(Ordering::SeqCst) == before
    }
}

fn create_snapshot(disk: Disk<'_>) {
    let volume = disk.attach(&disk.image);
    // Somebody who has the image open, too, and takes time before there may be a snapshot.
    let place = name(&disk.image);
    let client = disk.images.of_another_client();
    let pool = Arc::new(Pool::open(&client.connection, &place.pool, "").unwrap());
    let slow = Watch::new(&Arc::new(Image::open(&pool, &place.image, None, false).unwrap())).unwrap();
    let load = Load::default();
    let bounds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| load.run(&volume).unwrap());
        eventually("it writes", || load.flushed() > 1);
        let least = load.flushed();
        let maker = scope.spawn(|| snapshot_of(&disk));
        while slow.next(Duration::from_secs(60)).expect("it is asked to be quiet") != ImageEvent::Quiesce {}
        eventually("writing pauses", || load.stands_still());
        assert!(!maker.is_finished());
        slow.is_quiet();
        maker.join().unwrap();
        let bounds = least..=load.begun.load(Ordering::SeqCst);
        let then = load.flushed();
        eventually("writing goes on", || load.flushed() > then + 1);
        load.stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        bounds
    });
    let past = disk.open(&format!("{}@s", disk.image), OpenMode::ReadOnly).unwrap();
    assert_eq!(past.status().state, State::ReadOnly);
    let mut expected: Content = Arc::clone(&disk.content);
    for lba in Load::sectors() {
        let mut sector = vec![0; SECTOR_SIZE];
        read(&past, lba * SECTOR_SIZE as u64, &mut sector).unwrap();
        let round = u64::from_le_bytes(sector[..8].try_into().unwrap());
        assert!(bounds.contains(&round), "sector {lba} is of round {round}, not of {bounds:?}");
        Arc::make_mut(&mut expected)[lba as usize * SECTOR_SIZE..][..SECTOR_SIZE]
            .copy_from_slice(&Load::content(lba, round));
    }
    assert_eq!(lost(&past, &expected), None);
    volume.close().unwrap();
}

fn remove_snapshot(disk: Disk<'_>) {
    let snapshot = snapshot_of(&disk);
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.rbd(&format!("snap rm --no-progress {snapshot}"));
    nothing_has_happened(disk, &image, volume);
}

fn roll_back(mut disk: Disk<'_>) {
    let snapshot = snapshot_of(&disk);
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.overwrite(&volume).unwrap();
    let refused = refused_by_ceph(&disk, &format!("snap rollback --no-progress {snapshot}"));
    assert!(refused.contains("Read-only file system"), "{refused}");
    nothing_has_happened(disk, &image, volume);
}

fn clone(mut disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.overwrite(&volume).unwrap();
    let (child, then) = (clone_of(&disk), Arc::clone(&disk.content));
    disk.overwrite(&volume).unwrap();
    assert_eq!(disk.loss(&child, &then), None);
    nothing_has_happened(disk, &image, volume);
}

fn flatten(mut disk: Disk<'_>) {
    let child = clone_of(&disk);
    let volume = disk.attach(&child);
    let (stop, parent) = (AtomicBool::new(false), disk.image.clone());
    let (images, rounds) = (disk.images, AtomicU64::new(0));
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                goes_on(&mut disk, &volume);
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        for command in ["flatten --no-progress CHILD", "snap rm --no-progress PARENT@c", "rm --no-progress PARENT"] {
            images.rbd(&command.replace("CHILD", &child).replace("PARENT", &parent));
        }
        let then = rounds.load(Ordering::SeqCst);
        eventually("it goes on without a parent", || rounds.load(Ordering::SeqCst) > then + 1 || user.is_finished());
        stop.store(true, Ordering::SeqCst);
        user.join().unwrap();
    });
    nothing_has_happened(disk, &child, volume);
}

fn throw_the_parent_away(disk: Disk<'_>) {
    let child = clone_of(&disk);
    let volume = disk.attach(&child);
    disk.rbd(&format!("snap rm --no-progress {}@c", disk.image));
    disk.rbd(&format!("trash mv {}", disk.image));
    nothing_has_happened(disk, &child, volume);
}

fn migrate_the_parent(disk: Disk<'_>) {
    let child = clone_of(&disk);
    let (volume, reader) = (disk.attach(&child), disk.open(&child, OpenMode::ReadOnly).unwrap());
    assert_eq!(lost(&reader, &disk.content), None);
    let place = disk.elsewhere("migrated");
    disk.rbd(&format!("migration prepare {FEATURES} {} {place}", disk.image));
    let refused = refusal(&volume);
    assert!(refused.contains("being migrated"), "{refused}");
    // In an object that the clone does not have, whatever was written before that.
    let (last, mut sector) = (SIZE - SECTOR_SIZE as u64, vec![0; SECTOR_SIZE]);
    let unread = read(&volume, last, &mut sector).unwrap_err().to_string();
    assert!(unread.contains("being migrated"), "{unread}");
    // Who only reads it hears nothing of it.
    assert_eq!(reader.status().state, State::ReadOnly);
    read(&reader, last, &mut sector).unwrap();
    drop((volume, reader));
    disk.rbd(&format!("migration execute --no-progress {place}"));
    let warned = refused_by_ceph(&disk, &format!("migration commit --no-progress {place}"));
    assert!(warned.contains("read-only"), "{warned}");
    disk.rbd(&format!("migration commit --no-progress --force {place}"));
    // The write that showed that nothing is written may have come before it was so.
    let mut content = Vec::clone(&disk.content);
    let attached = disk.attach(&child);
    read(&attached, 0, &mut content[..SECTOR_SIZE]).unwrap();
    assert!(content[..SECTOR_SIZE] == disk.content[..SECTOR_SIZE] || content[..SECTOR_SIZE] == [7; SECTOR_SIZE]);
    assert_eq!(lost(&attached, &content), None);
}

fn grow(disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.rbd(&format!("resize --no-progress --size {}B {image}", disk.image_size() + (9 << 20)));
    nothing_has_happened(disk, &image, volume);
}

fn shrink(disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    let size = disk.image_size();
    let last = SIZE - SECTOR_SIZE as u64;
    let mut sector = vec![0; SECTOR_SIZE];
    // In the last object, which has sectors on both sides of the cut.
    for to in [size.next_multiple_of(4 << 20) - (4 << 20) + (200 << 10), size] {
        disk.rbd(&format!("resize --no-progress --allow-shrink --size {to}B {image}"));
        eventually("what was cut off is gone", || read(&volume, last, &mut sector).is_err());
        read(&volume, 0, &mut sector).unwrap();
        assert_eq!(sector, disk.content[..SECTOR_SIZE]);
    }
    drop(volume);
    let volume = disk.attach(&image);
    assert!(read(&volume, last, &mut sector).is_err());
    read(&volume, 0, &mut sector).unwrap();
    assert_eq!(sector, disk.content[..SECTOR_SIZE]);
}

fn sparsify(disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.rbd(&format!("sparsify --no-progress {image}"));
    nothing_has_happened(disk, &image, volume);
}

fn enable_object_map(disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    disk.rbd(&format!("feature enable {image} object-map"));
    let refused = refusal(&volume);
    assert!(refused.contains("was given a feature"), "{refused}");
    let before = disk.images.by_librbd(&image);
    assert!(refusal(&volume).contains("was given a feature"));
    assert!(disk.images.by_librbd(&image) == before, "not a byte");
    drop(volume);
    let refused = disk.open(&image, OpenMode::ReadWrite).err().unwrap();
    assert!(refused.contains("rbd feature disable"), "{refused}");
    disk.rbd(&format!("feature disable {image} object-map"));
    let volume = disk.attach(&image);
    // Before it was noticed one sector may have been written.
    write(&volume, 0, &disk.content[..SECTOR_SIZE]).unwrap();
    nothing_has_happened(disk, &image, volume);
}

fn remove(disk: Disk<'_>) {
    let (image, volume) = (disk.image.clone(), disk.attach(&disk.image));
    let place = disk.elsewhere("moved");
    for (command, reason) in [
        (format!("migration prepare {FEATURES} {image} {place}"), "busy"),
        (format!("rm --no-progress {image}"), "image still has watchers"),
    ] {
        let refused = refused_by_ceph(&disk, &command);
        assert!(refused.contains(reason), "{command}: {refused}");
    }
    nothing_has_happened(disk, &image, volume);
}

fn take_the_lock(disk: Disk<'_>) {
    // Who is shut out stays so: each time another client.
    for by_removing in [true, false] {
        let client = disk.images.of_another_client();
        let robbed = disk.of_client(&client);
        let volume = robbed.attach(&disk.image);
        if by_removing {
            let locks = client.cluster.ask(&format!("rbd lock ls {}", disk.image));
            let [lock] = &locks.as_array().unwrap()[..] else { panic!("{locks}") };
            let [id, locker] = ["id", "locker"].map(|part| lock[part].as_str().unwrap());
            // The id has a space in it.
            succeed(client.cluster.program("rbd").args(["lock", "rm", &disk.image, id, locker]));
        } else {
            client.cluster.block(&client.connection.address().unwrap());
        }
        let before = client.by_librbd(&disk.image);
        let lost = write(&volume, 0, &[7; SECTOR_SIZE]).and_then(|()| volume.flush()).unwrap_err();
        assert!(lost.to_string().contains("lock"), "{lost}");
        drop(volume);
        assert!(client.by_librbd(&disk.image) == before, "not a byte");
        assert_eq!(disk.loss(&disk.image, &disk.content), None, "the next one has it as it was");
    }
}
