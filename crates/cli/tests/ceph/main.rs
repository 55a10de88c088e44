//! The command line on images of a real cluster, with Ceph's own programs beside it.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod attaching;
mod formatting;
#[path = "../harness/mod.rs"]
mod harness;
mod interop;
mod key_slots;
mod killed;
mod layouts;
mod memory;
mod refusals;
mod snapshots;
mod waits;

use harness::{CHEAP, Place};
use sealdisk_rados::{Image, ObjectNames, ObjectRead, Pool};
use support::ceph::{Cluster, Pool as PoolKind};
use support::programs::{eventually, succeed};

/// A pool of a test's own in the shared cluster, and a place whose `sealdisk` finds it.
struct Images {
    cluster: &'static Cluster,
    place: Place,
    pool: &'static str,
}

impl Images {
    fn new(pool: &'static str) -> Self {
        let cluster = Cluster::shared();
        cluster.create_pool(pool, PoolKind::Replicated(2));
        let place = place_in(cluster);
        place.file("key", b"secret");
        place.file("other", b"another secret");
        Self { cluster, place, pool }
    }

    /// What `sealdisk` calls an image.
    fn name(&self, image: &str) -> String {
        format!("rbd:{}/{image}", self.pool)
    }

    /// Makes a volume of this size that the key file `key` opens.
    fn volume(&self, image: &str, size: &str) -> String {
        let name = self.name(image);
        self.place.ok(&[&["format", &name, "--size", size, "--key-file", "key"], &CHEAP[..]].concat());
        name
    }

    fn attach(&self, volume: &str) -> String {
        self.place.ok(&["attach", volume, "--as", "nbd", "--key-file", "key"])
    }

    fn rbd(&self, command: &str) -> String {
        self.cluster.run(&format!("rbd --pool {} {command}", self.pool))
    }

    /// What lies in an object of an image, or of one of its snapshots.
    fn object(&self, image: &str, snapshot: Option<&str>, number: u64, len: usize) -> Vec<u8> {
        let pool = std::sync::Arc::new(Pool::open(&self.cluster.connect(), self.pool, "").unwrap());
        let image = Image::open(&pool, image, None, true).unwrap();
        let names: ObjectNames = image.object_names().unwrap();
        let mut data = image.data_pool().unwrap();
        if let Some(snapshot) = snapshot {
            let found = image.snapshots().unwrap().into_iter().find(|found| found.name == snapshot).unwrap();
            data = data.at_snapshot(found.id).unwrap();
        }
        let mut bytes = vec![0; len];
        let mut reads = [ObjectRead::new(&names.name(number)).unwrap().extent(0, &mut bytes)];
        data.read(&mut reads);
        let [read] = reads;
        read.result.unwrap();
        bytes
    }
}

/// A place whose `sealdisk` finds a cluster.
fn place_in(cluster: &Cluster) -> Place {
    Place::new().with("CEPH_CONF", cluster.conf()).with("CEPH_ARGS", "")
}

/// Kills the process that serves what is attached under this name, and waits until it is dead.
fn kill(place: &Place, name: &str) {
    let pid = place.list().iter().find(|line| line["name"] == name).unwrap()["pid"].to_string();
    succeed(std::process::Command::new("kill").args(["-KILL", &pid]));
    eventually("the daemon is dead", || {
        place.list().iter().any(|line| line["name"] == name && line["state"] == "dead")
    });
}
