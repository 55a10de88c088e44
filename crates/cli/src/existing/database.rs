//! Recognising database files by their first bytes. Only what is unmistakable counts; where a format is told by the shape
//! of its first page rather than by a signature, several fields must agree.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Databases whose files are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// SQLite 3 ("Database File Format", section 1.3).
    Sqlite,
    /// A PostgreSQL relation (`PageHeaderData` in `storage/bufpage.h`).
    PostgresRelation,
    /// A PostgreSQL write-ahead log segment (`XLogLongPageHeaderData` in `access/xlog_internal.h`).
    PostgresLog,
    /// An InnoDB tablespace ("InnoDB FIL Header", "FSP_HDR").
    InnodbTablespace,
    /// A MyISAM or Aria index.
    MyIsam,
    /// A Redis or Valkey snapshot, or an append-only file that begins with one.
    Redis,
    /// Berkeley DB or LMDB.
    KeyValue,
    /// MongoDB's WiredTiger.
    WiredTiger,
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "an SQLite database",
            Self::PostgresRelation => "a PostgreSQL table or index",
            Self::PostgresLog => "a PostgreSQL write-ahead log",
            Self::InnodbTablespace => "an InnoDB tablespace",
            Self::MyIsam => "a MyISAM or Aria table",
            Self::Redis => "a Redis snapshot",
            Self::KeyValue => "a Berkeley DB or LMDB database",
            Self::WiredTiger => "a WiredTiger (MongoDB) table",
        })
    }
}

/// Bytes looked at: enough for every test below.
const WINDOW: usize = 64;

/// Looks at the first bytes of `file`.
pub fn recognise(file: &File) -> io::Result<Option<Database>> {
    let mut head = [0; WINDOW];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(of(&head)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

fn of(head: &[u8; WINDOW]) -> Option<Database> {
    if head.starts_with(b"SQLite format 3\0") {
        return Some(Database::Sqlite);
    }
    if head.starts_with(b"REDIS0") || head.starts_with(b"VALKEY") {
        return Some(Database::Redis);
    }
    if is_berkeley(head) || le32(head, 16) == 0xbeef_c0de {
        return Some(Database::KeyValue);
    }
    if le32(head, 0) == 120_897 && le16(head, 4) == 1 {
        return Some(Database::WiredTiger);
    }
    if matches!(head[..4], [0xfe, 0xfe, 7, 1] | [0xfe, 0xfe, 9, _]) {
        return Some(Database::MyIsam);
    }
    if is_innodb(head) {
        return Some(Database::InnodbTablespace);
    }
    if is_postgres_log(head) {
        return Some(Database::PostgresLog);
    }
    is_postgres_page(head).then_some(Database::PostgresRelation)
}

/// Berkeley DB keeps its magic number at byte 12: B-tree, hash, queue, heap.
fn is_berkeley(head: &[u8; WINDOW]) -> bool {
    [0x05_3162, 0x06_1561, 0x04_2253, 0x07_4582].contains(&le32(head, 12))
}

/// Page 0 of a tablespace: its number is 0, its type FSP_HDR (8), and the space id stands in both headers.
fn is_innodb(head: &[u8; WINDOW]) -> bool {
    be32(head, 4) == 0 && be16(head, 24) == 8 && be32(head, 34) == be32(head, 38)
}

/// The first page of a segment: a version-dependent magic number 0xD0xx or 0xD1xx, the flag "long header", and sizes that
/// are powers of two.
fn is_postgres_log(head: &[u8; WINDOW]) -> bool {
    let (segment, block) = (le32(head, 32), le32(head, 36));
    matches!(le16(head, 0) >> 8, 0xd0 | 0xd1)
        && le16(head, 2) & 2 != 0
        && segment.is_power_of_two()
        && block.is_power_of_two()
        && (1 << 20..=1 << 30).contains(&segment)
        && (512..=65536).contains(&block)
}

/// The page header says its size and layout version 4, and its three offsets are in order.
fn is_postgres_page(head: &[u8; WINDOW]) -> bool {
    let (flags, lower, upper, special) = (le16(head, 10), le16(head, 12), le16(head, 14), le16(head, 16));
    let size = le16(head, 18) & 0xff00;
    le16(head, 18) & 0xff == 4
        && size.is_power_of_two()
        && (512..=32768).contains(&size)
        && flags & !7 == 0
        && 24 <= lower
        && lower <= upper
        && upper <= special
        && special <= size
}

fn le16(head: &[u8; WINDOW], at: usize) -> u16 {
    u16::from_le_bytes([head[at], head[at + 1]])
}

fn be16(head: &[u8; WINDOW], at: usize) -> u16 {
    le16(head, at).swap_bytes()
}

fn le32(head: &[u8; WINDOW], at: usize) -> u32 {
    u32::from(le16(head, at)) | u32::from(le16(head, at + 2)) << 16
}

fn be32(head: &[u8; WINDOW], at: usize) -> u32 {
    le32(head, at).swap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(parts: &[(usize, &[u8])]) -> [u8; WINDOW] {
        let mut head = [0; WINDOW];
        for (at, bytes) in parts {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn nothing_is_not_a_database() {
        assert_eq!(of(&[0; WINDOW]), None);
        assert_eq!(of(&[0xff; WINDOW]), None);
        assert_eq!(of(&head(&[(0, b"LUKS\xba\xbe\x00\x02")])), None);
    }

    #[test]
    fn a_postgres_page_needs_all_its_fields() {
        // lower 0x0400, upper 0x0800, special and size 8192, layout version 4.
        let fields: &[u8] = &[0, 0, 0x00, 0x04, 0x00, 0x08, 0x00, 0x20, 0x04, 0x20];
        assert_eq!(of(&head(&[(10, fields)])), Some(Database::PostgresRelation));
        for (at, wrong) in [(0, 8), (3, 0x09), (7, 0x21), (8, 5), (9, 0x30)] {
            let mut fields = fields.to_vec();
            fields[at] = wrong;
            assert_eq!(of(&head(&[(10, &fields)])), None, "byte {at}");
        }
    }

    #[test]
    fn log_and_tablespace_are_told_by_their_headers() {
        let log = head(&[(0, &[0x10, 0xd1, 2, 0]), (32, &[0, 0, 0, 1, 0, 0x20, 0, 0])]);
        assert_eq!(of(&log), Some(Database::PostgresLog));
        let space = head(&[(0, &[1, 2, 3, 4]), (24, &[0, 8]), (34, &[0, 0, 0, 7, 0, 0, 0, 7])]);
        assert_eq!(of(&space), Some(Database::InnodbTablespace));
        let other = head(&[(0, &[1, 2, 3, 4]), (24, &[0, 8]), (34, &[0, 0, 0, 7, 0, 0, 0, 8])]);
        assert_eq!(of(&other), None);
    }
}
