//! Plots as SVG: bars for medians, with the spread over them.

use std::fmt::Write;

use super::document::escape;
use super::figure;
use crate::Summary;

const WIDTH: f64 = 860.0;
/// Left of the bars: labels.
const LABELS: f64 = 190.0;
/// Right of the longest bar: its value.
const VALUES: f64 = 90.0;
const TOP: f64 = 40.0;
const ROW: f64 = 26.0;
const BAR: f64 = 16.0;

/// A bar.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) summary: Summary,
    /// Sealdisk has a colour of its own.
    pub(super) is_ours: bool,
}

/// A plot of horizontal bars from zero on.
pub(super) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let most = bars.iter().map(|bar| bar.summary.max).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LABELS + value / most * (WIDTH - LABELS - VALUES);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{} ({}, median; line: least to most)</text>\n",
        escape(title),
        escape(unit)
    );
    for (i, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * i as f64;
        let middle = top + BAR / 2.0;
        let colour = if bar.is_ours { "#2a6fb0" } else { "#b0b0b0" };
        let Summary { median, min, max, .. } = bar.summary;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABELS}\" y=\"{top}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"black\" stroke-width=\"1.5\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            LABELS - 8.0,
            middle + 4.5,
            escape(&bar.label),
            x(median) - LABELS,
            x(min),
            x(max),
            x(max) + 6.0,
            middle + 4.5,
            figure(median)
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_medians() {
        let bar = |label: &str, median| Bar {
            label: label.into(),
            summary: Summary { median, min: median / 2.0, max: 100.0, count: 3 },
            is_ours: true,
        };
        let svg = bars("t", "IOPS", &[bar("a<b", 50.0), bar("c", 100.0)]);
        assert!(svg.contains("a&lt;b") && svg.contains("width=\"290.0\"") && svg.contains("width=\"580.0\""));
        assert!(!bars("t", "u", &[]).contains("NaN"));
    }
}
