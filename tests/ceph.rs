//! The cluster that other tests use does what they need of it, with Ceph's own clients.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use support::Random;
use support::ceph::{Cluster, Daemon, OSDS, Pool};
use support::programs::{eventually, run, succeed};

/// A file of a few objects' size, to be held against an image.
fn content(cluster: &Cluster, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 9 << 20];
    Random::new(1).fill(&mut bytes);
    fs::write(cluster.path(name), &bytes).unwrap();
    bytes
}

/// Makes an image of this content, written with these options.
fn import(cluster: &Cluster, options: &str) -> Vec<u8> {
    let bytes = content(cluster, "content");
    cluster.run(&format!("rbd import {} --no-progress {options}", cluster.path("content").display()));
    bytes
}

#[track_caller]
fn assert_holds(cluster: &Cluster, image: &str, bytes: &[u8]) {
    let output = run(cluster.program("rbd").args(["export", "--no-progress", image, "-"]));
    assert!(output.status.success() && output.stdout == bytes, "{image}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The processes that have to do with a cluster: all of them are told where it is.
fn processes(folder: &Path) -> Vec<String> {
    let named = folder.to_str().unwrap().as_bytes();
    let knows = |text: Vec<u8>| text.windows(named.len()).any(|part| part == named);
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let related = processes
        .filter(|process| ["environ", "cmdline"].iter().any(|file| fs::read(process.join(file)).is_ok_and(knows)));
    related.map(|process| fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn images_outlive_the_failures_of_any_daemon() {
    let mut cluster = Cluster::start();
    cluster.create_pool("copies", Pool::Replicated(3));
    cluster.create_pool("parts", Pool::ErasureCoded);
    let bytes = import(&cluster, "copies/whole");
    import(&cluster, "--data-pool parts copies/in-parts");
    let verify = |cluster: &Cluster| {
        assert_holds(cluster, "copies/whole", &bytes);
        assert_holds(cluster, "copies/in-parts", &bytes);
    };

    // An OSD dies in the middle of a load.
    cluster.run("rbd create --size 64M copies/load");
    let mut bench = cluster.program("rbd");
    bench.args("bench --io-type write --io-size 4K --io-pattern rand --io-total 8M copies/load".split(' '));
    let mut bench = bench.stdout(Stdio::null()).spawn().unwrap();
    cluster.server(Daemon::Osd(0)).kill();
    cluster.wait_until_down(0);
    verify(&cluster);
    cluster.restart(Daemon::Osd(0));
    cluster.wait_until_healthy();
    assert!(bench.wait().unwrap().success());

    // One that hangs holds up who needs it, until it goes on or the others give it up.
    cluster.server(Daemon::Osd(1)).pause();
    cluster.wait_until_down(1);
    verify(&cluster);
    cluster.server(Daemon::Osd(1)).resume();
    cluster.wait_until_healthy();

    cluster.server(Daemon::Monitor).kill();
    cluster.restart(Daemon::Monitor);
    cluster.wait_until_healthy();
    verify(&cluster);
}

#[test]
fn users_may_do_what_they_are_allowed_to() {
    let cluster = Cluster::shared();
    cluster.create_pool("theirs", Pool::Replicated(2));
    cluster.create_pool("others", Pool::Replicated(1));
    cluster.create_user("guest", &[("mon", "profile rbd"), ("osd", "profile rbd pool=theirs")]);
    cluster.run("rbd --id guest create --size 8M theirs/image");
    let refused = run(cluster.program("rbd").args(["--id", "guest", "create", "--size", "8M", "others/image"]));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Operation not permitted"), "{refused:?}");
}

#[test]
fn a_full_pool_holds_writers_up_until_it_has_room() {
    let cluster = Cluster::shared();
    cluster.create_pool("small", Pool::Replicated(3));
    let bytes = content(cluster, "large");
    succeed(cluster.program("rados").args(["--pool", "small", "put", "first"]).arg(cluster.path("large")));
    cluster.declare_full("small");
    let mut writer = cluster.program("rados");
    writer.args(["--pool", "small", "put", "second"]).arg(cluster.path("large"));
    let mut writer = writer.spawn().unwrap();
    // Time enough to be done, if it did not wait.
    std::thread::sleep(Duration::from_secs(2));
    assert!(writer.try_wait().unwrap().is_none());
    cluster.make_room("small");
    assert!(writer.wait().unwrap().success());
    let read = run(cluster.program("rados").args(["--pool", "small", "get", "second", "-"]));
    assert!(read.stdout == bytes);
}

#[test]
fn a_blocked_client_writes_no_more() {
    let cluster = Cluster::shared();
    cluster.create_pool("blocked", Pool::Replicated(3));
    cluster.run("rbd create --size 64M blocked/image");
    let mut bench = cluster.program("rbd");
    bench.args("bench --io-type write --io-size 4K --io-total 64G blocked/image".split(' '));
    let bench = bench.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let watchers = || cluster.ask("rbd status blocked/image")["watchers"].as_array().unwrap().clone();
    eventually("the image is open", || !watchers().is_empty());
    cluster.block(watchers()[0]["address"].as_str().unwrap());
    let ended = bench.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && complaint.contains("108"), "{}: {complaint}", ended.status);
}

#[test]
fn nothing_is_left_of_a_cluster() {
    let cluster = Cluster::start();
    let folder = cluster.conf().parent().unwrap().to_owned();
    let mut running = processes(&folder);
    running.sort();
    assert_eq!(running, ["ceph-mgr", "ceph-mon", "ceph-osd", "ceph-osd", "ceph-osd", "sh"]);
    drop(cluster);
    assert_eq!(processes(&folder), [""; 0]);
    assert!(!folder.exists());
}

/// Neither destructors nor anything else of a killed test runs.
#[test]
fn nothing_is_left_of_a_killed_test() {
    const INSIDE: &str = "SEALDISK_TEST_TO_BE_KILLED";
    if std::env::var_os(INSIDE).is_some() {
        println!("folder: {}", Cluster::shared().conf().parent().unwrap().display());
        loop {
            std::thread::park();
        }
    }
    let mut killed = Command::new(std::env::current_exe().unwrap());
    killed.args(["--exact", "nothing_is_left_of_a_killed_test", "--nocapture"]).env(INSIDE, "");
    let mut killed = killed.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines().map(Result::unwrap);
    let folder = lines.find_map(|line| Some(line.split_once("folder: ")?.1.to_owned())).expect("it started a cluster");
    let folder = Path::new(&folder);
    assert!(processes(folder).len() > OSDS as usize);
    killed.kill().unwrap();
    killed.wait().unwrap();
    eventually("all processes have ended", || processes(folder).is_empty());
    assert!(!folder.exists());
}
