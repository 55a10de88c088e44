//! Reports: JSON and CSV for programs; Markdown, HTML and plots for people.

mod circumstances;
mod csv;
mod curves;
mod document;
mod plot;
mod series;

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::targets::MEMORY_LIMIT;
use crate::{BenchError, Outcome, Ratio, Results, Subject, Summary, Target, Verdict};

use self::document::{Block, Document};

/// Results beside the targets.
pub struct Report<'a> {
    results: &'a Results,
    outcomes: Vec<Outcome>,
    /// Whom everyone is compared with in the tables of figures.
    yardstick: &'static str,
}

/// `data.json`.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    results: &'a Results,
    summaries: Vec<SummaryOf<'a>>,
    targets: &'a [Outcome],
    memory_limit: u64,
}

#[derive(Serialize)]
struct SummaryOf<'a> {
    subject: &'a str,
    measure: &'a str,
    #[serde(flatten)]
    summary: Summary,
}

impl<'a> Report<'a> {
    /// Judges `results`.
    pub fn new(results: &'a Results, targets: &[Target], yardstick: &'static str) -> Self {
        Self { results, outcomes: targets.iter().map(|target| target.judge(results)).collect(), yardstick }
    }

    /// How the targets fared.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Writes `data.json`, `data.csv`, `report.md`, `report.html` and the plots into `folder`, which is made.
    pub fn write(&self, folder: &Path) -> Result<(), BenchError> {
        let plots = folder.join("plots");
        fs::create_dir_all(&plots).map_err(BenchError::path(&plots))?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(BenchError::path(&path))
        };
        let document = self.document();
        write("data.json", self.json())?;
        write("data.csv", csv::samples(self.results))?;
        write("report.md", document.to_markdown())?;
        write("report.html", document.to_html())?;
        document.plots().try_for_each(|(name, svg)| write(name, svg.to_owned()))
    }

    /// The results, their medians and spreads, and the targets, as JSON.
    pub fn json(&self) -> String {
        let mut summaries = Vec::new();
        for subject in &self.results.subjects {
            for measure in &self.results.measures {
                if let Some(summary) = self.results.summary(&subject.name, &measure.name) {
                    summaries.push(SummaryOf { subject: &subject.name, measure: &measure.name, summary });
                }
            }
        }
        let data = Data { results: self.results, summaries, targets: &self.outcomes, memory_limit: MEMORY_LIMIT };
        let mut text = serde_json::to_string_pretty(&data).expect("names and numbers always become JSON");
        text.push('\n');
        text
    }

    /// The targets and who was left out, for a terminal.
    pub fn to_terminal(&self) -> String {
        let mut document = Document::new(&self.results.title);
        self.left_out(&mut document);
        self.figures(&mut document);
        self.targets(&mut document);
        document.to_markdown()
    }

    fn document(&self) -> Document {
        let mut document = Document::new(&self.results.title);
        if self.results.quick {
            document.push(Block::Warning("A quick look: too few and too short runs to conclude anything from.".into()));
        }
        if let Some(load) = self.results.machine.was_busy() {
            document.push(Block::Warning(format!(
                "The machine was busy with other work when this began (load average {load:.1} on {} processors): figures are \
                 low, and spreads are wide.",
                self.results.machine.processors
            )));
        }
        self.left_out(&mut document);
        self.targets(&mut document);
        self.figures(&mut document);
        self.plots(&mut document);
        self.memory(&mut document);
        self.efforts(&mut document);
        circumstances::describe(self.results, &mut document);
        document
    }

    fn left_out(&self, document: &mut Document) {
        for left_out in &self.results.left_out {
            document.push(Block::Warning(format!("{} is LEFT OUT: {}.", left_out.subject, left_out.reason)));
        }
    }

    fn targets(&self, document: &mut Document) {
        document.push(Block::Heading("Targets".into()));
        if self.is_series() {
            series::targets(self.results, &self.outcomes, document);
        } else {
            self.target_by_target(document);
        }
        let of = |verdict| self.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
        let [met, missed, unknown] = [Verdict::Met, Verdict::Missed, Verdict::NotMeasured].map(of);
        document.push(Block::Text(format!("{met} met, {missed} missed, {unknown} not measured.")));
    }

    /// Whether everything was measured at many sizes: a table or a plot for each measure would be too many.
    fn is_series(&self) -> bool {
        series::is_all_of(self.results)
    }

    fn target_by_target(&self, document: &mut Document) {
        let header = ["Measure", "Subject", "Beside", "Goal", "Ratio of medians", "Round by round", "Verdict"];
        let rows = self.outcomes.iter().map(|outcome| {
            let target = &outcome.target;
            let [ratio, spread] = ratio_cells(outcome.ratio);
            vec![
                self.title_of(&target.measure),
                target.subject.clone(),
                target.peer.clone(),
                target.goal.to_string(),
                ratio,
                spread,
                outcome.verdict.to_string(),
            ]
        });
        document.push(Block::table(header, rows));
    }

    fn title_of(&self, measure: &str) -> String {
        let known = self.results.measures.iter().find(|known| known.name == measure);
        known.map_or_else(|| measure.to_owned(), |known| known.title.clone())
    }

    fn figures(&self, document: &mut Document) {
        if self.is_series() {
            return series::figures(self.results, self.yardstick, document);
        }
        let beside = format!("Ratio to {}", self.yardstick);
        for measure in &self.results.measures {
            document.push(Block::Heading(measure.title.clone()));
            let header = ["Subject", &format!("Median, {}", measure.unit), "Least", "Most", &beside, "Round by round"];
            let rows = self.results.subjects.iter().filter_map(|subject| {
                let summary = self.results.summary(&subject.name, &measure.name)?;
                let [ratio, spread] = ratio_cells(self.results.ratio(&subject.name, self.yardstick, &measure.name));
                let [median, min, max] = [summary.median, summary.min, summary.max].map(figure);
                Some(vec![subject.name.clone(), median, min, max, ratio, spread])
            });
            document.push(Block::table(header, rows));
        }
    }

    fn plots(&self, document: &mut Document) {
        if self.is_series() {
            return series::plots(self.results, self.yardstick, document);
        }
        for measure in &self.results.measures {
            let bars = self.results.subjects.iter().filter_map(|subject| {
                Some(plot::Bar {
                    label: subject.name.clone(),
                    summary: self.results.summary(&subject.name, &measure.name)?,
                    is_ours: subject.is_ours,
                })
            });
            let svg = plot::bars(&measure.title, &measure.unit, &bars.collect::<Vec<_>>());
            document.push(Block::Plot {
                name: format!("plots/{}.svg", measure.name),
                title: measure.title.clone(),
                svg,
            });
        }
    }

    fn memory(&self, document: &mut Document) {
        document.push(Block::Heading("Peak memory of the serving process".into()));
        let rows = self.results.subjects.iter().filter(|subject| subject.peak_memory > 0).map(|subject| {
            let verdict = match subject {
                Subject { is_ours: false, .. } => "",
                Subject { peak_memory, .. } if *peak_memory < MEMORY_LIMIT => "met",
                _ => "MISSED",
            };
            vec![subject.name.clone(), format!("{:.0} MiB", mib(subject.peak_memory)), verdict.to_owned()]
        });
        let limit = format!("Under {:.0} MiB", mib(MEMORY_LIMIT));
        document.push(Block::table(["Subject", "Resident at most", &limit], rows));
    }

    fn efforts(&self, document: &mut Document) {
        if self.is_series() {
            return series::efforts(self.results, document);
        }
        document.push(Block::Heading("Processor time and latency".into()));
        document.push(Block::Text(
            "Medians: microseconds of processor time of the serving process for one operation, and microseconds that 99 \
             of 100 operations took at most."
                .into(),
        ));
        let mut header = vec!["Subject".to_owned()];
        for measure in &self.results.measures {
            header.extend([format!("{}: CPU", measure.name), "p99".to_owned()]);
        }
        let rows = self.results.subjects.iter().map(|subject| {
            let mut row = vec![subject.name.clone()];
            for measure in &self.results.measures {
                let cell = |value: Option<f64>| value.filter(|v| *v > 0.0).map_or(String::new(), figure);
                row.push(cell(self.results.processor_time(&subject.name, &measure.name)));
                row.push(cell(self.results.p99_latency(&subject.name, &measure.name)));
            }
            row
        });
        document.push(Block::table(header.iter().map(String::as_str), rows));
    }
}

