//! The life of an attached volume, as scripts and people see it.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use harness::{CHEAP, Place};
use support::programs::{eventually, run, succeed, tool};

fn nbd(uri: &str, program: &str) -> String {
    succeed(tool("python3", "python3-libnbd").args(["-m", "nbd", "--uri", uri, "--command", program]))
}

fn kill(pid: i32, signal: &str) {
    succeed(Command::new("kill").args([signal, &pid.to_string()]));
}

#[test]
fn attach_returns_when_the_disk_is_ready_and_prints_where_it_is() {
    let place = Place::new();
    place.volume("a.vol");
    let output = place.sealdisk(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]).output().unwrap();
    let uri = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(uri, format!("nbd+unix:///a?socket={}\n", place.path("run/a/nbd").display()));
    assert!(output.stderr.is_empty(), "{output:?}");
    nbd(uri.trim(), "h.pwrite(b'x' * 4096, 8192)\nh.flush()");
    place.ok(&["detach", "a"]);
    assert_eq!(place.list(), Vec::<serde_json::Value>::new());
    assert_eq!(fs::read_dir(place.path("run")).unwrap().count(), 0);

    let uri = place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--read-only"]);
    assert_eq!(nbd(uri.trim(), "print(h.pread(4096, 8192) == b'x' * 4096, h.is_read_only())"), "True True\n");
    assert_eq!(place.list()[0]["state"], "read-only");
    place.ok(&["detach", "a.vol"]);
}

#[test]
fn a_second_attach_is_refused_by_whatever_path_and_name_and_tells_who_has_it() {
    let place = Place::new();
    let volume = place.volume("a.vol");
    fs::hard_link(&volume, place.path("same.vol")).unwrap();
    std::os::unix::fs::symlink(&volume, place.path("link.vol")).unwrap();
    place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--name", "first"]);
    let holder = format!("process {}", place.pid());
    for path in ["a.vol", "same.vol", "link.vol"] {
        for more in [&[][..], &["--read-only"]] {
            let attach = [&["attach", path, "--as", "nbd", "--key-file", "key", "--name", "second"], more].concat();
            let complaint = place.fails(5, &attach);
            assert!(complaint.contains("'first'") && complaint.contains(&holder), "{complaint}");
        }
    }
    for command in [
        &["check", "a.vol", "--key-file", "key"][..],
        &["resize", "a.vol", "--size", "16M", "--key-file", "key"],
        &["erase", "a.vol", "--force"],
        &["header", "restore", "a.vol", "backup", "--force"],
        &["format", "a.vol", "--force", "--size", "8M", "--key-file", "key"],
    ] {
        assert!(place.fails(5, command).contains("'first'"), "{command:?}");
    }
    // Another user's registry knows nothing; the lock on the file does.
    let elsewhere = place
        .sealdisk(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"])
        .env("SEALDISK_RUNTIME_DIR", place.path("elsewhere"))
        .output()
        .unwrap();
    assert_eq!(elsewhere.status.code(), Some(5), "{elsewhere:?}");
    // What only touches the header works meanwhile.
    place.ok(&["key", "list", "a.vol"]);
    place.ok(&["header", "backup", "a.vol", "backup"]);
}

#[test]
fn a_name_is_taken_once() {
    let place = Place::new();
    place.volume("a.vol");
    fs::copy(place.path("a.vol"), place.path("b.vol")).unwrap();
    place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--name", "db"]);
    let complaint = place.fails(5, &["attach", "b.vol", "--as", "nbd", "--key-file", "key", "--name", "db"]);
    assert!(complaint.contains("'db'") && complaint.contains("a.vol") && complaint.contains("--name"), "{complaint}");
    place.fails(1, &["attach", "b.vol", "--as", "nbd", "--key-file", "key", "--name", "../db"]);
    place.ok(&["attach", "b.vol", "--as", "nbd", "--key-file", "key"]);
    assert_eq!(place.list().len(), 2);
}

#[test]
fn list_and_info_tell_what_is_attached() {
    let place = Place::new();
    let volume = place.volume("a.vol");
    assert_eq!(place.ok(&["list"]), "");
    assert!(place.info("a.vol")["attached"].is_null());
    let uri = place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]);
    let list = place.list();
    let attached = &list[0];
    for (field, value) in [
        ("name", serde_json::json!("a")),
        ("volume", serde_json::json!(volume.canonicalize().unwrap())),
        ("address", serde_json::json!(uri.trim())),
        ("export", serde_json::json!("nbd")),
        ("size", serde_json::json!(8 << 20)),
        ("read_only", serde_json::json!(false)),
        ("state", serde_json::json!("healthy")),
        ("reason", serde_json::Value::Null),
        ("layout", serde_json::json!("packed")),
    ] {
        assert_eq!(attached[field], value, "{field}");
    }
    assert_eq!(place.info("a.vol")["attached"]["pid"], attached["pid"]);
    assert_eq!(place.info("a.vol")["attached"]["state"], "healthy");
    let table = place.ok(&["list"]);
    assert!(table.starts_with("NAME  STATE    SIZE   DISK") && table.contains("a     healthy  8 MiB"), "{table}");
}

