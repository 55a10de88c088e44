//! What a file or device already holds. Formatting over something is refused unless the user insists.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::fs::{SeekFrom, seek};

use crate::failure::{Failure, Kind};

mod database;

pub use database::Database;

/// What the program was given as its input.
const INPUT: &str = "/proc/self/fd/0";

/// Something worth keeping, as far as anyone can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// A LUKS header; a Sealdisk volume too.
    Luks,
    /// A partition table of this type.
    PartitionTable(String),
    /// A file system, swap space, RAID or LVM member of this type.
    FileSystem(String),
    /// Several things at once, among which libblkid does not choose.
    Ambiguous,
    /// A database's files.
    Database(Database),
    /// A file with content that nobody recognises.
    Unknown,
}

impl fmt::Display for Existing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Luks => write!(f, "a LUKS header"),
            Self::PartitionTable(kind) => write!(f, "a partition table ({kind})"),
            Self::FileSystem(kind) => write!(f, "{kind}"),
            Self::Ambiguous => write!(f, "signatures of several file systems"),
            Self::Database(database) => write!(f, "{database}"),
            Self::Unknown => write!(f, "data of unknown content"),
        }
    }
}

/// What `file` holds, which the user calls `shown`. `None`: nothing, or on a device nothing that is recognised.
pub fn probe(file: &File, shown: &str, kind: Container) -> Result<Option<Existing>, Failure> {
    let failed = |e: io::Error| Failure::io(shown, &e);
    if let Some(found) = probe_signatures(file, shown)? {
        return Ok(Some(found));
    }
    if let Some(database) = database::recognise(file).map_err(failed)? {
        return Ok(Some(Existing::Database(database)));
    }
    // A device is full of whatever was there before; a file has content because somebody put it there.
    if kind == Container::File && has_data(file).map_err(failed)? {
        return Ok(Some(Existing::Unknown));
    }
    Ok(None)
}

/// What content lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// A file, which has content because somebody put it there.
    File,
    /// A device or an image, which is full of whatever was there before.
    Device,
}

/// Whether any part of the file is more than a hole.
fn has_data(file: &File) -> io::Result<bool> {
    match seek(file, SeekFrom::Data(0)) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::NXIO) => Ok(false),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(file.metadata()?.len() > 0),
        Err(e) => Err(e.into()),
    }
}

/// Asks libblkid through its program, which keeps parsers of hostile bytes out of this process.
fn probe_signatures(file: &File, shown: &str) -> Result<Option<Existing>, Failure> {
    // Not in every user's PATH.
    let program = ["/usr/sbin/blkid", "/sbin/blkid"].into_iter().find(|p| Path::new(p).exists()).unwrap_or("blkid");
    let output = Command::new(program)
        // Not by its name: it may have none.
        .args(["--probe", "--output", "export", "--", INPUT])
        .stdin(file.try_clone().map_err(|e| Failure::io(shown, &e))?)
        .output()
        .map_err(|e| Failure::io("running blkid (package util-linux) to see what is there already", &e))?;
    match output.status.code() {
        Some(0) => Ok(interpret(&String::from_utf8_lossy(&output.stdout))),
        Some(2) => Ok(None),
        Some(8) => Ok(Some(Existing::Ambiguous)),
        _ => {
            let reason = String::from_utf8_lossy(&output.stderr).replace(INPUT, shown);
            Err(Failure::new(Kind::WrongDevice, format_args!("blkid cannot probe {shown}: {}", reason.trim())))
        }
    }
}

/// Reads blkid's `KEY=value` lines.
fn interpret(lines: &str) -> Option<Existing> {
    let value = |key| lines.lines().find_map(|line| line.split_once('=').filter(|(k, _)| *k == key)).map(|(_, v)| v);
    match (value("TYPE"), value("PTTYPE")) {
        (Some("crypto_LUKS"), _) => Some(Existing::Luks),
        (Some(kind), _) => {
            let what = match value("USAGE") {
                Some("filesystem") => "a file system",
                Some("raid") => "a RAID or LVM member",
                Some("crypto") => "encrypted data",
                _ => "a signature",
            };
            Some(Existing::FileSystem(format!("{what} ({kind})")))
        }
        (None, Some(table)) => Some(Existing::PartitionTable(table.to_owned())),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkids_answers_are_understood() {
        assert_eq!(interpret("DEVNAME=x\nUUID=1\nVERSION=2\nTYPE=crypto_LUKS\nUSAGE=crypto\n"), Some(Existing::Luks));
        let ext4 = interpret("DEVNAME=x\nTYPE=ext4\nUSAGE=filesystem\n").unwrap();
        assert_eq!(ext4.to_string(), "a file system (ext4)");
        assert_eq!(interpret("DEVNAME=x\nPTUUID=1\nPTTYPE=gpt\n"), Some(Existing::PartitionTable("gpt".into())));
        assert_eq!(interpret("DEVNAME=x\n"), None);
    }

    #[test]
    fn a_file_of_holes_is_empty_and_one_byte_is_content() {
        let file = tempfile::tempfile().unwrap();
        assert!(!has_data(&file).unwrap());
        file.set_len(1 << 30).unwrap();
        assert!(!has_data(&file).unwrap());
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 1 << 29).unwrap();
        assert!(has_data(&file).unwrap());
    }
}
