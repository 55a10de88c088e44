//! What commands print.

use std::io::{self, Write};

use crate::failure::Failure;

/// Prints `text` and a newline on standard output. A reader that has seen enough (`| head`) is no failure.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &e)),
        _ => Ok(()),
    }
}

/// Prints `value` as indented JSON.
pub fn say_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| Failure::usage(format_args!("cannot become JSON: {e}")))?;
    say(&text)
}

/// A table with left-aligned columns, without trailing blanks.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "bb".into(), "c".into()], vec!["aaa".into(), "\u{e9}".into(), String::new()]];
        assert_eq!(table(&rows), "a    bb  c\naaa  \u{e9}");
        assert_eq!(table(&[]), "");
    }
}
