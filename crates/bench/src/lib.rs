//! Sealdisk beside its peers, on one machine: the same load, in turn, many rounds.
//!
//! Machines are noisy, and a virtual one more so. Every subject is therefore measured once a round, rounds follow each
//! other (A B C, A B C, ...), and what is compared are medians, always with their spread. Ratios within a run carry over
//! to other machines better than absolute figures.
//!
//! ```text
//! local      disks over NBD, measured by fio             postgres   file systems under pgbench
//! rbd        disks over NBD on images of a Ceph cluster  disk       one that is served, one measurement of it
//! server     a process under measurement: memory, CPU    programs   what other packages provide
//! results    what was measured  ->  targets  ->  report  (JSON, Markdown, HTML, SVG)
//! ```

mod disk;
mod error;
mod fio;
mod interrupt;
mod machine;
mod pages;
mod pass_through;
mod places;
mod programs;
mod progress;
mod results;
mod server;
mod serving;
mod statistics;
mod targets;

pub mod local;
pub mod postgres;
pub mod rbd;
pub mod report;

pub use error::BenchError;
pub use interrupt::Interrupt;
pub use machine::Machine;
pub use pass_through::{Offer, serve as serve_pass_through};
pub use progress::Progress;
pub use results::{LeftOut, Measure, Operation, Point, Results, Sample, Subject};
pub use statistics::{Ratio, Summary};
pub use targets::{Goal, Outcome, Target, Verdict};
