//! Asking before something that cannot be undone.

use std::io::{self, IsTerminal};

use crate::failure::Failure;
use crate::terminal::Terminal;

/// Says what would happen and asks for an explicit YES, in capitals as cryptsetup does. Without a terminal there is
/// nobody to ask, and it is refused.
pub fn confirm(consequence: &str) -> Result<(), Failure> {
    let unattended = || Failure::usage(format_args!("{consequence} Use --force where nobody can be asked."));
    if !io::stdin().is_terminal() {
        return Err(unattended());
    }
    let terminal = Terminal::open().map_err(|_| unattended())?;
    let answer = terminal
        .ask(&format!("{consequence}\nAre you sure? (Type 'yes' in capital letters): "))
        .map_err(|e| Failure::io("the terminal", &e))?;
    match answer.as_deref() {
        Some("YES") => Ok(()),
        _ => Err(Failure::usage("nothing was done")),
    }
}
