//! The part of a report that is about loads of all sizes: tables with a column for each size, and curves.

use super::curves::{Curve, Spread, curves};
use super::document::{Block, Document};
use super::figure;
use crate::fio::size_for_people;
use crate::targets::Goal;
use crate::{Measure, Operation, Outcome, Ratio, Results, Subject, Summary, Verdict};

/// How much faster than the yardstick a subject may be before a plot of overheads no longer shows it, in percent.
const FASTEST_SHOWN: f64 = -100.0;

/// The measures of one operation, from small to large.
struct Series<'a> {
    results: &'a Results,
    operation: Operation,
    measures: Vec<&'a Measure>,
}

/// Whether all that was measured belongs to series.
pub(super) fn is_all_of(results: &Results) -> bool {
    !results.measures.is_empty() && results.measures.iter().all(|measure| measure.point.is_some())
}

fn each(results: &Results) -> impl Iterator<Item = Series<'_>> {
    let of = |operation| {
        let is_of_it = |measure: &&Measure| measure.point.is_some_and(|point| point.operation == operation);
        let mut measures: Vec<&Measure> = results.measures.iter().filter(is_of_it).collect();
        measures.sort_by_key(|measure| measure.point.map(|point| point.block_size));
        Series { results, operation, measures }
    };
    [Operation::Read, Operation::Write].map(of).into_iter().filter(|series| !series.measures.is_empty())
}

/// Throughput, and what it is beside the yardstick's.
pub(super) fn figures(results: &Results, yardstick: &str, document: &mut Document) {
    for series in each(results) {
        let (unit, operation) = (series.unit(), series.operation);
        document.push(Block::Heading(format!("Random {operation}, {unit}: median (least to most)")));
        document.push(series.table(|subject, measure| {
            let Summary { median, min, max, .. } = results.summary(subject, measure)?;
            Some(format!("{} ({} to {})", figure(median), figure(min), figure(max)))
        }));
        document.push(Block::Heading(format!("Random {operation}, times {yardstick}: medians (round by round)")));
        document.push(series.table(|subject, measure| {
            let Ratio { of_medians, min, max } = results.ratio(subject, yardstick, measure)?;
            Some(format!("{of_medians:.2} ({min:.2} to {max:.2})"))
        }));
    }
}

/// Throughput by size, and what is lost beside the yardstick.
pub(super) fn plots(results: &Results, yardstick: &str, document: &mut Document) {
    for series in each(results) {
        let (unit, operation) = (series.unit(), series.operation);
        let title = format!("Random {operation}: {unit} by size (median; line: least to most)");
        series.plot(&format!("throughput-{operation}"), &title, f64::MIN, document, |subject, measure| {
            let Summary { median, min, max, .. } = results.summary(subject, measure)?;
            Some(Spread { middle: median, low: min, high: max })
        });
        let title = format!(
            "Random {operation}: overhead beside {yardstick}, % (of medians; line: round by round; lower is better)"
        );
        series.plot(&format!("overhead-{operation}"), &title, FASTEST_SHOWN, document, |subject, measure| {
            let ratio = results.ratio(subject, yardstick, measure).filter(|_| subject != yardstick)?;
            let overhead = |ratio: f64| (1.0 - ratio) * 100.0;
            Some(Spread { middle: overhead(ratio.of_medians), low: overhead(ratio.max), high: overhead(ratio.min) })
        });
    }
}

/// Processor time and latency.
pub(super) fn efforts(results: &Results, document: &mut Document) {
    for series in each(results) {
        let operation = series.operation;
        document.push(Block::Heading(format!("Random {operation}: processor time of an operation, microseconds")));
        document.push(series.table(|subject, measure| results.processor_time(subject, measure).map(figure)));
        document.push(Block::Heading(format!("Random {operation}: latency that 99 of 100 kept, milliseconds")));
        document
            .push(series.table(|subject, measure| results.p99_latency(subject, measure).map(|l| figure(l / 1000.0))));
    }
}

