//! Users other than root: no device, no mount, but NBD on a socket of their own.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use harness::{CHEAP, Place, run, tool};

/// The user nobody of every Debian.
const NOBODY: &str = "65534";

/// Runs `sealdisk` as nobody; the place must belong to nobody.
fn as_nobody(place: &Place, arguments: &[&str]) -> Output {
    let mut command = tool("setpriv", "util-linux");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(place.path("program")).args(arguments).current_dir(place.path(""));
    run(command.env_remove("SEALDISK_RUNTIME_DIR").env("XDG_RUNTIME_DIR", place.path("")))
}

#[test]
fn a_user_without_privileges_gets_nbd_in_the_users_runtime_folder() {
    assert!(rustix::process::geteuid().is_root(), "this test changes users, for which it must be run by root");
    let place = Place::new();
    place.file("key", b"secret");
    // The build's own folder need not be open to others.
    fs::copy(env!("CARGO_BIN_EXE_sealdisk"), place.path("program")).unwrap();
    fs::set_permissions(place.path("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let owner = format!("{NOBODY}:{NOBODY}");
    harness::succeed(Command::new("chown").args(["-R", &owner]).arg(place.path("")));

    let format = as_nobody(&place, &[&["format", "v", "--size", "8M", "--key-file", "key"], &CHEAP[..]].concat());
    assert!(format.status.success(), "{format:?}");
    let attach = as_nobody(&place, &["attach", "v", "--key-file", "key"]);
    assert!(attach.status.success(), "{attach:?}");
    let uri = String::from_utf8(attach.stdout).unwrap();
    assert!(uri.starts_with("nbd+unix:///v?socket="), "{uri}");
    // Root's registry knows nothing of it; the lock on the file does.
    let complaint = place.fails(5, &["attach", "v", "--as", "nbd", "--key-file", "key"]);
    assert!(complaint.contains("another user"), "{complaint}");
    let detach = as_nobody(&place, &["detach", "v"]);
    assert!(detach.status.success(), "{detach:?}");
}
