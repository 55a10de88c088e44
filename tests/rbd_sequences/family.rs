//! A volume's image, what was cloned of it, and what each of them and each of their snapshots must hold.

mod snapshots;

use std::sync::Arc;

use sealdisk_rados::{Image, Pool, RbdStore};
use sealdisk_store::{Choices, OpenMode, Store};
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{Space, Volume};
use support::images::{Images, name};
use support::programs::eventually;
use support::{Random, write, write_giving};

use crate::compare::{compare, compare_all, look_at};
use crate::content::Content;
use crate::kind::Kind;

/// What an image was at a moment.
#[derive(Clone)]
struct Snapshot {
    name: String,
    content: Content,
}

/// An image with its snapshots, and what they hold.
struct Disk {
    image: String,
    content: Content,
    /// The disk's size when it is next opened, if that is another one.
    next_size: Option<u64>,
    snapshots: Vec<Snapshot>,
}

/// An open volume, and the store that it is on.
struct Attached {
    volume: Volume,
    store: Arc<RbdStore>,
}

/// A snapshot that stays open while other things happen.
struct Past {
    image: String,
    volume: Volume,
    content: Content,
}

/// Images that began as one.
pub struct Family<'a> {
    kind: &'a Kind,
    /// By which others do things to the images.
    others: &'a Images,
    /// Our own connection, from which the lock can be taken away.
    own: Images,
    disks: Vec<Disk>,
    /// The disk that things are done to.
    current: usize,
    attached: Option<Attached>,
    past: Option<Past>,
    /// What everything is drawn from.
    pub random: Random,
    /// How many names were given.
    names: u32,
    /// What was done.
    pub told: Vec<String>,
}

impl<'a> Family<'a> {
    /// One new disk.
    pub fn new(others: &'a Images, kind: &'a Kind, size: u64, random: Random) -> Self {
        let mut family = Self {
            kind,
            others,
            own: others.of_another_client(),
            disks: Vec::new(),
            current: 0,
            attached: None,
            past: None,
            random,
            names: 0,
            told: Vec::new(),
        };
        let (image, coded) = (family.new_image(), family.random.one_in(3) && kind.may_be_coded());
        family.told.push(format!("create {image}, coded: {coded}, for {size} bytes: {kind:?}"));
        others.create(&format!("{image} {}", data_pool(coded)), kind.image_size(size), kind.object_size);
        kind.format(&family.own.open(&image), size);
        let content = Content::new(size);
        family.disks.push(Disk { image, content, next_size: None, snapshots: Vec::new() });
        family
    }

    fn new_image(&mut self) -> String {
        let place = ["sequences", "sequences/ns"][self.random.below(2) as usize];
        format!("{place}/{}-{}", self.kind.name, self.disks.len())
    }

    /// Notes what is about to be done.
    pub fn tell(&mut self, what: impl Into<String>) {
        self.told.push(format!("{}: {}", self.disks[self.current].image, what.into()));
    }

    fn disk(&mut self) -> &mut Disk {
        &mut self.disks[self.current]
    }

    fn image(&self) -> String {
        self.disks[self.current].image.clone()
    }

    fn content(&self) -> &Content {
        &self.disks[self.current].content
    }

    /// Bytes of the disk.
    pub fn size(&mut self) -> u64 {
        self.attached();
        self.content().size()
    }

    fn attached(&mut self) -> &Attached {
        let disk = &mut self.disks[self.current];
        self.attached.get_or_insert_with(|| {
            if let Some(size) = disk.next_size.take() {
                disk.content.resize(size);
            }
            let store = self.own.open(&disk.image);
            let volume = self.kind.open(store.clone(), &disk.image, false);
            assert_eq!(volume.size(), disk.content.size(), "the size");
            Attached { volume, store }
        })
    }