fn ratio_cells(ratio: Option<Ratio>) -> [String; 2] {
    ratio.map_or_else(Default::default, |ratio| {
        [format!("{:.2}", ratio.of_medians), format!("{:.2} to {:.2}", ratio.min, ratio.max)]
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Three digits that mean something, or all before the point.
fn figure(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeftOut, Machine, Measure, Sample};

    fn subject(name: &str, is_ours: bool, peak_memory: u64) -> Subject {
        let commands = vec![format!("{name} <DIR/disk>")];
        Subject { name: name.into(), what: "a disk".into(), is_ours, commands, peak_memory, remarks: Vec::new() }
    }

    fn results() -> Results {
        let measure = Measure {
            name: "m".into(),
            title: "the load".into(),
            unit: "IOPS".into(),
            command: "load --hard".into(),
            point: None,
        };
        let sample = |subject: &str, round, value| Sample {
            subject: subject.into(),
            measure: "m".into(),
            round,
            value,
            p99_latency: 50.0,
            processor_time: 2.5,
        };
        Results {
            title: "Disks".into(),
            machine: Machine::default(),
            settings: vec![("rounds".into(), "2".into())],
            notes: Vec::new(),
            rounds: 2,
            quick: false,
            subjects: vec![subject("ours", true, 300 << 20), subject("theirs", false, 1 << 30)],
            measures: vec![measure],
            samples: vec![
                sample("ours", 1, 200.0),
                sample("theirs", 1, 100.0),
                sample("ours", 2, 220.0),
                sample("theirs", 2, 120.0),
            ],
            left_out: vec![LeftOut { subject: "absent".into(), reason: "install it".into() }],
        }
    }

    fn target(peer: &str, least: f64) -> Target {
        Target::at_least(least, "ours", peer, "m")
    }

    #[test]
    fn a_report_says_what_was_met_missed_and_left_out() {
        let results = results();
        let targets = [target("theirs", 1.9), target("theirs", 2.0), target("absent", 1.0)];
        let report = Report::new(&results, &targets, "theirs");
        let verdicts: Vec<_> = report.outcomes().iter().map(|outcome| outcome.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed, Verdict::NotMeasured]);
        let text = report.document().to_markdown();
        for line in [
            "> **absent is LEFT OUT: install it.**",
            "| the load | ours | theirs | at least 2.00 | 1.91 | 1.83 to 2.00 | MISSED |",
            "1 met, 1 missed, 1 not measured.",
            "| ours | 210 | 200 | 220 | 1.91 | 1.83 to 2.00 |",
            "| ours | 300 MiB | MISSED |",
            "| theirs | 1024 MiB |  |",
            "| ours | 2.50 | 50.0 |",
            "![the load](plots/m.svg)",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn data_has_samples_summaries_and_targets() {
        let results = results();
        let report = Report::new(&results, &[target("theirs", 1.9)], "theirs");
        let data: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(data["samples"].as_array().unwrap().len(), 4);
        assert_eq!(data["summaries"][0]["median"], 210.0);
        assert_eq!(data["targets"][0]["verdict"], "met");
        assert_eq!(data["targets"][0]["at_least"], 1.9);
    }

    #[test]
    fn a_report_is_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let results = results();
        Report::new(&results, &[], "theirs").write(&folder.path().join("new")).unwrap();
        for file in ["data.json", "data.csv", "report.md", "report.html", "plots/m.svg"] {
            assert!(fs::metadata(folder.path().join("new").join(file)).unwrap().len() > 0);
        }
        let html = fs::read_to_string(folder.path().join("new/report.html")).unwrap();
        // Self-contained, and nothing in it is taken for markup.
        assert!(html.contains("<svg") && html.contains("&lt;DIR/disk&gt;") && !html.contains("src="));
    }
}
