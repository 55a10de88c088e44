//! The program that the tests' exports start for what they must not do themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    sealdisk_export::run_helper(std::env::args_os().skip(1))
}
