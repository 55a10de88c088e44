//! `man`: manual pages, one a command, made from the command line's definitions.

use std::fs;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::arguments::{Arguments, Man as Options};
use crate::failure::{Failure, Kind};

/// Writes `sealdisk.1`, `sealdisk-format.1` and so on.
pub fn run(options: &Options) -> Result<(), Failure> {
    // Built, so that every subcommand knows its full name and its global options.
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    write(options, root)
}

fn write(options: &Options, command: Command) -> Result<(), Failure> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write(options, sub.clone())?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let file = options.folder.join(format!("{name}.1"));
    let page = page(command).map_err(|e| Failure::path(&file, &e))?;
    fs::write(&file, page).map_err(|e| Failure::path(&file, &e))
}

fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let page = Man::new(command).manual("Sealdisk").source(concat!("sealdisk ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    page.render_subcommands_section(&mut out)?;
    common_sections().to_writer(&mut out)?;
    Ok(out)
}

/// What is the same for every command.
fn common_sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]).control("TP", []).text([bold("0")]).text([roman("success")]);
    for (kind, meaning) in Kind::MEANINGS {
        roff.control("TP", []).text([bold((kind as u8).to_string())]).text([roman(meaning)]);
    }
    roff.control("SH", ["FILES"]);
    roff.control("TP", []).text([bold("/run/sealdisk/NAME")]);
    roff.text([roman("What is attached, for root; for other users $XDG_RUNTIME_DIR/sealdisk/NAME. Holds the log of the attached volume.")]);
    roff.control("TP", []).text([bold("/dev/sealdisk/NAME")]);
    roff.text([roman("The disk, when root attaches a volume as fuse.")]);
    roff.control("SH", ["ENVIRONMENT"]);
    roff.control("TP", []).text([bold("SEALDISK_RUNTIME_DIR")]);
    roff.text([roman("Replaces the folder in which attached volumes are noted.")]);
    roff.control("TP", []).text([bold("CEPH_CONF"), roman(", "), bold("CEPH_ARGS")]);
    roff.text([roman("Ceph's configuration, and options for its clients, as for rbd(8).")]);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([bold("sealdisk"), roman("(1), "), bold("cryptsetup"), roman("(8), "), bold("rbd"), roman("(8)")]);
    roff
}