/// The targets, those together that differ by size only.
pub(super) fn targets(results: &Results, outcomes: &[Outcome], document: &mut Document) {
    let mut rows: Vec<(Operation, &Outcome, Vec<&Outcome>)> = Vec::new();
    for outcome in outcomes {
        let measure = results.measures.iter().find(|measure| measure.name == outcome.target.measure);
        let Some(point) = measure.and_then(|measure| measure.point) else { continue };
        let alike = |other: &Outcome| {
            let (a, b) = (&outcome.target, &other.target);
            a.subject == b.subject && a.peer == b.peer && a.goal == b.goal
        };
        match rows.iter_mut().find(|(operation, first, _)| *operation == point.operation && alike(first)) {
            Some((_, _, all)) => all.push(outcome),
            None => rows.push((point.operation, outcome, vec![outcome])),
        }
    }
    let header = ["Operation", "Subject", "Beside", "Goal", "Worst", "Where", "Sizes that meet it", "Verdict"];
    let rows = rows.into_iter().map(|(operation, first, all)| {
        let (worst, place) = worst(results, &all).unwrap_or_default();
        let of = |verdict| all.iter().filter(|outcome| outcome.verdict == verdict).count();
        let verdict = match (of(Verdict::Missed), of(Verdict::NotMeasured)) {
            (0, 0) => Verdict::Met,
            (0, _) => Verdict::NotMeasured,
            _ => Verdict::Missed,
        };
        vec![
            operation.to_string(),
            first.target.subject.clone(),
            first.target.peer.clone(),
            first.target.goal.to_string(),
            worst,
            place,
            format!("{} of {}", of(Verdict::Met), all.len()),
            verdict.to_string(),
        ]
    });
    document.push(Block::table(header, rows));
}

/// The ratio that is farthest from the goal, round by round, and the size at which it was found.
fn worst(results: &Results, outcomes: &[&Outcome]) -> Option<(String, String)> {
    let known = outcomes.iter().filter_map(|outcome| Some((outcome, outcome.ratio?)));
    let (outcome, ratio) = known.min_by(|(a, x), (_, y)| match a.target.goal {
        Goal::AtLeast(_) => x.of_medians.total_cmp(&y.of_medians),
        Goal::ProcessorTimeAtMost(_) => y.of_medians.total_cmp(&x.of_medians),
    })?;
    let measure = results.measures.iter().find(|measure| measure.name == outcome.target.measure)?;
    let Ratio { of_medians, min, max } = ratio;
    Some((format!("{of_medians:.2} ({min:.2} to {max:.2})"), size_for_people(measure.point?.block_size)))
}

