//! A server that is killed ends, at whatever instant, and what it leaves behind is cleared away by the next one.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{CHEAP, Place};
use sealdisk_store::Choices;
use support::Random;
use support::programs::{eventually, run, succeed, tool};

/// A volume that root attaches as a disk.
struct Volume {
    place: Place,
    name: String,
}

impl Volume {
    fn new(name: &str, size: &str) -> Self {
        let place = Place::new();
        place.file("key", b"secret");
        place.ok(&[&["format", "a.vol", "--size", size, "--key-file", "key"], &CHEAP[..]].concat());
        Self { place, name: format!("{name}-{}", std::process::id()) }
    }

    fn attach(&self, more: &[&str]) -> Command {
        self.place.sealdisk(&[&["attach", "a.vol", "--key-file", "key", "--name", &self.name], more].concat())
    }

    fn detach(&self) -> Command {
        self.place.sealdisk(&["detach", &self.name])
    }

    fn disk(&self) -> PathBuf {
        Path::new("/dev/sealdisk").join(&self.name)
    }

    /// A server that begins, as this process's child.
    fn begin(&self, output: Stdio) -> Child {
        self.attach(&["--foreground"]).stdout(output).stderr(Stdio::null()).spawn().unwrap()
    }

    /// A server whose disk is ready.
    fn serve(&self) -> Child {
        let mut server = self.begin(Stdio::piped());
        let mut announced = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut announced).unwrap();
        assert_eq!(Path::new(announced.trim_end()), self.disk());
        server
    }

    /// Kills a server, which must end.
    fn kill(&self, mut server: Child) {
        server.kill().unwrap();
        // Not a measurement: a killed process ends at once or never.
        for _ in 0..600 {
            if server.try_wait().unwrap().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // It would stay until the machine is restarted. This breaks its connection.
        let mount = self.place.path("run").join(&self.name).join("mount");
        let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::FORCE);
        panic!("a killed server does not end");
    }

    /// Nothing is mounted or attached any more that has to do with this volume.
    fn assert_nothing_is_left(&self) {
        let folder = self.place.path("").to_str().unwrap().to_owned();
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&folder), "a mount is left");
        for device in fs::read_dir("/sys/block").unwrap() {
            let backing = fs::read_to_string(device.unwrap().path().join("loop/backing_file")).unwrap_or_default();
            assert!(!backing.contains(&folder), "a loop device is left on {backing}");
        }
        assert!(fs::symlink_metadata(self.disk()).is_err(), "a link is left");
        assert_eq!(self.place.list(), Vec::<serde_json::Value>::new());
    }
}

/// A mounted file system, unmounted when it is dropped.
struct FileSystem(PathBuf);

impl FileSystem {
    fn mount(disk: &Path, at: PathBuf) -> Self {
        succeed(tool("mount", "mount").arg(disk).arg(&at));
        Self(at)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        succeed(tool("umount", "mount").arg(&self.0));
    }
}

#[test]
fn a_server_killed_at_any_instant_of_attaching_or_detaching_ends_and_leaves_nothing_for_long() {
    let volume = Volume::new("killed", "8M");
    let mut random = Random::new(Random::seed_from_environment("killed"));
    let begin = Instant::now();
    let mut server = volume.serve();
    let attaching = begin.elapsed();
    let begin = Instant::now();
    succeed(&mut volume.detach());
    let detaching = begin.elapsed();
    server.wait().unwrap();

    let mut some_time_of = |all: Duration| std::thread::sleep(all * random.below(120) as u32 / 100);
    for round in 0..40 {
        if round % 2 == 0 {
            let server = volume.begin(Stdio::null());
            some_time_of(attaching);
            volume.kill(server);
        } else {
            let server = volume.serve();
            let mut detach = volume.detach().stderr(Stdio::null()).spawn().unwrap();
            some_time_of(detaching);
            volume.kill(server);
            detach.wait().unwrap();
        }
        // A helper that died with its server may hold the device for a moment more.
        eventually("the volume is attached again", || run(&mut volume.attach(&[])).status.success());
        succeed(&mut volume.detach());
        volume.assert_nothing_is_left();
    }
}

#[test]
fn a_server_killed_while_file_systems_write_back_to_it_ends() {
    let volume = Volume::new("syncing", "64M");
    let at = volume.place.path("mounted");
    fs::create_dir(&at).unwrap();
    for round in 0..5 {
        let server = volume.serve();
        if round == 0 {
            succeed(tool("mkfs.ext4", "e2fsprogs").arg("-q").arg(volume.disk()));
        }
        let file_system = FileSystem::mount(&volume.disk(), at.clone());
        fs::write(at.join("file"), vec![round; 32 << 20]).unwrap();
        // It cannot end yet, and has everything written back.
        succeed(Command::new("kill").args(["-TERM", &server.id().to_string()]));
        std::thread::sleep(Duration::from_millis(u64::from(round) * 10));
        volume.kill(server);
        drop(file_system);
        succeed(&mut volume.detach());
        volume.assert_nothing_is_left();
    }
}

#[test]
fn a_helper_has_none_of_its_servers_files_nor_anything_to_read() {
    let volume = Volume::new("helper", "8M");
    succeed(&mut volume.attach(&[]));
    let server = volume.place.pid().to_string();
    // The helper tries for some seconds to take down a disk that is open.
    let holder = File::open(volume.disk()).unwrap();
    let mut detach = volume.detach().stderr(Stdio::null()).spawn().unwrap();
    let mut helper = None;
    eventually("a helper takes the disk down", || {
        helper = fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path()).find(|process| {
            let words = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
            words.starts_with(&format!("sealdisk\0helper\0{server}\0detach-loop\0"))
        });
        helper.is_some()
    });
    let helper = helper.unwrap();
    assert_eq!(fs::read_to_string(helper.join("environ")).unwrap(), "");
    assert_eq!(fs::read_link(helper.join("cwd")).unwrap(), Path::new("/"));
    for file in fs::read_dir(helper.join("fd")).unwrap() {
        let file = file.unwrap();
        let (number, target) = (file.file_name(), fs::read_link(file.path()).unwrap());
        match number.to_str().unwrap() {
            "0" => assert_eq!(target, Path::new("/dev/null")),
            "1" | "2" => assert!(target.to_str().unwrap().starts_with("pipe:"), "{target:?}"),
            // What this test was started with and had to pass on.
            _ => assert_eq!(fs::read_link(Path::new("/proc/self/fd").join(number)).ok(), Some(target)),
        }
    }
    drop(holder);
    detach.wait().unwrap();
}
