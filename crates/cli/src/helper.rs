//! The process that does what a server must not, see [`Helper`]: this program under a first argument of its own.

use std::ffi::OsString;

use sealdisk_export::Helper;

/// Not a command: nobody but a server can use it, so that neither help nor completions nor manual pages know it.
const WORD: &str = "helper";

/// How this process starts its helpers.
pub fn helper() -> Helper {
    // Not by its path: another version may lie there by now.
    Helper::new("/proc/self/exe", [WORD])
}

/// The arguments for a helper, if this process was started as one.
pub fn arguments() -> Option<impl Iterator<Item = OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == WORD).then_some(arguments)
}
