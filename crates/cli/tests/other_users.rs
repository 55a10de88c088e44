//! Users other than root: no device, no mount, but NBD on a socket of their own.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use harness::{CHEAP, Place};
use support::programs::{run, succeed, tool};

/// The user nobody of every Debian.
const NOBODY: &str = "65534";

/// A place that belongs to nobody, with a copy of `sealdisk`: the build's own folder need not be open to others.
fn place_of_nobody() -> Place {
    assert!(rustix::process::geteuid().is_root(), "this test changes users, for which it must be run by root");
    let place = Place::new();
    place.file("key", b"secret");
    fs::copy(env!("CARGO_BIN_EXE_sealdisk"), place.path("program")).unwrap();
    fs::set_permissions(place.path("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let owner = format!("{NOBODY}:{NOBODY}");
    succeed(Command::new("chown").args(["-R", &owner]).arg(place.path("")));
    place
}

/// `sealdisk` as nobody.
fn as_nobody(place: &Place, arguments: &[&str]) -> Command {
    let mut command = tool("setpriv", "util-linux");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(place.path("program")).args(arguments).current_dir(place.path(""));
    command.env_remove("SEALDISK_RUNTIME_DIR").env("XDG_RUNTIME_DIR", place.path(""));
    command
}

fn format() -> Vec<&'static str> {
    [&["format", "v", "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat()
}

#[test]
fn a_user_without_privileges_gets_nbd_in_the_users_runtime_folder() {
    let place = place_of_nobody();
    succeed(&mut as_nobody(&place, &format()));
    let uri = succeed(&mut as_nobody(&place, &["attach", "v", "--key-file", "key"]));
    assert_eq!(uri, format!("nbd+unix:///v?socket={}\n", place.path("sealdisk/v/nbd").display()));
    // Root's registry knows nothing of it; the lock on the file does.
    let complaint = place.fails(5, &["attach", "v", "--as", "nbd", "--key-file", "key"]);
    assert!(complaint.contains("another user"), "{complaint}");
    succeed(&mut as_nobody(&place, &["detach", "v"]));
}

#[test]
fn only_attaching_needs_a_runtime_folder() {
    let place = place_of_nobody();
    let without = |arguments: &[&str]| run(as_nobody(&place, arguments).env_remove("XDG_RUNTIME_DIR"));
    for arguments in [&format()[..], &["check", "v", "--key-file", "key"], &["info", "v"]] {
        let output = without(arguments);
        assert!(output.status.success(), "{output:?}");
    }
    let attach = without(&["attach", "v", "--key-file", "key"]);
    assert_eq!(attach.status.code(), Some(1), "{attach:?}");
    assert!(String::from_utf8_lossy(&attach.stderr).contains("XDG_RUNTIME_DIR"), "{attach:?}");
}
