//! How far a benchmark is, and when it will be done.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Shows steps as a bar, as lines, as JSON lines, or not at all.
pub struct Progress {
    shown: Shown,
    began: Instant,
    done: u64,
    total: u64,
}

enum Shown {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

/// A line of progress. Numbers are strings, as in cryptsetup's progress, which keeps 64 bits in every reader.
#[derive(Serialize)]
struct Line<'a> {
    step: &'a str,
    steps_done: String,
    steps: String,
    eta_ms: String,
    time_ms: String,
}

impl Progress {
    /// As JSON lines on standard output if asked for; else on standard error, as a bar where somebody is looking.
    pub fn new(json: bool, quiet: bool) -> Self {
        let shown = if json {
            Shown::Json
        } else if quiet {
            Shown::Nothing
        } else if !io::stderr().is_terminal() {
            Shown::Lines
        } else {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {eta} left  {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            Shown::Bar(bar)
        };
        Self { shown, began: Instant::now(), done: 0, total: 0 }
    }

    /// There will be `steps` steps.
    pub fn begin(&mut self, steps: u64) {
        (self.began, self.done, self.total) = (Instant::now(), 0, steps);
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(steps);
            bar.reset();
        }
    }

    /// A step begins.
    pub fn step(&mut self, step: &str) {
        let time = self.began.elapsed();
        let eta = remaining(time, self.done, self.total);
        match &self.shown {
            Shown::Bar(bar) => {
                bar.set_position(self.done);
                bar.set_message(step.to_owned());
            }
            Shown::Lines => {
                let left = eta.map_or(String::new(), |eta| format!(", {} s left", eta.as_secs()));
                eprintln!("{}/{}{left}: {step}", self.done, self.total);
            }
            Shown::Json => {
                let line = Line {
                    step,
                    steps_done: self.done.to_string(),
                    steps: self.total.to_string(),
                    // Before anything is done nobody knows; cryptsetup says 0 then, too.
                    eta_ms: eta.unwrap_or_default().as_millis().to_string(),
                    time_ms: time.as_millis().to_string(),
                };
                let text = serde_json::to_string(&line).expect("strings always become JSON");
                // Whoever does not read the progress does not get it; the work goes on.
                let _ = writeln!(io::stdout().lock(), "{text}");
            }
            Shown::Nothing => {}
        }
        self.done += 1;
    }

    /// Something that people should know, whatever is shown.
    pub fn warn(&self, text: &str) {
        let text = format!("sealdisk: warning: {text}");
        match &self.shown {
            Shown::Bar(bar) => bar.println(text),
            _ => eprintln!("{text}"),
        }
    }

    /// All steps are done.
    pub fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// How long the rest will take if it goes on as it did.
fn remaining(time: Duration, done: u64, total: u64) -> Option<Duration> {
    (done > 0).then(|| time.mul_f64(total.saturating_sub(done) as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done_did() {
        assert_eq!(remaining(Duration::from_secs(10), 2, 6), Some(Duration::from_secs(20)));
        assert_eq!(remaining(Duration::from_secs(10), 6, 6), Some(Duration::ZERO));
        assert_eq!(remaining(Duration::from_secs(10), 0, 6), None);
    }
}
