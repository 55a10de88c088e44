//! Completions and manual pages are made from the command line's definitions, and other programs understand them.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod harness;

use std::fs;

use harness::Place;
use support::programs::{run, succeed, tool};

#[test]
fn shells_accept_their_completions() {
    let place = Place::new();
    for (shell, package) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let script = place.file(shell, place.ok(&["completions", shell]).as_bytes());
        succeed(tool(shell, package).arg("-n").arg(&script));
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let place = Place::new();
    let script = place.file("script", place.ok(&["completions", "bash"]).as_bytes());
    let complete = |words: &str| {
        let (count, last) = (words.split(' ').count() - 1, words.rsplit(' ').next().unwrap());
        let program = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={count}; _sealdisk sealdisk '{last}' ''; echo ${{COMPREPLY[@]}}",
            script.display()
        );
        succeed(tool("bash", "bash").args(["--norc", "-c", &program]))
    };
    assert_eq!(complete("sealdisk det"), "detach\n");
    assert_eq!(complete("sealdisk format --ciph"), "--cipher\n");
    assert!(complete("sealdisk key ").contains("add remove change list"));
}

#[test]
fn every_command_has_a_manual_page_that_groff_accepts() {
    let place = Place::new();
    fs::create_dir(place.path("man")).unwrap();
    place.ok(&["man", "man"]);
    let mut pages: Vec<String> =
        fs::read_dir(place.path("man")).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    for page in
        ["sealdisk.1", "sealdisk-format.1", "sealdisk-attach.1", "sealdisk-key-change.1", "sealdisk-header-restore.1"]
    {
        assert!(pages.iter().any(|p| p == page), "{page} is missing in {pages:?}");
    }
    for page in &pages {
        let output = run(tool("groff", "groff-base")
            .args(["-man", "-Tutf8", "-ww", "-P-cbou"])
            .arg(place.path("man").join(page)));
        let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && warnings.is_empty(), "{page}: {warnings}");
        let text = String::from_utf8_lossy(&output.stdout);
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "FILES"] {
            assert!(text.contains(section), "{page} lacks {section}");
        }
    }
    place.fails(4, &["man", "nowhere"]);
}