#[test]
fn a_termination_signal_flushes_and_ends() {
    let place = Place::new();
    place.volume("a.vol");
    for signal in ["-TERM", "-INT"] {
        let uri = place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]);
        // Not flushed by the client.
        nbd(uri.trim(), &format!("h.pwrite(b'{signal}' * 1024, 0)"));
        kill(place.pid(), signal);
        eventually("the daemon ends", || place.list().is_empty());
        assert_eq!(place.info("a.vol")["clean"], true);
        let uri = place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]);
        assert_eq!(
            nbd(uri.trim(), &format!("print(bytes(h.pread(5, 0))[:{}])", signal.len())),
            format!("b'{signal}'\n")
        );
        place.ok(&["detach", "a"]);
    }
}

#[test]
fn a_killed_daemon_is_listed_as_dead_and_cleared_away() {
    let place = Place::new();
    place.volume("a.vol");
    let attach = ["attach", "a.vol", "--as", "nbd", "--key-file", "key"];
    for clear in [&attach[..], &["detach", "a"]] {
        let uri = place.ok(&attach);
        nbd(uri.trim(), "h.pwrite(b'kept' * 1024, 4096)\nh.flush()");
        kill(place.pid(), "-KILL");
        eventually("the daemon is dead", || place.list()[0]["state"] == "dead");
        place.ok(clear);
        if clear == attach {
            let uri = place.list()[0]["address"].as_str().unwrap().to_owned();
            assert_eq!(nbd(&uri, "print(bytes(h.pread(4, 4096)))"), "b'kept'\n");
            place.ok(&["detach", "a"]);
        }
        assert!(place.list().is_empty());
    }
}

#[test]
fn what_a_killed_daemon_left_under_another_name_is_cleared_away() {
    let place = Place::new();
    place.volume("a.vol");
    place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--name", "old"]);
    kill(place.pid(), "-KILL");
    eventually("the daemon is dead", || place.list()[0]["state"] == "dead");
    place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--name", "new"]);
    assert_eq!(place.list().len(), 1);
    assert_eq!(place.list()[0]["name"], "new");
}

