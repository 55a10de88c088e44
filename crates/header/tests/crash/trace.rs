//! What an operation wrote and synced, recorded by running it under strace.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// A write to the traced file.
pub struct Write {
    pub offset: usize,
    pub bytes: Vec<u8>,
}

/// Writes between two syncs: a crash may leave any part of them.
pub type Epoch = Vec<Write>;

/// Runs `command` under strace and returns what it wrote to `file`. The last epoch has no sync after it, and is empty
/// where the operation kept its promise.
pub fn record(mut command: Command, file: &Path, log: &Path) -> Vec<Epoch> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-xx", "-s", "33554432", "-P", file.to_str().unwrap(), "-o", log.to_str().unwrap()]);
    strace.arg(
        "--trace=read,readv,pread64,write,writev,pwrite64,pwritev,pwritev2,lseek,close,fsync,fdatasync,\
                sync_file_range,ftruncate,fallocate,copy_file_range,sendfile,mmap",
    );
    strace.arg(command.get_program()).args(command.get_args());
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = strace.output().expect("strace must be installed: Debian package strace");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    command.env_clear();
    parse(&std::fs::read_to_string(log).unwrap())
}

/// Lines are `PID NAME(FD, ARGUMENTS) = RESULT`. A system call that was interrupted by another thread's would be split
/// in two lines; nothing else runs while a header is written, and such a line fails the test.
fn parse(log: &str) -> Vec<Epoch> {
    let mut epochs = vec![Epoch::new()];
    let mut positions: HashMap<&str, usize> = HashMap::new();
    for line in log.lines() {
        let call = line.split_once(' ').unwrap().1.trim_start();
        if call.starts_with("+++") || call.starts_with("---") {
            continue;
        }
        assert!(!call.contains("<unfinished") && !call.contains("resumed>"), "two threads at work: {}", shown(line));
        let (name, rest) = call.split_once('(').unwrap();
        let (arguments, result) = rest.rsplit_once(" = ").unwrap();
        let arguments = arguments.trim_end().strip_suffix(')').unwrap();
        let result = result.split(' ').next().unwrap();
        let descriptor = arguments.split(',').next().unwrap();
        if result.starts_with('-') {
            continue;
        }
        let position = positions.entry(descriptor).or_default();
        match name {
            "lseek" => *position = result.parse().unwrap(),
            "read" | "readv" => *position += result.parse::<usize>().unwrap(),
            "pread64" => {}
            "write" => {
                let bytes = written(arguments, result);
                let write = Write { offset: *position, bytes };
                *position += write.bytes.len();
                epochs.last_mut().unwrap().push(write);
            }
            "pwrite64" => {
                let offset = arguments.rsplit(", ").next().unwrap().parse().unwrap();
                epochs.last_mut().unwrap().push(Write { offset, bytes: written(arguments, result) });
            }
            // Bytes that were read from the file into memory, not a mapping that is written through.
            "mmap" => assert!(!arguments.contains("MAP_SHARED"), "a shared mapping: {}", shown(line)),
            // Growing writes nothing, and the test compares the outcome.
            "ftruncate" | "fallocate" => {}
            "fsync" | "fdatasync" => epochs.push(Epoch::new()),
            "close" => {
                positions.remove(descriptor);
            }
            other => panic!("the model of the file knows no {other}: {}", shown(line)),
        }
    }
    epochs
}

fn shown(line: &str) -> &str {
    &line[..line.len().min(200)]
}

/// The bytes of a write: `"\x01\x02..."`, of which `result` many were taken.
fn written(arguments: &str, result: &str) -> Vec<u8> {
    let text = arguments.split('"').nth(1).unwrap().as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    let bytes: Vec<u8> = text.chunks_exact(4).map(|escape| digit(escape[2]) << 4 | digit(escape[3])).collect();
    assert_eq!(bytes.len(), result.parse::<usize>().unwrap(), "a short write, or a shortened line");
    bytes
}
