//! Passphrases and key files: byte for byte as cryptsetup reads them, and asked for without being shown.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use harness::typing::Typist;
use harness::{CHEAP, Place, cryptsetup};
use support::programs::succeed;

/// Key files that a careless reader would cut, join or convert.
fn awkward_keys() -> Vec<(&'static str, Vec<u8>)> {
    let mebibyte = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    vec![
        ("plain", b"secret".to_vec()),
        ("newline", b"secret\n".to_vec()),
        ("newlines", b"sec\nret\r\n\n".to_vec()),
        ("zeros", b"\0sec\0ret\0".to_vec()),
        ("only a newline", b"\n".to_vec()),
        ("not utf-8", b"\xff\xfes\xc3\x28".to_vec()),
        ("a mebibyte", mebibyte),
    ]
}

/// Starts a command and feeds it `input`.
fn fed(command: &mut Command, input: &[u8]) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not want all of it has said so by its exit code.
    let _ = child.stdin.take().unwrap().write_all(input);
    child
}

#[track_caller]
fn ends(child: Child, code: i32) {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether cryptsetup opens the volume with this key file.
fn cryptsetup_opens(place: &Place, volume: &str, key: &str) -> bool {
    let mut command = cryptsetup(&["open", "--test-passphrase", "--type", "luks2", "--key-file"]);
    command.arg(place.path(key)).arg(place.path(volume)).output().unwrap().status.success()
}

#[test]
fn cryptsetup_opens_what_sealdisk_made_with_any_key_file() {
    let place = Place::new();
    for (name, key) in awkward_keys() {
        place.file("key", &key);
        place.ok(&[&["format", "v", "--size", "8M", "--force", "--key-file", "key"], &CHEAP[..]].concat());
        assert!(cryptsetup_opens(&place, "v", "key"), "{name}");
        place.file("key", &[&key[..], b"\n"].concat());
        assert!(!cryptsetup_opens(&place, "v", "key"), "{name} and a newline");
    }
}

#[test]
fn sealdisk_opens_what_cryptsetup_added_from_a_file_or_standard_input() {
    let place = Place::new();
    place.volume("v");
    for (name, key) in awkward_keys() {
        place.file("other", &key);
        let mut add =
            cryptsetup(&["luksAddKey", "--batch-mode", "--pbkdf-force-iterations", "4", "--pbkdf-memory", "32"]);
        succeed(add.arg("--key-file").arg(place.path("key")).arg(place.path("v")).arg(place.path("other")));
        place.ok(&["check", "v", "--key-file", "other", "--quiet"]);
        ends(fed(&mut place.sealdisk(&["check", "v", "--key-file", "-"]), &key), 0);
        ends(fed(&mut place.sealdisk(&["check", "v", "--key-file", "-"]), &[&key[..], b"x"].concat()), 2);
        // The same as cryptsetup: without --key-file, standard input counts up to the first newline.
        let without = fed(cryptsetup(&["open", "--test-passphrase"]).arg(place.path("v")), &key);
        let expected = if without.wait_with_output().unwrap().status.success() { 0 } else { 2 };
        let ours = fed(&mut place.sealdisk(&["check", "v"]), &key).wait_with_output().unwrap().status.code().unwrap();
        assert_eq!(ours == 0, expected == 0, "{name}: cryptsetup {expected}, sealdisk {ours}");
        place.ok(&["key", "remove", "v", "--key-file", "other", "--quiet"]);
    }
}

#[test]
fn an_empty_and_an_endless_key_file_are_refused() {
    let place = Place::new();
    place.volume("v");
    place.file("empty", b"");
    File::create(place.path("long")).unwrap().set_len((8 << 20) + 1).unwrap();
    for key in ["empty", "long", "/dev/zero"] {
        place.fails(1, &["check", "v", "--key-file", key]);
        assert!(!cryptsetup_opens(&place, "v", key));
    }
    ends(fed(&mut place.sealdisk(&["check", "v"]), b""), 1);
}

#[test]
fn a_piped_passphrase_makes_and_opens_a_volume() {
    let place = Place::new();
    ends(fed(&mut place.sealdisk(&[&["format", "v", "--size", "8M"], &CHEAP[..]].concat()), b"pass phrase\nrest"), 0);
    ends(fed(&mut place.sealdisk(&["check", "v"]), b"pass phrase"), 0);
    ends(fed(&mut place.sealdisk(&["check", "v"]), b"pass phrase\n"), 0);
    ends(fed(&mut place.sealdisk(&["check", "v"]), b"pass"), 2);
    // Old and new, line by line.
    let change = [&["key", "change", "v"], &CHEAP[..]].concat();
    ends(fed(&mut place.sealdisk(&change), b"pass phrase\nanother\n"), 0);
    ends(fed(&mut place.sealdisk(&["check", "v"]), b"another"), 0);
    place.file("k", b"x");
    let both = ["key", "add", "v", "--key-file", "-", "--new-key-file", "-"];
    assert!(place.fails(1, &both).contains("only one of"));
}

#[test]
fn at_a_terminal_a_new_passphrase_is_asked_for_twice_and_never_shown() {
    let place = Place::new();
    let format = [&["format", "v", "--size", "8M"], &CHEAP[..]].concat();

    let mut typist = Typist::start(place.sealdisk(&format));
    typist.sees("New passphrase for v: ");
    typist.types(b"correct horse\n");
    typist.sees("again: ");
    typist.types(b"correct horze\n");
    let (screen, status) = typist.ends();
    assert_eq!(status.code(), Some(2), "{screen}");
    assert!(screen.contains("do not match") && !screen.contains("correct"), "{screen}");
    assert!(!place.path("v").exists());

    let mut typist = Typist::start(place.sealdisk(&format));
    typist.sees("New passphrase for v: ");
    typist.types(b"correct horse\n");
    typist.sees("again: ");
    typist.types(b"correct horse\n");
    let (screen, status) = typist.ends();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(!screen.contains("correct"), "{screen}");
    ends(fed(&mut place.sealdisk(&["check", "v"]), b"correct horse"), 0);
}

#[test]
fn at_a_terminal_a_mistyped_passphrase_may_be_typed_again_twice() {
    let place = Place::new();
    place.volume("v");
    for (tries, code) in [(&["wrong", "secret"][..], 0), (&["wrong", "worse", "secret"], 0), (&["a", "b", "c"], 2)] {
        let mut typist = Typist::start(place.sealdisk(&["check", "v"]));
        for passphrase in tries {
            typist.sees("Passphrase for ");
            typist.sees(": ");
            typist.types(format!("{passphrase}\n").as_bytes());
        }
        let (screen, status) = typist.ends();
        assert_eq!(status.code(), Some(code), "{screen}");
    }
}

#[test]
fn an_interrupt_at_the_prompt_ends_the_command_and_restores_the_terminal() {
    let place = Place::new();
    place.volume("v");
    // The shell reports the terminal's state after the command that was interrupted; `trap` keeps the shell alive.
    let script = format!(
        "trap : INT; {} check v; echo status $?; stty -a | grep -o ' -\\?echo ' || echo none; echo done",
        env!("CARGO_BIN_EXE_sealdisk")
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(place.path("")).env("SEALDISK_RUNTIME_DIR", place.path("run"));
    let mut typist = Typist::start(bash);
    typist.sees("Passphrase for ");
    typist.sees(": ");
    typist.types(b"sec\x03");
    typist.sees("status 130");
    typist.sees(" echo ");
    typist.sees("done");
    let (screen, status) = typist.ends();
    assert!(status.success() && status.signal().is_none(), "{screen}");
    assert!(!screen.contains("sec"), "{screen}");
}

#[test]
fn a_format_that_is_interrupted_at_the_prompt_has_made_nothing() {
    let place = Place::new();
    let mut typist = Typist::start(place.sealdisk(&["format", "new", "--size", "8M"]));
    typist.sees("New passphrase for new: ");
    typist.types(b"\x03");
    let (screen, status) = typist.ends();
    assert_eq!(status.signal(), Some(2), "{screen}");
    assert!(!place.path("new").exists());
}

#[test]
fn erasing_asks_for_a_yes_in_capitals() {
    let place = Place::new();
    place.volume("v");
    assert!(place.fails(1, &["erase", "v"]).contains("--force"));
    for (answer, code) in [("yes", 1), ("", 1), ("YES", 0)] {
        place.ok(&["check", "v", "--key-file", "key", "--quiet"]);
        let mut typist = Typist::start(place.sealdisk(&["erase", "v"]));
        typist.sees("Are you sure?");
        typist.sees(": ");
        typist.types(format!("{answer}\n").as_bytes());
        let (screen, status) = typist.ends();
        assert_eq!(status.code(), Some(code), "{screen}");
    }
    assert!(place.fails(4, &["check", "v", "--key-file", "key"]).contains("erased"));
    assert_eq!(place.info("v")["key_slots"], serde_json::json!([]));
}
