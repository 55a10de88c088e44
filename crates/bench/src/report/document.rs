//! A text with tables and plots, as Markdown or as one HTML page.

use std::fmt::Write;

/// A document.
pub(super) struct Document {
    title: String,
    blocks: Vec<Block>,
}

/// A part of a document. Texts are plain.
pub(super) enum Block {
    /// Begins a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that must be seen.
    Warning(String),
    /// Commands, a line each.
    Code(String),
    /// The first row is the header.
    Table(Vec<Vec<String>>),
    /// A picture, kept in a file of this name beside the Markdown and inside the HTML.
    Plot { name: String, title: String, svg: String },
}

impl Block {
    /// A table.
    pub(super) fn table<'a>(
        header: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let header = header.into_iter().map(str::to_owned).collect();
        Self::Table(std::iter::once(header).chain(rows).collect())
    }
}

impl Document {
    pub(super) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), blocks: Vec::new() }
    }

    pub(super) fn push(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// The plots by the names of their files.
    pub(super) fn plots(&self) -> impl Iterator<Item = (&str, &str)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Plot { name, svg, .. } => Some((&**name, &**svg)),
            _ => None,
        })
    }

    pub(super) fn to_markdown(&self) -> String {
        let mut out = format!("# {}\n", self.title);
        for block in &self.blocks {
            out.push('\n');
            // Writing to a string cannot fail.
            let _ = match block {
                Block::Heading(text) => writeln!(out, "## {text}"),
                Block::Text(text) => writeln!(out, "{text}"),
                Block::Warning(text) => writeln!(out, "> **{text}**"),
                Block::Code(text) => writeln!(out, "```\n{text}\n```"),
                Block::Plot { name, title, .. } => writeln!(out, "![{title}]({name})"),
                Block::Table(rows) => markdown_table(&mut out, rows),
            };
        }
        out
    }

    pub(super) fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for block in &self.blocks {
            let _ = match block {
                Block::Heading(text) => writeln!(out, "<h2>{}</h2>", escape(text)),
                Block::Text(text) => writeln!(out, "<p>{}</p>", escape(text)),
                Block::Warning(text) => writeln!(out, "<p class=\"warning\">{}</p>", escape(text)),
                Block::Code(text) => writeln!(out, "<pre>{}</pre>", escape(text)),
                Block::Plot { svg, .. } => writeln!(out, "<figure>{svg}</figure>"),
                Block::Table(rows) => html_table(&mut out, rows),
            };
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

const STYLE: &str = "body { font: 16px/1.5 sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }\n\
    table { border-collapse: collapse }\n\
    th, td { border: 1px solid #ccc; padding: 0.2rem 0.6rem; text-align: left }\n\
    pre { background: #f4f4f4; padding: 0.6rem; overflow-x: auto }\n\
    .warning { border-left: 0.4rem solid #c40; padding-left: 0.6rem; font-weight: bold }\n\
    figure { margin: 1rem 0 }\n";

fn markdown_table(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
        if i == 0 {
            writeln!(out, "|{}", "---|".repeat(row.len()))?;
        }
    }
    Ok(())
}

fn html_table(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    out.push_str("<table>\n");
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        writeln!(out, "<tr>{cells}</tr>")?;
    }
    writeln!(out, "</table>")
}

/// Text as it must be written inside markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_header_in_both_forms() {
        let mut document = Document::new("a & b");
        document.push(Block::table(["x", "y"], [vec!["1 | 2".into(), "<3>".into()]]));
        assert_eq!(document.to_markdown(), "# a & b\n\n| x | y |\n|---|---|\n| 1 \\| 2 | <3> |\n");
        let html = document.to_html();
        assert!(html.contains("<h1>a &amp; b</h1>"));
        assert!(html.contains("<tr><th>x</th><th>y</th></tr>\n<tr><td>1 | 2</td><td>&lt;3&gt;</td></tr>"));
    }
}
