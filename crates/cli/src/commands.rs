//! One command a file.

mod attach;
mod bench;
mod check;
mod completions;
mod detach;
mod erase;
mod format;
mod header;
mod info;
mod key;
mod list;
mod manual;
mod resize;
mod snapshot;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;

/// Does what the command line says.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let quiet = arguments.quiet;
    match arguments.command {
        Command::Format(options) => format::run(&options),
        Command::Attach(options) => attach::run(&options, quiet),
        Command::Detach(options) => detach::run(&options),
        Command::List(options) => list::run(&options),
        Command::Info(options) => info::run(&options, quiet),
        Command::Check(options) => check::run(&options, quiet),
        Command::Resize(options) => resize::run(&options),
        Command::Key(key) => key::run(&key, quiet),
        Command::Header(header) => header::run(&header, quiet),
        Command::Erase(options) => erase::run(&options),
        Command::Snapshot(snapshot) => snapshot::run(&snapshot, quiet),
        Command::Bench(bench) => bench::run(&bench, quiet),
        Command::Completions(options) => completions::run(&options),
        Command::Man(options) => manual::run(&options),
    }
}
