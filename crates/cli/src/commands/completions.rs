//! `completions`: a script for a shell, made from the command line's definitions.

use clap::CommandFactory;

use crate::arguments::{Arguments, Completions};
use crate::failure::Failure;
use crate::output;

/// Prints the script.
pub fn run(options: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "sealdisk", &mut script);
    output::say(String::from_utf8_lossy(&script).trim_end())
}