    /// Writes to the volume and to what it should be.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let volume = &self.attached().volume;
        match offset.is_multiple_of(2 * SECTOR_SIZE as u64) {
            true => write_giving(volume, offset, bytes.to_vec()).unwrap(),
            false => write(volume, offset, bytes).unwrap(),
        }
        self.disk().content.write(offset, bytes);
    }

    /// Makes a range zeros.
    pub fn zero(&mut self, range: ByteRange, space: Space) {
        self.attached().volume.zero(range, space).unwrap();
        self.disk().content.zero(range.offset()..range.end());
    }

    /// Compares a range, and what is said to be zeros without being read.
    pub fn read(&mut self, range: ByteRange) {
        let expected = self.content().read(range.offset()..range.end());
        let volume = &self.attached().volume;
        compare(volume, range.offset(), &expected, "read");
        let mut at = 0;
        for stretch in volume.allocation(range).unwrap() {
            let bytes = &expected[at..at + stretch.len as usize];
            assert!(!stretch.hole || bytes.iter().all(|byte| *byte == 0), "a hole at {at} of {range:?}");
            at += bytes.len();
        }
        assert_eq!(at, expected.len(), "the stretches of {range:?}");
    }

    /// Has everything survive that was written.
    pub fn flush(&mut self) {
        self.attached().volume.flush().unwrap();
    }

    /// Ends in order, if it is open.
    pub fn close(&mut self) {
        if let Some(Attached { volume, store }) = self.attached.take() {
            volume.close().unwrap();
            // The lock goes with the store.
            assert_eq!(Arc::strong_count(&store), 1);
        }
    }

    /// Ends without being told to.
    pub fn crash(&mut self) {
        if self.kind.is_volatile() {
            self.flush();
        }
        self.attached = None;
    }

    /// Somebody takes us for dead, and the lock from us, and goes on. What we write then must change nothing.
    ///
    /// An OSD learns who is shut out no later than from whoever goes on. Until then a write may still come through, as if it
    /// had come before.
    pub fn lose_the_lock(&mut self) {
        self.flush();
        let image = self.image_of_others(&self.image());
        image.break_lock(&image.lock_owner().unwrap().unwrap()).unwrap();
        let loser = self.attached.take();
        let past = self.past.take();
        let shut_out = std::mem::replace(&mut self.own, self.others.of_another_client());
        self.look_at_everything();
        let refused = loser.as_ref().map(|loser| write(&loser.volume, 0, &[0xbb]).and_then(|()| loser.volume.flush()));
        assert!(refused.is_some_and(|written| written.is_err()), "written without the lock");
        drop((loser, past, shut_out));
        self.look_at_everything();
    }

    /// Compares every byte of the open disk.
    fn look_at_everything(&mut self) {
        self.attached();
        let attached = self.attached.as_ref().expect("it was just opened");
        compare_all(&attached.volume, self.content(), "now");
    }

    fn image_of_others(&self, image: &str) -> Image {
        let name = name(image);
        let pool = Arc::new(Pool::open(&self.others.connection, &name.pool, &name.namespace).unwrap());
        Image::open(&pool, &name.image, None, false).unwrap()
    }

    /// Ceph looks for zeros and gives back their space, beside the open volume.
    pub fn sparsify(&mut self) {
        if !self.kind.survives_sparsify() {
            return;
        }
        self.tell("sparsify");
        self.attached();
        self.others.rbd(&format!("sparsify --no-progress {}", self.image()));
    }

    /// Gives disk and image another size, as our own command does.
    pub fn resize(&mut self, size: u64) {
        self.tell(format!("resize to {size}"));
        self.close();
        let image = self.image();
        self.kind.resize(self.own.open(&image), &image, size);
        let disk = self.disk();
        disk.content.resize(size);
        disk.next_size = None;
    }

    /// The image grows while it is open. The disk does not, until it is opened again.
    pub fn others_grow_the_image(&mut self, by: u64) {
        self.tell(format!("others grow the image by {by}"));
        let store = self.attached().store.clone();
        let size = store.image().size().unwrap() + by;
        self.others.rbd(&format!("resize --no-progress --size {size}B {}", self.image()));
        eventually("the store has noticed", || store.size().unwrap() == size);
        let next_size = self.kind.size_in(size);
        self.disk().next_size = next_size;
    }

    /// Goes on with another of the disks.
    pub fn go_elsewhere(&mut self) {
        self.close();
        self.current = self.random.below(self.disks.len() as u64) as usize;
        self.tell("open");
    }

    /// Looks at some places of the open disk.
    fn look_around(&mut self) {
        let mut random = self.random.clone();
        self.attached();
        let attached = self.attached.as_ref().expect("it was just opened");
        look_at(&attached.volume, self.content(), &mut random, "now");
    }

    /// Closes everything and compares it; and again, when no image has a parent any more.
    pub fn finish(&mut self) {
        self.close();
        self.past = None;
        self.compare_everything();
        let images: Vec<String> = self.disks.iter().map(|disk| disk.image.clone()).collect();
        let clones = images.into_iter().filter(|image| self.image_of_others(image).parent().unwrap().is_some());
        let clones: Vec<String> = clones.collect();
        for image in &clones {
            self.told.push(format!("flatten {image}"));
            self.others.rbd(&format!("flatten --no-progress {image}"));
        }
        if !clones.is_empty() {
            self.compare_everything();
        }
    }

    /// Compares every byte of every image and of every snapshot, as they are found when nothing is open.
    fn compare_everything(&mut self) {
        for disk in &mut self.disks {
            self.told.push(format!("compare {} and its snapshots", disk.image));
            if let Some(size) = disk.next_size.take() {
                disk.content.resize(size);
            }
            let open = |image: &str| {
                let store = self.own.try_open(image, OpenMode::ReadOnly).unwrap();
                self.kind.open(store, image, true)
            };
            let volume = open(&disk.image);
            compare_all(&volume, &disk.content, &disk.image);
            let report = volume.check(&mut |_, _| {}).unwrap();
            assert!(report.not_authentic.is_empty() && report.unreadable.is_empty(), "{}: {report:?}", disk.image);
            for Snapshot { name, content } in &disk.snapshots {
                let image = format!("{}@{name}", disk.image);
                compare_all(&open(&image), content, &image);
            }
        }
    }
}

/// What `rbd` is told of a new image.
fn data_pool(coded: bool) -> &'static str {
    if coded { "--data-pool sequences-data" } else { "" }
}