impl Series<'_> {
    fn unit(&self) -> &str {
        self.measures.first().map_or("", |measure| &measure.unit)
    }

    fn sizes(&self) -> Vec<String> {
        self.measures.iter().filter_map(|measure| Some(size_for_people(measure.point?.block_size))).collect()
    }

    /// A row for each subject, a column for each size.
    fn table(&self, cell: impl Fn(&str, &str) -> Option<String>) -> Block {
        let sizes = self.sizes();
        let rows = self.results.subjects.iter().map(|subject| {
            let cells = self.measures.iter().map(|measure| cell(&subject.name, &measure.name).unwrap_or_default());
            std::iter::once(subject.name.clone()).chain(cells).collect()
        });
        Block::table(std::iter::once("Subject").chain(sizes.iter().map(String::as_str)), rows)
    }

    /// A curve for each subject of which `point` knows something.
    fn plot(
        &self,
        name: &str,
        title: &str,
        least: f64,
        document: &mut Document,
        point: impl Fn(&str, &str) -> Option<Spread>,
    ) {
        let curve = |(colour, subject): (usize, &Subject)| {
            let points: Vec<_> = self.measures.iter().map(|measure| point(&subject.name, &measure.name)).collect();
            let known = points.iter().any(Option::is_some);
            known.then(|| Curve { label: subject.name.clone(), points, colour, is_ours: subject.is_ours })
        };
        let all: Vec<Curve> = self.results.subjects.iter().enumerate().filter_map(curve).collect();
        let svg = curves(title, &self.sizes(), &all, least);
        document.push(Block::Plot { name: format!("plots/{name}.svg"), title: title.to_owned(), svg });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Point, Sample, Target};

    const KIB: u64 = 1 << 10;

    /// Two sizes of reads, two rounds, and `ours` and `theirs` in both; `ours` is half as fast at 8 KiB.
    fn results() -> Results {
        let subject = |name: &str| Subject {
            name: name.into(),
            what: String::new(),
            is_ours: name == "ours",
            commands: Vec::new(),
            peak_memory: 0,
            remarks: Vec::new(),
        };
        let measure = |size: u64| Measure {
            name: format!("read-{size}"),
            title: String::new(),
            unit: "MiB/s".into(),
            command: String::new(),
            point: Some(Point { operation: Operation::Read, block_size: size }),
        };
        let sample = |subject: &str, size: u64, round, value| Sample {
            subject: subject.into(),
            measure: format!("read-{size}"),
            round,
            value,
            p99_latency: 2000.0,
            processor_time: 1.5 * value,
        };
        let samples = (1..=2).flat_map(|round| {
            let value = 100.0 * f64::from(round);
            let all = [("ours", 4, 1.1), ("ours", 8, 0.5), ("theirs", 4, 1.0), ("theirs", 8, 1.0)];
            all.map(|(subject, kib, times)| sample(subject, kib * KIB, round, value * times))
        });
        Results {
            title: String::new(),
            machine: Machine::default(),
            settings: Vec::new(),
            notes: Vec::new(),
            rounds: 2,
            quick: false,
            subjects: vec![subject("ours"), subject("theirs")],
            // Tables go from small to large whatever was measured first.
            measures: vec![measure(8 * KIB), measure(4 * KIB)],
            samples: samples.collect(),
            left_out: Vec::new(),
        }
    }

    fn outcome(results: &Results, subject: &str, kib: u64, goal: Goal) -> Outcome {
        let measure = format!("read-{}", kib * KIB);
        Target { subject: subject.into(), peer: "theirs".into(), measure, goal }.judge(results)
    }

    #[test]
    fn tables_have_a_column_for_each_size() {
        let mut document = Document::new("");
        figures(&results(), "theirs", &mut document);
        efforts(&results(), &mut document);
        let text = document.to_markdown();
        for row in [
            "| Subject | 4 KiB | 8 KiB |",
            "| ours | 165 (110 to 220) | 75.0 (50.0 to 100) |",
            "| ours | 1.10 (1.10 to 1.10) | 0.50 (0.50 to 0.50) |",
            "| ours | 248 | 112 |",
            "| ours | 2.00 | 2.00 |",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }

    #[test]
    fn the_yardstick_has_throughput_and_no_overhead() {
        let mut document = Document::new("");
        plots(&results(), "theirs", &mut document);
        let svgs: Vec<_> = document.plots().collect();
        let svg = |name: &str| svgs.iter().find(|(found, _)| *found == format!("plots/{name}.svg")).unwrap().1;
        assert_eq!(svg("throughput-read").matches("<circle").count(), 4);
        assert_eq!(svg("overhead-read").matches("<circle").count(), 2);
    }

    #[test]
    fn targets_that_differ_by_size_share_a_row_with_the_worst() {
        let results = results();
        let outcomes = [
            outcome(&results, "ours", 4, Goal::AtLeast(1.0)),
            outcome(&results, "ours", 8, Goal::AtLeast(1.0)),
            outcome(&results, "ours", 4, Goal::ProcessorTimeAtMost(1.0)),
            outcome(&results, "ours", 8, Goal::ProcessorTimeAtMost(1.0)),
            outcome(&results, "absent", 4, Goal::AtLeast(1.0)),
        ];
        let mut document = Document::new("");
        targets(&results, &outcomes, &mut document);
        let text = document.to_markdown();
        for row in [
            "| read | ours | theirs | at least 1.00 | 0.50 (0.50 to 0.50) | 8 KiB | 1 of 2 | MISSED |",
            "| read | ours | theirs | processor time at most 1.00 | 1.10 (1.10 to 1.10) | 4 KiB | 1 of 2 | MISSED |",
            "| read | absent | theirs | at least 1.00 |  |  | 0 of 1 | not measured |",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }
}