#[test]
fn a_service_manager_is_told_when_the_disk_is_ready() {
    let place = Place::new();
    place.volume("a.vol");
    let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    let mut serving = place
        .sealdisk(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--foreground"])
        .env("NOTIFY_SOCKET", place.path("notify"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut buf = [0; 64];
    let len = socket.recv(&mut buf).unwrap();
    assert_eq!(&buf[..len], b"READY=1");
    assert_eq!(place.list()[0]["state"], "healthy");
    kill(serving.id() as i32, "-TERM");
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

#[test]
fn in_the_foreground_the_disk_is_announced_and_served_until_it_is_detached() {
    let place = Place::new();
    place.volume("a.vol");
    let mut serving = place
        .sealdisk(&["attach", "a.vol", "--as", "nbd", "--key-file", "key", "--foreground"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("nbd+unix:///a?socket="), "{line}");
    assert_eq!(place.pid(), serving.id() as i32);
    nbd(line.trim(), "h.pwrite(b'x', 1)");
    place.ok(&["detach", "a"]);
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

#[test]
fn errors_of_the_daemon_are_the_commands() {
    let place = Place::new();
    place.volume("a.vol");
    place.file("wrong", b"wrong");
    let nbd = |more: &[&'static str]| [&["attach", "a.vol", "--as", "nbd"], more].concat();
    place.fails(2, &nbd(&["--key-file", "wrong"]));
    place.fails(4, &nbd(&["--key-file", "none"]));
    place.fails(4, &["attach", "none.vol", "--as", "nbd", "--key-file", "key"]);
    place.fails(4, &["attach", "key", "--as", "nbd", "--key-file", "key"]);
    place.fails(1, &nbd(&["--key-file", "key", "--listen", "nowhere"]));
    place.fails(1, &["attach", "a.vol", "--as", "fuse", "--key-file", "key", "--listen", "localhost:0"]);
    // In the daemon itself: the socket's folder is missing.
    place.fails(4, &nbd(&["--key-file", "key", "--listen", "unix:none/socket"]));
    // In the daemon itself: nothing that the key opens.
    let file = fs::OpenOptions::new().write(true).open(place.path("a.vol")).unwrap();
    file.set_len(16 << 20).unwrap();
    place.fails(4, &nbd(&["--key-file", "key"]));
    assert!(place.list().is_empty(), "a failed attach leaves nothing behind");
}

#[test]
fn nbd_listens_where_it_is_told() {
    let place = Place::new();
    place.volume("a.vol");
    let attach = |listen: &str| {
        let output = run(&mut place.sealdisk(&["attach", "a.vol", "--key-file", "key", "--listen", listen]));
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (uri, warning) = attach("unix:here");
    assert_eq!(uri, format!("nbd+unix:///a?socket={}\n", place.path("here").display()));
    assert_eq!(warning, "");
    nbd(uri.trim(), "h.pread(1, 0)");
    place.ok(&["detach", "a"]);
    let (uri, warning) = attach("127.0.0.1:0");
    assert!(uri.starts_with("nbd://127.0.0.1:"), "{uri}");
    assert_eq!(warning, "");
    nbd(uri.trim(), "h.pread(1, 0)");
    place.ok(&["detach", "a"]);
    let (_, warning) = attach("0.0.0.0:0");
    assert!(warning.contains("neither encrypted nor authenticated"), "{warning}");
}

#[test]
fn the_daemon_keeps_nothing_of_the_commands_and_cannot_be_dumped() {
    let place = Place::new();
    place.volume("a.vol");
    place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]);
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", place.pid())).unwrap();
    assert_eq!(fs::read_link(format!("/proc/{}/cwd", place.pid())).unwrap().to_str(), Some("/"));
    assert!(proc("limits").lines().any(|line| line.starts_with("Max core file size        0                    0")));
    // As root: nothing of it in swap.
    let locked = proc("status").lines().find_map(|line| line.strip_prefix("VmLck:").map(str::trim).map(str::to_owned));
    assert_ne!(locked.unwrap(), "0 kB");
    let session = proc("stat").rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, place.pid().to_string(), "a session of its own");
    for (fd, target) in [("0", "/dev/null"), ("1", "/dev/null")] {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", place.pid())).unwrap();
        assert_eq!(link.to_str(), Some(target), "descriptor {fd}");
    }
    assert!(!proc("environ").contains("secret") && !proc("cmdline").contains("secret"));
}

#[test]
fn root_gets_a_disk_that_is_not_taken_away_while_it_is_mounted() {
    let place = Place::new();
    place.file("key", b"secret");
    place.ok(&[&["format", "a.vol", "--size", "32M", "--key-file", "key"], &CHEAP[..]].concat());
    let name = format!("test-{}", std::process::id());
    let disk = place.ok(&["attach", "a.vol", "--key-file", "key", "--name", &name]).trim().to_owned();
    assert_eq!(disk, format!("/dev/sealdisk/{name}"));
    succeed(tool("mkfs.ext4", "e2fsprogs").arg("-q").arg(&disk));
    let mounted = place.path("mounted");
    fs::create_dir(&mounted).unwrap();
    succeed(tool("mount", "mount").arg(&disk).arg(&mounted));
    fs::write(mounted.join("file"), b"content").unwrap();

    let refused = run(&mut place.sealdisk(&["detach", &name]));
    let pid = place.pid();
    kill(pid, "-TERM");
    eventually("it says that it is to end", || place.list()[0]["state"] == "ending");
    let read = fs::read(mounted.join("file"));
    succeed(tool("umount", "mount").arg(&mounted));
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert_eq!(read.unwrap(), b"content", "the file system goes on meanwhile");
    eventually("it ends once it is unmounted", || place.list().is_empty());
    assert!(fs::symlink_metadata(&disk).is_err());
    assert_eq!(place.info("a.vol")["clean"], true);
}

#[test]
fn a_second_signal_ends_even_what_is_in_use_and_nothing_is_lost() {
    let place = Place::new();
    place.volume("a.vol");
    let name = format!("busy-{}", std::process::id());
    let disk = place.ok(&["attach", "a.vol", "--key-file", "key", "--name", &name]).trim().to_owned();
    let holder = File::options().read(true).write(true).custom_flags(libc::O_EXCL).open(&disk).unwrap();
    holder.write_all_at(&[7; 4096], 8192).unwrap();
    let pid = place.pid();
    kill(pid, "-TERM");
    eventually("it says that it is to end", || place.list()[0]["state"] == "ending");
    holder.sync_all().unwrap();
    // Past the page cache, and not flushed by anybody but the daemon.
    let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(&disk).unwrap();
    direct.write_all_at(&sealdisk_store::AlignedBuf::from(&[8; 4096][..]), 4096).unwrap();
    drop(direct);
    kill(pid, "-TERM");
    eventually("it ends", || place.list()[0]["state"] == "dead");
    drop(holder);
    place.ok(&["detach", &name]);
    assert!(fs::symlink_metadata(&disk).is_err());
    let uri = place.ok(&["attach", "a.vol", "--as", "nbd", "--key-file", "key"]);
    assert_eq!(nbd(uri.trim(), "print(h.pread(8192, 4096) == b'\\x08' * 4096 + b'\\x07' * 4096)"), "True\n");
}
