//! What the Ceph libraries promise through our own face on them, on a real cluster; Ceph's own programs are the judges.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use sealdisk_rados::{
    Cluster as Connection, Credentials, Features, Image, ImageEvent, ObjectRead, ObjectWrite, Pool, RadosError,
    SnapshotContext, Watch,
};
use sealdisk_units::OBJECT_SIZE;
use support::ceph::{Cluster, Pool as PoolKind};
use support::programs::{run, succeed, tool};

const EEXIST: i32 = 17;
const ERANGE: i32 = 34;
const EOPNOTSUPP: i32 = 95;

/// A pool of the shared cluster, under a name of its own.
struct Fixture {
    cluster: &'static Cluster,
    connection: Arc<Connection>,
    pool: Arc<Pool>,
    name: &'static str,
}

impl Fixture {
    fn new(name: &'static str, kind: PoolKind) -> Self {
        let cluster = Cluster::shared();
        cluster.create_pool(name, kind);
        let connection = cluster.connect();
        let pool = Arc::new(Pool::open(&connection, name, "").unwrap());
        Self { cluster, connection, pool, name }
    }

    fn image(&self, name: &str) -> Arc<Image> {
        Image::create(&self.pool, name, 64 << 20, OBJECT_SIZE, None).unwrap();
        self.open(name)
    }

    fn open(&self, name: &str) -> Arc<Image> {
        Arc::new(Image::open(&self.pool, name, None, false).unwrap())
    }

    /// What librbd reads of an image or a snapshot.
    fn librbd_reads(&self, image: &str, offset: usize, len: usize) -> Vec<u8> {
        let mut export = self.cluster.program("rbd");
        let output = run(export.args(["export", "--no-progress", &format!("{}/{image}", self.name), "-"]));
        assert!(output.status.success(), "{output:?}");
        output.stdout[offset..offset + len].to_vec()
    }

    /// Has librbd write 8 equal bytes.
    fn librbd_writes(&self, image: &str, offset: usize, byte: u8) {
        let mut qemu_io = tool("qemu-io", "qemu-utils");
        qemu_io.args(["-f", "raw", "-c", &format!("write -P {byte} {offset} 8")]);
        succeed(qemu_io.arg(format!("rbd:{}/{image}:conf={}", self.name, self.cluster.conf().display())));
    }

    fn rbd(&self, command: &str) -> String {
        self.cluster.run(&format!("rbd --pool {} {command}", self.name))
    }
}

