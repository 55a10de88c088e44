//! How far long work is.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};

/// At most this often is a JSON line written.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shows progress in bytes, in one of three ways.
pub enum Progress {
    /// A bar with rate and remaining time, on standard error.
    Bar(ProgressBar),
    /// JSON lines on standard output.
    Json(JsonProgress),
    /// Not at all.
    Silent,
}

impl Progress {
    /// Progress of work on `volume`: as JSON if asked for, else a bar if somebody is looking.
    pub fn new(volume: &str, json: bool, quiet: bool) -> Self {
        if json {
            Self::Json(JsonProgress::new(volume.to_owned()))
        } else if quiet || !io::stderr().is_terminal() {
            Self::Silent
        } else {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let template =
                "{wide_bar} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";
            if let Ok(style) = indicatif::ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            Self::Bar(bar)
        }
    }

    /// `done` of `total` bytes are done.
    pub fn update(&mut self, done: u64, total: u64) {
        match self {
            Self::Bar(bar) => {
                if bar.length() != Some(total) {
                    bar.set_length(total);
                }
                bar.set_position(done);
            }
            Self::Json(json) => json.update(done, total),
            Self::Silent => {}
        }
    }

    /// The work has ended.
    pub fn finish(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Progress as JSON lines with the fields of cryptsetup's `--progress-json`: device, device_bytes (done), device_size,
/// speed (bytes per second), eta_ms, time_ms. As there, numbers are strings, which keeps 64 bits in every reader.
pub struct JsonProgress {
    volume: String,
    began: Instant,
    last: Option<Instant>,
}

#[derive(serde::Serialize)]
struct Line<'a> {
    device: &'a str,
    device_bytes: String,
    device_size: String,
    speed: String,
    eta_ms: String,
    time_ms: String,
}

impl JsonProgress {
    fn new(volume: String) -> Self {
        Self { volume, began: Instant::now(), last: None }
    }

    fn update(&mut self, done: u64, total: u64) {
        let now = Instant::now();
        if done < total && self.last.is_some_and(|last| now - last < INTERVAL) {
            return;
        }
        self.last = Some(now);
        let line = Line::at(&self.volume, done, total, now - self.began);
        let text = serde_json::to_string(&line).expect("strings always become JSON");
        // Whoever does not read the progress does not get it; the work goes on.
        let _ = writeln!(io::stdout().lock(), "{text}");
    }
}

impl<'a> Line<'a> {
    fn at(device: &'a str, done: u64, total: u64, elapsed: Duration) -> Self {
        let speed = (done as f64 / elapsed.as_secs_f64().max(1e-9)) as u64;
        // Before anything is done nobody knows; cryptsetup says 0 then, too.
        let eta_ms = if speed == 0 { 0 } else { (total.saturating_sub(done) as f64 / speed as f64 * 1e3) as u64 };
        Line {
            device,
            device_bytes: done.to_string(),
            device_size: total.to_string(),
            speed: speed.to_string(),
            eta_ms: eta_ms.to_string(),
            time_ms: elapsed.as_millis().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_fast_and_how_long() {
        let line = Line::at("v", 25 << 20, 100 << 20, Duration::from_secs(5));
        assert_eq!(line.speed, (5_u64 << 20).to_string());
        assert_eq!(line.eta_ms, "15000");
        assert_eq!(line.time_ms, "5000");
        let begun = Line::at("v", 0, 100, Duration::ZERO);
        assert_eq!((begun.speed.as_str(), begun.eta_ms.as_str(), begun.device_size.as_str()), ("0", "0", "100"));
    }
}
