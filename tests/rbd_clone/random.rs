//! Random operations on a family of images, by a store and by librbd, and what each image and snapshot must then hold.

use std::sync::Arc;

use sealdisk_rados::RbdStore;
use sealdisk_store::{Choices, ReadExtent, Store, WriteExtent};
use sealdisk_units::StoreRange;
use support::Random;
use support::ceph::Pool as Kind;
use support::images::{Images, assert_same, content};
use support::programs::eventually;

const OBJECT: u64 = 64 << 10;
const MOST: u64 = 24 * OBJECT;
const OPERATIONS: u32 = 150;
/// So many images, each a clone of one before.
const IMAGES: usize = 4;

/// An image with its snapshots, and what they hold.
struct Disk {
    image: String,
    content: Vec<u8>,
    snapshots: Vec<(String, Vec<u8>)>,
}

struct Family<'a> {
    images: &'a Images,
    disks: Vec<Disk>,
    /// The one that is open.
    current: usize,
    store: Option<Arc<RbdStore>>,
    random: Random,
    /// For names.
    count: u32,
    told: Vec<String>,
}

impl Family<'_> {
    fn store(&mut self) -> Arc<RbdStore> {
        let image = &self.disks[self.current].image;
        self.store.get_or_insert_with(|| self.images.open(image)).clone()
    }

    fn tell(&mut self, what: String) {
        self.told.push(format!("{}: {what}", self.disks[self.current].image));
    }

    /// A range that often begins or ends with an object.
    fn range(&mut self) -> Option<(u64, u64)> {
        let size = self.disks[self.current].content.len() as u64;
        let mut ends = [(); 2].map(|()| {
            let at = self.random.below(size + 1);
            match self.random.below(3) {
                0 => at / OBJECT * OBJECT,
                1 => at / 4096 * 4096,
                _ => at,
            }
        });
        ends.sort_unstable();
        let [start, end] = ends;
        let end = end.min(start + 3 * OBJECT);
        (start < end).then_some((start, end - start))
    }

    fn step(&mut self) {
        match self.random.below(26) {
            0..=7 => self.write(),
            8..=10 => self.zero(),
            11..=12 => self.read(),
            13..=14 => self.snapshot(),
            15 => self.remove_snapshot(),
            16 => self.resize(),
            17 => self.resize_by_others(),
            18 | 24 => self.flatten(),
            25 => self.sparsify(),
            19..=20 => self.clone(),
            21 => self.roll_back(),
            22 => self.librbd_writes(),
            _ => self.go_elsewhere(),
        }
    }

    fn write(&mut self) {
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let Some((offset, len)) = self.range() else { continue };
            let apart = |(at, bytes): &(u64, Vec<u8>)| offset + len <= *at || at + bytes.len() as u64 <= offset;
            if pieces.iter().all(apart) {
                let mut bytes = vec![0; len as usize];
                self.random.fill(&mut bytes);
                pieces.push((offset, bytes));
            }
        }
        let store = self.store();
        let extents: Vec<_> = pieces.iter().map(|(offset, buf)| WriteExtent { offset: *offset, buf }).collect();
        self.tell(format!("write {:?}", extents.iter().map(WriteExtent::range).collect::<Vec<_>>()));
        store.write(&extents).unwrap();
        for (offset, bytes) in pieces {
            self.disks[self.current].content[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn zero(&mut self) {
        let Some((offset, len)) = self.range() else { return };
        self.tell(format!("zero {offset}+{len}"));
        self.store().zero(StoreRange::new(offset, len)).unwrap();
        self.disks[self.current].content[offset as usize..][..len as usize].fill(0);
    }

    fn read(&mut self) {
        let Some((offset, len)) = self.range() else { return };
        self.tell(format!("read {offset}+{len}"));
        let mut found = vec![0xee; len as usize];
        self.store().read(&mut [ReadExtent { offset, buf: &mut found }]).unwrap();
        assert_same(&found, &self.disks[self.current].content[offset as usize..][..len as usize], "read");
    }

    fn snapshot(&mut self) {
        self.count += 1;
        let name = format!("s{}", self.count);
        self.tell(format!("snapshot {name}"));
        let disk = &mut self.disks[self.current];
        self.images.rbd(&format!("snap create --no-progress {}@{name}", disk.image));
        disk.snapshots.push((name, disk.content.clone()));
    }

    fn remove_snapshot(&mut self) {
        let disk = &mut self.disks[self.current];
        if disk.snapshots.is_empty() {
            return;
        }
        // If it has clones it goes to the trash.
        let (name, _) = disk.snapshots.remove(self.random.below(disk.snapshots.len() as u64) as usize);
        self.images.rbd(&format!("snap rm --no-progress {}@{name}", disk.image));
        self.tell(format!("remove snapshot {name}"));
    }

    fn new_size(&mut self) -> u64 {
        let size = self.random.below(MOST) + 1;
        if self.random.one_in(2) { size.next_multiple_of(OBJECT) } else { size }
    }

    fn resize(&mut self) {
        let size = self.new_size();
        self.tell(format!("resize to {size}"));
        self.store().resize(size).unwrap();
        self.disks[self.current].content.resize(size as usize, 0);
    }

    fn resize_by_others(&mut self) {
        let (size, store) = (self.new_size(), self.store());
        self.tell(format!("resize to {size} by others"));
        let disk = &mut self.disks[self.current];
        if size == disk.content.len() as u64 {
            return;
        }
        self.images.rbd(&format!("resize --no-progress --allow-shrink --size {size}B {}", disk.image));
        eventually("the store has noticed", || store.size().unwrap() == size);
        disk.content.resize(size as usize, 0);
    }

    fn flatten(&mut self) {
        if self.store().image().parent().unwrap().is_some() {
            self.tell("flatten".into());
            self.images.rbd(&format!("flatten --no-progress {}", self.disks[self.current].image));
            self.check();
        }
    }

    /// Ceph looks for zeros and gives back their space, beside the open store.
    fn sparsify(&mut self) {
        self.tell("sparsify".into());
        self.store();
        self.images.rbd(&format!("sparsify --no-progress {}", self.disks[self.current].image));
    }

    /// Clones a snapshot, and goes on in the clone.
    fn clone(&mut self) {
        let disk = &self.disks[self.current];
        if self.disks.len() == IMAGES || disk.snapshots.is_empty() {
            return;
        }
        let (snapshot, content) = disk.snapshots[self.random.below(disk.snapshots.len() as u64) as usize].clone();
        let place = ["random-a", "random-b", "random-a/ns"][self.random.below(3) as usize];
        let image = format!("{place}/image{}", self.disks.len());
        let mut options = ["", "--data-pool random-data"][self.random.below(2) as usize].to_owned();
        if self.random.one_in(3) {
            options += " --image-feature layering,exclusive-lock";
        }
        self.tell(format!("clone {snapshot} to {image} {options}"));
        self.images.clone_snapshot(&format!("{}@{snapshot}", self.disks[self.current].image), &image, &options);
        self.store = None;
        self.current = self.disks.len();
        self.disks.push(Disk { image, content, snapshots: Vec::new() });
    }

    fn roll_back(&mut self) {
        if self.disks[self.current].snapshots.is_empty() {
            return;
        }
        let by_store = self.random.one_in(2);
        let store = by_store.then(|| self.store());
        let disk = &mut self.disks[self.current];
        let (name, content) = disk.snapshots[self.random.below(disk.snapshots.len() as u64) as usize].clone();
        match store {
            Some(store) => store.roll_back(&name).unwrap(),
            None => {
                self.store = None;
                self.images.rbd(&format!("snap rollback --no-progress {}@{name}", disk.image));
            }
        }
        disk.content = content;
        self.tell(format!("roll back to {name}"));
    }

    fn librbd_writes(&mut self) {
        self.store = None;
        let Some((offset, len)) = self.range() else { return };
        let disk = &mut self.disks[self.current];
        // QEMU has no names for namespaces that all its versions know.
        if disk.image.contains("/ns/") {
            return;
        }
        let byte = 1 + self.random.below(255) as u8;
        self.images.librbd_writes(&disk.image, offset, len, byte);
        disk.content[offset as usize..][..len as usize].fill(byte);
        self.tell(format!("librbd writes {offset}+{len}"));
    }

    fn go_elsewhere(&mut self) {
        self.store = None;
        self.current = self.random.below(self.disks.len() as u64) as usize;
        self.tell("open".into());
    }

    fn check(&mut self) {
        let all = self.disks.iter().flat_map(|disk| {
            let snapshots = disk.snapshots.iter().map(|(name, then)| (format!("{}@{name}", disk.image), then));
            snapshots.chain([(disk.image.clone(), &disk.content)])
        });
        let images = self.images;
        // Ceph's program mostly waits.
        for some in all.collect::<Vec<_>>().chunks(4) {
            std::thread::scope(|scope| {
                for (image, expected) in some {
                    scope.spawn(move || {
                        assert_same(&images.by_librbd(image), expected, &format!("{image} by librbd"));
                        assert_same(&images.by_store(image), expected, image);
                    });
                }
            });
        }
        let found = content(&*self.store());
        assert_same(&found, &self.disks[self.current].content, "open");
    }
}

impl Drop for Family<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.told.join("\n"));
        }
    }
}

#[test]
fn a_family_of_images_is_what_librbd_says_it_is() {
    let images = Images::new(&[
        ("random-a", Kind::Replicated(2)),
        ("random-b", Kind::Replicated(2)),
        ("random-data", Kind::ErasureCoded),
    ]);
    images.rbd("namespace create random-a/ns");
    let random = Random::new(Random::seed_from_environment("a family of images"));
    let size = 20 * OBJECT + 5000;
    images.create("random-a/image0", size, OBJECT);
    let first = Disk { image: "random-a/image0".into(), content: vec![0; size as usize], snapshots: Vec::new() };
    let mut family =
        Family { images: &images, disks: vec![first], current: 0, store: None, random, count: 0, told: Vec::new() };
    // Something to share.
    (0..6).for_each(|_| family.write());
    family.snapshot();
    family.clone();
    for operation in 1..=OPERATIONS {
        family.step();
        if operation % 15 == 0 {
            family.check();
        }
    }
}
