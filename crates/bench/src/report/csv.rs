//! Every measurement as a line of comma-separated values (RFC 4180), for spreadsheets and scripts.

use std::fmt::Write;

use crate::Results;

const HEADER: &str = "subject,measure,operation,block_size,round,value,unit,p99_latency_us,processor_time_us\r\n";

/// All samples of all rounds. Operation and size in bytes are empty where a measure has none.
pub(super) fn samples(results: &Results) -> String {
    let mut out = HEADER.to_owned();
    for sample in &results.samples {
        let measure = results.measures.iter().find(|measure| measure.name == sample.measure);
        let point = measure.and_then(|measure| measure.point);
        let (operation, size) =
            point.map_or_else(Default::default, |p| (p.operation.to_string(), p.block_size.to_string()));
        let unit = measure.map_or("", |measure| &measure.unit);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{},{},{operation},{size},{},{},{},{},{}\r\n",
            quoted(&sample.subject),
            quoted(&sample.measure),
            sample.round,
            sample.value,
            quoted(unit),
            sample.p99_latency,
            sample.processor_time
        );
    }
    out
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_commas_is_quoted() {
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted("MiB/s"), "MiB/s");
    }
}
