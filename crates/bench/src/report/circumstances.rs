//! The part of a report that says where and how things were measured.

use super::document::{Block, Document};
use super::mib;
use crate::{Machine, Measure, Results};

/// Machine, settings, notes and commands.
pub(super) fn describe(results: &Results, document: &mut Document) {
    document.push(Block::Heading("Machine and settings".into()));
    let mut rows = machine(&results.machine);
    rows.extend(results.settings.iter().map(|(name, value)| vec![name.clone(), value.clone()]));
    document.push(Block::table(["", ""], rows));
    for note in &results.notes {
        document.push(Block::Text(note.clone()));
    }
    commands(results, document);
}

fn machine(machine: &Machine) -> Vec<Vec<String>> {
    let virtual_or_not = if machine.is_virtual { "virtual machine" } else { "physical machine" };
    let load = machine.load.iter().map(|load| format!("{load:.1}")).collect::<Vec<_>>().join(", ");
    let mut rows = vec![
        vec!["processor".to_owned(), format!("{} x {}, {virtual_or_not}", machine.processors, machine.processor)],
        vec!["instructions".to_owned(), machine.instructions.join(", ")],
        vec!["memory".to_owned(), format!("{:.1} GiB", mib(machine.memory) / 1024.0)],
        vec!["kernel".to_owned(), machine.kernel.clone()],
        vec!["system".to_owned(), machine.system.clone()],
        vec!["file system".to_owned(), machine.file_system.clone()],
        vec!["load average, before and after each round".to_owned(), load],
    ];
    // Not every benchmark is about one.
    rows.retain(|row| !row[1].is_empty());
    rows.extend(machine.versions.iter().map(|(name, version)| vec![name.clone(), version.clone()]));
    rows
}

fn commands(results: &Results, document: &mut Document) {
    document.push(Block::Heading("Commands".into()));
    document.push(Block::Text("DIR is on the file system that is measured, RUN is not.".into()));
    for measure in results.measures.iter().filter(|measure| is_first_of_its_kind(measure, results)) {
        let others = if measure.point.is_some() { ", and likewise for the other sizes" } else { "" };
        document.push(Block::Text(format!("{}{others}:", measure.name)));
        document.push(Block::Code(measure.command.clone()));
    }
    for subject in &results.subjects {
        let remarks = subject.remarks.iter().map(|remark| format!(" {remark}.")).collect::<String>();
        document.push(Block::Text(format!("{}: {}.{remarks}", subject.name, subject.what)));
        document.push(Block::Code(subject.commands.join("\n")));
    }
}

/// Whether no earlier measure differs from it by size only.
fn is_first_of_its_kind(measure: &Measure, results: &Results) -> bool {
    let Some(point) = measure.point else { return true };
    let mut alike = results.measures.iter().filter(|m| m.point.is_some_and(|p| p.operation == point.operation));
    alike.next().is_some_and(|first| first.name == measure.name)
}
