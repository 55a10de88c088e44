//! Plots as SVG: a curve for each subject over sizes, with the spread at each point.

use std::fmt::Write;

use super::document::escape;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 480.0;
/// Left of the plot: values.
const LEFT: f64 = 70.0;
/// Right of it: names.
const RIGHT: f64 = 200.0;
const TOP: f64 = 46.0;
/// Below it: sizes.
const BOTTOM: f64 = 36.0;
/// Between the points of two neighbouring curves at the same size, so that their spreads do not hide each other.
const APART: f64 = 3.0;

/// Told apart by people who do not see all colours, too: Okabe and Ito's, and darker ones of the same hues.
const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a3d9a", "#8c510a", "#01665e", "#b2182b",
    "#4d4d4d", "#a6a600",
];

/// A value and between which others it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A curve.
pub(super) struct Curve {
    pub(super) label: String,
    /// By size; `None` where nothing was measured.
    pub(super) points: Vec<Option<Spread>>,
    /// Which of the colours it has: the same in every plot.
    pub(super) colour: usize,
    /// Sealdisk's are drawn solid, others dashed.
    pub(super) is_ours: bool,
}

/// The values that a plot shows, both ends included, and the distance of its lines.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Axis {
    from: f64,
    to: f64,
    step: f64,
}

impl Axis {
    /// From zero, or from below it, to the largest value. What lies under `least` is drawn at its edge.
    fn of(curves: &[Curve], least: f64) -> Self {
        let all = || curves.iter().flat_map(|curve| &curve.points).flatten();
        let low = all().map(|point| point.low).fold(0.0, f64::min).max(least);
        let high = all().map(|point| point.high).fold(0.0, f64::max);
        let span = if high > low { high - low } else { 1.0 };
        let raw = span / 8.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(raw);
        let (from, to) = ((low / step).floor() * step, (low.max(high) / step).ceil() * step);
        Self { from, to: if to > from { to } else { from + step }, step }
    }

    fn y(self, value: f64) -> f64 {
        let share = (value.clamp(self.from, self.to) - self.from) / (self.to - self.from);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    /// The values of its lines, and how they are written.
    fn lines(self) -> impl Iterator<Item = (f64, String)> {
        let count = ((self.to - self.from) / self.step).round() as u32;
        let decimals = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=count).map(move |i| {
            // Not the sum of steps: zero is to be zero.
            let value = ((self.from / self.step).round() + f64::from(i)) * self.step;
            (value, format!("{value:.decimals$}"))
        })
    }
}

/// A plot. `sizes` are the names along the axis; values under `least` are drawn at the lower edge.
pub(super) fn curves(title: &str, sizes: &[String], curves: &[Curve], least: f64) -> String {
    let axis = Axis::of(curves, least);
    let room = WIDTH - LEFT - RIGHT;
    let x = |i: usize| LEFT + room * (i as f64 + 0.5) / sizes.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escape(title)
    );
    // Writing to a string cannot fail.
    for (value, written) in axis.lines() {
        let y = axis.y(value);
        let shade = if value == 0.0 { "black" } else { "#ddd" };
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{shade}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{written}</text>\n",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.5
        );
    }
    for (i, size) in sizes.iter().enumerate() {
        let (x, y) = (x(i), HEIGHT - 12.0);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escape(size));
    }
    let middle = (curves.len() as f64 - 1.0) / 2.0;
    for (number, curve) in curves.iter().enumerate() {
        let colour = COLOURS[curve.colour % COLOURS.len()];
        draw(&mut out, curve, colour, axis, |i| x(i) + (number as f64 - middle) * APART);
        let y = TOP + 10.0 + 22.0 * number as f64;
        let _ = write!(
            out,
            "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"{}/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            WIDTH - RIGHT + 10.0,
            WIDTH - RIGHT + 36.0,
            dashes(curve),
            WIDTH - RIGHT + 42.0,
            y + 4.5,
            escape(&curve.label)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn dashes(curve: &Curve) -> &'static str {
    if curve.is_ours { "" } else { " stroke-dasharray=\"6 4\"" }
}

fn draw(out: &mut String, curve: &Curve, colour: &str, axis: Axis, x: impl Fn(usize) -> f64) {
    let points = || curve.points.iter().enumerate().filter_map(|(i, point)| Some((i, (*point)?)));
    let line: Vec<_> = points().map(|(i, point)| format!("{:.1},{:.1}", x(i), axis.y(point.middle))).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
        line.join(" "),
        dashes(curve)
    );
    for (i, point) in points() {
        let x = x(i);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>\n\
             <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>\n",
            axis.y(point.low),
            axis.y(point.high),
            axis.y(point.middle)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(label: &str, values: &[f64]) -> Curve {
        let points = values.iter().map(|v| Some(Spread { middle: *v, low: v - 1.0, high: v + 1.0 }));
        Curve { label: label.into(), points: points.collect(), colour: 0, is_ours: label != "theirs" }
    }

    #[test]
    fn an_axis_has_round_steps_around_everything() {
        let axis = Axis::of(&[curve("a", &[10.0, 78.0])], f64::MIN);
        assert_eq!((axis.from, axis.to, axis.step), (0.0, 80.0, 10.0));
        let axis = Axis::of(&[curve("a", &[-500.0, 14.0])], -100.0);
        assert_eq!((axis.from, axis.to, axis.step), (-100.0, 20.0, 20.0));
        assert_eq!(axis.y(-500.0), axis.y(-100.0));
        let written: Vec<_> = axis.lines().map(|(_, written)| written).collect();
        assert_eq!(written, ["-100", "-80", "-60", "-40", "-20", "0", "20"]);
        let fine = Axis::of(&[curve("a", &[0.0, 1.0])], f64::MIN);
        assert_eq!(fine.lines().nth(1).unwrap().1, "-0.5");
        let none = Axis::of(&[], f64::MIN);
        assert!(none.to > none.from && none.step > 0.0);
    }

    #[test]
    fn every_point_and_every_name_is_drawn() {
        let sizes = ["4 KiB".to_owned(), "8 KiB".to_owned()];
        let mut holey = curve("theirs", &[5.0, 6.0]);
        holey.points[0] = None;
        let svg = curves("t & u", &sizes, &[curve("a<b", &[1.0, 2.0]), holey], f64::MIN);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
        for text in ["t &amp; u", "a&lt;b", "8 KiB", "theirs"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert!(!svg.contains("NaN"));
    }
}
