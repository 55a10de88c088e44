//! The `sealdisk` program: parsing, prompts, progress, daemons and exit codes. What a volume is lies in the crates below.

mod arguments;
mod attachable;
mod commands;
mod control;
mod daemon;
mod existing;
mod failure;
mod hardening;
mod header_file;
mod helper;
mod location;
mod logged_disk;
mod memory;
mod output;
mod passphrase;
mod patience;
mod progress;
mod question;
mod registry;
mod server;
mod service_manager;
mod signals;
mod size;
mod terminal;
mod unlock;
mod unlocked_store;
mod volume_name;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;
use crate::failure::Kind;

fn main() -> ExitCode {
    hardening::forbid_dumps();
    if let Some(arguments) = helper::arguments() {
        return sealdisk_export::run_helper(arguments);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers; everything else is a wrong parameter. Whoever closed the pipe has read enough.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(Kind::WrongParameters as u8) } else { ExitCode::SUCCESS };
        }
    };
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("sealdisk: {failure}");
            ExitCode::from(failure.kind as u8)
        }
    }
}
