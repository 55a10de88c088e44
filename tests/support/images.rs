//! Images on the shared cluster, as `rbd` calls them: `pool/image`, `pool/namespace/image@snapshot`.

use std::sync::Arc;

use sealdisk_rados::{Cluster as Connection, ImageError, ImageName, RbdStore};
use sealdisk_store::{OpenMode, ReadExtent, Store, WriteExtent};

use crate::ceph::{Cluster, Pool};
use crate::programs::{run, succeed, tool};

/// What new images are given, in the words of `rbd`.
const FEATURES: &str = "--image-feature layering,exclusive-lock,deep-flatten";

/// Images in pools of the shared cluster.
pub struct Images {
    /// The cluster.
    pub cluster: &'static Cluster,
    /// A connection to it.
    pub connection: Arc<Connection>,
}

impl Images {
    /// Images in these new pools, of which the first may be the home of images.
    pub fn new(pools: &[(&str, Pool)]) -> Self {
        let cluster = Cluster::shared();
        pools.iter().for_each(|(name, kind)| cluster.create_pool(name, *kind));
        Self { cluster, connection: cluster.connect() }
    }

    /// Another client of the same images.
    pub fn of_another_client(&self) -> Self {
        Self { cluster: self.cluster, connection: self.cluster.connect() }
    }

    /// Runs `rbd`.
    #[track_caller]
    pub fn rbd(&self, command: &str) -> String {
        self.cluster.run(&format!("rbd {command}"))
    }

    /// Makes an image of so many bytes in objects of `object_size`.
    #[track_caller]
    pub fn create(&self, image: &str, size: u64, object_size: u64) {
        self.rbd(&format!("create {image} --size {size}B --object-size {object_size}B {FEATURES}"));
    }

    /// Makes a snapshot and clones it.
    #[track_caller]
    pub fn clone(&self, parent: &str, child: &str, options: &str) {
        self.rbd(&format!("snap create --no-progress {parent}"));
        self.clone_snapshot(parent, child, options);
    }

    /// Clones a snapshot.
    #[track_caller]
    pub fn clone_snapshot(&self, parent: &str, child: &str, options: &str) {
        let features = if options.contains("--image-feature") { "" } else { FEATURES };
        self.rbd(&format!("clone --rbd-default-clone-format 2 {features} {options} {parent} {child}"));
    }

    /// Opens an image as a store.
    pub fn try_open(&self, image: &str, mode: OpenMode) -> Result<Arc<RbdStore>, ImageError> {
        RbdStore::open(&self.connection, &name(image), mode).map(Arc::new)
    }

    /// Opens an image for writing, or a snapshot.
    #[track_caller]
    pub fn open(&self, image: &str) -> Arc<RbdStore> {
        let mode = if image.contains('@') { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        self.try_open(image, mode).unwrap()
    }

    /// All bytes of an image or a snapshot, as librbd reads them.
    #[track_caller]
    pub fn by_librbd(&self, image: &str) -> Vec<u8> {
        let output = run(self.cluster.program("rbd").args(["export", "--no-progress", image, "-"]));
        assert!(output.status.success(), "{image}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// All bytes of an image or a snapshot, as a store reads them.
    #[track_caller]
    pub fn by_store(&self, image: &str) -> Vec<u8> {
        content(&*self.try_open(image, OpenMode::ReadOnly).unwrap())
    }

    /// Has librbd write equal bytes to an image that nobody has open for writing.
    #[track_caller]
    pub fn librbd_writes(&self, image: &str, offset: u64, len: u64, byte: u8) {
        let mut qemu_io = tool("qemu-io", "qemu-utils");
        qemu_io.args(["-f", "raw", "-c", &format!("write -P {byte} {offset} {len}")]);
        succeed(qemu_io.arg(format!("rbd:{image}:conf={}", self.cluster.conf().display())));
    }
}

/// What an image is called, in parts.
pub fn name(image: &str) -> ImageName {
    let (place, snapshot) = image.split_once('@').map_or((image, None), |(image, snapshot)| (image, Some(snapshot)));
    let parts: Vec<&str> = place.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, namespace, image] => (pool, namespace, image),
        [pool, image] => (pool, "", image),
        _ => panic!("{image} has no pool"),
    };
    let [pool, namespace, image] = [pool, namespace, image].map(str::to_owned);
    ImageName { pool, namespace, image, snapshot: snapshot.map(str::to_owned) }
}

/// All bytes of a store.
#[track_caller]
pub fn content(store: &dyn Store) -> Vec<u8> {
    let mut bytes = vec![0xee; store.size().unwrap() as usize];
    store.read(&mut [ReadExtent { offset: 0, buf: &mut bytes }]).unwrap();
    bytes
}

/// Writes to a store, and to what it should be.
#[track_caller]
pub fn write_both(store: &dyn Store, model: &mut [u8], offset: usize, bytes: &[u8]) {
    store.write(&[WriteExtent { offset: offset as u64, buf: bytes }]).unwrap();
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Where two contents differ first, for people.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: size");
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        let last = found.iter().zip(expected).rposition(|(found, expected)| found != expected);
        panic!("{what}: byte {at:#x} is {:#x}, not {:#x}; the last wrong one is {last:#x?}", found[at], expected[at]);
    }
}