fn write(pool: &Pool, object: &str, make: impl FnOnce(ObjectWrite<'_>) -> ObjectWrite<'_>) -> Result<u64, RadosError> {
    let mut writes = [make(ObjectWrite::new(pool, object).unwrap())];
    pool.write(&mut writes);
    let [write] = writes;
    write.result
}

fn read(pool: &Pool, object: &str, offset: u64, len: usize) -> Result<Vec<u8>, RadosError> {
    let mut bytes = vec![0xee; len];
    let mut reads = [ObjectRead::new(object).unwrap().extent(offset, &mut bytes)];
    pool.read(&mut reads);
    let [read] = reads;
    read.result.map(|()| bytes)
}

fn errno<T: std::fmt::Debug>(result: Result<T, RadosError>) -> i32 {
    result.unwrap_err().errno().unwrap()
}

#[test]
fn an_object_is_changed_as_a_whole_or_not_at_all() {
    for (name, kind) in [("whole", PoolKind::Replicated(2)), ("whole-ec", PoolKind::ErasureCoded)] {
        let Fixture { pool, .. } = Fixture::new(name, kind);
        assert!(read(&pool, "a", 0, 10).unwrap_err().is_absent());
        write(&pool, "a", |op| op.create().write(0, &[1; 4096]).write(8192, &[2; 100])).unwrap();
        // What was never written, and what lies behind the end, is zeros.
        let bytes = read(&pool, "a", 4000, 5000).unwrap();
        assert_eq!(bytes, [vec![1; 96], vec![0; 4096], vec![2; 100], vec![0; 708]].concat());
        assert_eq!(read(&pool, "a", 1 << 20, 3).unwrap(), [0; 3]);
        assert!(read(&pool, "a", 0, 0).unwrap().is_empty());

        // One part that cannot be stops all of them.
        assert_eq!(errno(write(&pool, "a", |op| op.write(0, &[9; 10]).create())), EEXIST);
        assert!(write(&pool, "b", |op| op.assert_exists().write(0, &[9; 10])).unwrap_err().is_absent());
        assert!(read(&pool, "b", 0, 1).unwrap_err().is_absent());
        let version = write(&pool, "a", |op| op.assert_exists().zero(0, 4).zero(100, 0)).unwrap();
        assert_eq!(read(&pool, "a", 0, 5).unwrap(), [0, 0, 0, 0, 1]);
        write(&pool, "a", |op| op.assert_version(version).write(0, &[3])).unwrap();
        assert_eq!(errno(write(&pool, "a", |op| op.assert_version(version).write(0, &[4]))), ERANGE);
        assert_eq!(read(&pool, "a", 0, 1).unwrap(), [3]);

        write(&pool, "a", |op| op.truncate(1)).unwrap();
        assert_eq!(read(&pool, "a", 0, 2).unwrap(), [3, 0]);
        write(&pool, "a", |op| op.remove()).unwrap();
        assert!(write(&pool, "a", |op| op.remove()).unwrap_err().is_absent());
    }
}

#[test]
fn values_of_keys_come_and_go_with_the_bytes() {
    let Fixture { pool, .. } = Fixture::new("keys", PoolKind::Replicated(2));
    let pair = |key: u8| (vec![0, key], vec![key; 48]);
    write(&pool, "a", |op| op.write(0, &[1; 8]).set_keys(&[pair(1), pair(2), pair(3)])).unwrap();
    write(&pool, "a", |op| op.remove_keys(&[vec![0, 2]])).unwrap();
    let mut bytes = [0; 4];
    let mut reads = [ObjectRead::new("a").unwrap().extent(0, &mut bytes).keys([1, 2, 3, 4].map(|key| vec![0, key]))];
    pool.read(&mut reads);
    let [read] = reads;
    read.result.unwrap();
    assert_eq!(read.values, [pair(1), pair(3)]);
    assert_eq!(bytes, [1; 4]);

    let Fixture { pool, .. } = Fixture::new("no-keys", PoolKind::ErasureCoded);
    assert_eq!(errno(write(&pool, "a", |op| op.write(0, &[1]).set_keys(&[pair(1)]))), EOPNOTSUPP);
    assert!(self::read(&pool, "a", 0, 1).unwrap_err().is_absent(), "the bytes were not written either");
}

#[test]
fn many_objects_are_in_flight_at_once_and_each_has_its_own_result() {
    let Fixture { pool, .. } = Fixture::new("many", PoolKind::Replicated(2));
    let names: Vec<String> = (0..200).map(|number| format!("object {number}")).collect();
    let content = |number: usize| vec![number as u8; 4096 + number];
    let mut writes: Vec<_> = names
        .iter()
        .enumerate()
        .filter(|(number, _)| number % 7 != 0)
        .map(|(number, name)| ObjectWrite::new(&pool, name).unwrap().write(number as u64, &content(number)))
        .collect();
    pool.write(&mut writes);
    assert!(writes.iter().all(|write| write.result.is_ok()));

    let mut buffers: Vec<_> = (0..200).map(|number| vec![0xee; content(number).len()]).collect();
    let mut reads: Vec<_> = names
        .iter()
        .zip(&mut buffers)
        .enumerate()
        .map(|(number, (name, buf))| ObjectRead::new(name).unwrap().extent(number as u64, buf))
        .collect();
    pool.read(&mut reads);
    let results: Vec<_> = reads.into_iter().map(|read| read.result).collect();
    for (number, (result, buf)) in results.into_iter().zip(buffers).enumerate() {
        if number % 7 == 0 {
            assert!(result.unwrap_err().is_absent());
        } else {
            result.unwrap();
            assert!(buf == content(number));
        }
    }
}

#[test]
fn an_image_is_what_rbd_says_it_is() {
    let fixture = Fixture::new("images", PoolKind::Replicated(2));
    fixture.cluster.create_pool("images-data", PoolKind::ErasureCoded);
    fixture.image("plain");
    Image::create(&fixture.pool, "in-parts", (10 << 20) + 512, OBJECT_SIZE, Some("images-data")).unwrap();
    for (name, size) in [("plain", 64 << 20), ("in-parts", (10 << 20) + 512)] {
        let image = fixture.open(name);
        let said = fixture.cluster.ask(&format!("rbd info {}/{name}", fixture.name));
        assert_eq!((image.size().unwrap(), &said["size"]), (size, &size.into()));
        assert_eq!((image.object_size().unwrap(), &said["object_size"]), (4 << 20, &(4 << 20).into()));
        assert_eq!(said["id"], image.id().unwrap());
        assert!(!image.is_striped().unwrap());
        let features = image.features().unwrap();
        assert!(features.contains(Features::OF_NEW_IMAGES) && !features.contains(Features::OBJECT_MAP));
        // Where librbd finds what we write, and the reverse.
        let (names, data) = (image.object_names().unwrap(), image.data_pool().unwrap());
        assert!(names.name(1).starts_with(said["block_name_prefix"].as_str().unwrap()));
        write(&data, &names.name(1), |op| op.write(5, b"direct")).unwrap();
        assert_eq!(fixture.librbd_reads(name, (4 << 20) + 5, 8), b"direct\0\0");
        fixture.librbd_writes(name, (8 << 20) + 512, 7);
        assert_eq!(read(&data, &names.name(2), 511, 10).unwrap(), [0, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
        image.resize(1 << 20, false).unwrap_err();
        image.resize(1 << 20, true).unwrap();
        assert_eq!(fixture.cluster.ask(&format!("rbd info {}/{name}", fixture.name))["size"], 1 << 20);
        // Nobody can take an image away while it is open.
        assert!(Image::remove(&fixture.pool, name).is_err());
        drop(image);
        Image::remove(&fixture.pool, name).unwrap();
    }
    assert!(Image::open(&fixture.pool, "plain", None, false).err().unwrap().is_absent());
}

#[test]
fn whoever_lost_the_lock_writes_nothing_any_more() {
    let fixture = Fixture::new("fenced", PoolKind::Replicated(2));
    let image = fixture.image("disk");
    assert_eq!(image.lock_owner().unwrap(), None);
    image.lock().unwrap();
    assert!(image.is_locked_here().unwrap());
    let data = image.data_pool().unwrap();
    let object = image.object_names().unwrap().name(0);
    write(&data, &object, |op| op.write(0, b"mine")).unwrap();

    // The next one is refused as long as the first lives.
    let other = fixture.cluster.connect();
    let other_pool = Arc::new(Pool::open(&other, fixture.name, "").unwrap());
    let next = Image::open(&other_pool, "disk", None, false).unwrap();
    assert!(next.lock().is_err());
    let owner = next.lock_owner().unwrap().unwrap();
    assert!(fixture.connection.address().unwrap().contains(&owner), "the owner is told by its address");

    next.break_lock(&owner).unwrap();
    next.lock().unwrap();
    let next_data = next.data_pool().unwrap();
    write(&next_data, &object, |op| op.write(0, b"next")).unwrap();
    for attempt in [
        write(&data, &object, |op| op.write(0, b"late")),
        write(&data, &object, |op| op.remove()),
        write(&data, "another object", |op| op.create().write(0, b"late")),
    ] {
        assert!(attempt.unwrap_err().is_fenced());
    }
    assert_eq!(read(&next_data, &object, 0, 4).unwrap(), b"next");
    assert!(!image.is_locked_here().unwrap_or(false));
}

#[test]
fn a_snapshot_keeps_what_was_written_before_the_writers_were_quiet() {
    let fixture = Fixture::new("snapshots", PoolKind::Replicated(2));
    let image = fixture.image("disk");
    image.lock().unwrap();
    let watch = Watch::new(&image).unwrap();
    assert_eq!(image.snapshot_context().unwrap(), SnapshotContext::default());
    let mut data = image.data_pool().unwrap();
    let object = image.object_names().unwrap().name(0);
    let mut made = Vec::new();
    for generation in 1..=3u8 {
        write(&data, &object, |op| op.write(0, &[generation; 8])).unwrap();
        let name = format!("s{generation}");
        std::thread::scope(|scope| {
            let snapping = scope.spawn(|| fixture.rbd(&format!("snap create --no-progress disk@{name}")));
            let patience = Duration::from_secs(60);
            // Whoever makes it waits until the writers say that they are quiet.
            while watch.next(patience).expect("the image is about to be snapped") != ImageEvent::Quiesce {}
            assert_eq!(image.snapshots().unwrap().len(), made.len());
            watch.is_quiet();
            while watch.next(patience).expect("it was made") != ImageEvent::Unquiesce {}
            snapping.join().unwrap();
        });
        let snapshots = image.snapshots().unwrap();
        let newest = snapshots.last().unwrap();
        assert_eq!((newest.name.as_str(), newest.size), (name.as_str(), 64 << 20));
        let context = image.snapshot_context().unwrap();
        let ids: Vec<u64> = snapshots.iter().rev().map(|snapshot| snapshot.id).collect();
        assert_eq!((context.sequence, &context.snapshots), (newest.id, &ids));
        data = data.with_snapshots(&context).unwrap();
        made.push((newest.id, generation));
    }
    write(&data, &object, |op| op.write(0, &[9; 8])).unwrap();
    for (id, generation) in &made {
        assert_eq!(read(&data.at_snapshot(*id).unwrap(), &object, 0, 8).unwrap(), [*generation; 8]);
    }
    // librbd sees the same.
    assert_eq!(fixture.librbd_reads("disk@s2", 0, 8), [2; 8]);

    // The sequence goes on when snapshots go, which the list of them does not tell.
    let before = image.snapshot_context().unwrap().sequence;
    for generation in 1..=3 {
        fixture.rbd(&format!("snap rm --no-progress disk@s{generation}"));
    }
    while watch.next(Duration::from_secs(5)).is_some() {}
    let after = image.snapshot_context().unwrap();
    assert!(after.sequence >= before && after.snapshots.is_empty());
    let data = data.with_snapshots(&after).unwrap();
    write(&data, &object, |op| op.write(0, &[10; 8])).unwrap();
    drop(watch);

    image.create_snapshot("ours").unwrap();
    write(&data.with_snapshots(&image.snapshot_context().unwrap()).unwrap(), &object, |op| op.write(0, &[11; 8]))
        .unwrap();
    image.roll_back("ours").unwrap();
    assert_eq!(read(&data, &object, 0, 8).unwrap(), [10; 8]);
    image.remove_snapshot("ours").unwrap();
}

#[test]
fn a_clone_knows_its_parent_until_it_is_flattened() {
    let fixture = Fixture::new("clones", PoolKind::Replicated(2));
    let image = fixture.image("parent");
    image.create_snapshot("s").unwrap();
    assert_eq!(image.parent().unwrap(), None);
    fixture
        .rbd("clone --rbd-default-clone-format 2 --image-feature layering,exclusive-lock clones/parent@s clones/child");
    let child = fixture.open("child");
    let parent = child.parent().unwrap().unwrap();
    assert_eq!((parent.pool, parent.namespace.as_str()), (fixture.pool.id(), ""));
    assert_eq!((parent.image_id, parent.overlap), (image.id().unwrap(), 64 << 20));
    assert_eq!(parent.snapshot, image.snapshots().unwrap()[0].id);
    let by_id = Image::open_by_id(&fixture.pool, &image.id().unwrap()).unwrap();
    assert_eq!(by_id.object_names().unwrap().name(0), image.object_names().unwrap().name(0));
    drop(by_id);
    fixture.rbd("flatten --no-progress child");
    assert_eq!(fixture.open("child").parent().unwrap(), None);
}

#[test]
fn namespaces_are_apart() {
    let fixture = Fixture::new("spaces", PoolKind::Replicated(2));
    fixture.cluster.run("rbd namespace create spaces/one");
    let inside = Arc::new(Pool::open(&fixture.connection, "spaces", "one").unwrap());
    Image::create(&inside, "disk", 8 << 20, OBJECT_SIZE, None).unwrap();
    let image = Image::open(&inside, "disk", None, false).unwrap();
    let (data, object) = (image.data_pool().unwrap(), image.object_names().unwrap().name(0));
    write(&data, &object, |op| op.write(0, b"inside")).unwrap();
    assert!(read(&fixture.pool, &object, 0, 6).unwrap_err().is_absent());
    assert!(Image::open(&fixture.pool, "disk", None, true).err().unwrap().is_absent());
    assert_eq!(&fixture.librbd_reads("one/disk", 0, 6), b"inside");
}

#[test]
fn credentials_are_what_ceph_takes_for_such() {
    let fixture = Fixture::new("allowed", PoolKind::Replicated(2));
    let cluster = fixture.cluster;
    let keyring =
        cluster.create_user("guest", &[("mon", "profile rbd"), ("osd", "profile rbd-read-only pool=allowed")]);
    let conf = Some(cluster.conf());
    let guest = Credentials { conf: conf.clone(), id: Some("guest".into()), keyring: Some(keyring) };
    let pool = Pool::open(&Connection::connect(&guest).unwrap(), "allowed", "").unwrap();
    write(&fixture.pool, "a", |op| op.write(0, &[1])).unwrap();
    assert_eq!(errno(write(&pool, "a", |op| op.write(0, &[2]))), 1, "EPERM");

    let story = |credentials: &Credentials| Connection::connect(credentials).err().unwrap().to_string();
    let nobody = Credentials { conf: conf.clone(), id: Some("nobody".into()), keyring: None };
    assert!(story(&nobody).starts_with("connecting to Ceph as client.nobody: "), "{}", story(&nobody));
    let lost = Credentials { conf: Some("/nonexistent/ceph.conf".into()), ..Credentials::default() };
    assert_eq!(story(&lost), "reading /nonexistent/ceph.conf: No such file or directory (os error 2)");
    let odd = Credentials { conf, id: Some("a\0b".into()), keyring: None };
    assert!(story(&odd).contains("zero byte"));
    let missing = Pool::open(&fixture.connection, "no-such-pool", "").err().unwrap();
    assert_eq!(missing.to_string(), "opening pool no-such-pool: No such file or directory (os error 2)");
}
