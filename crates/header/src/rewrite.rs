//! Putting our segment into a header that libcryptsetup has just made.
//!
//! `crypt_format` takes no cipher that it cannot use itself, and makes no segment with a size or an `iv_tweak`. So the
//! header is made as an ordinary one, its segment replaced here in both copies, and loaded again by libcryptsetup.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::{BadCopy, HeaderCopy, HeaderError, HeaderErrorKind};

/// Replaces segment 0 of the header on `device`. To be called before anything else knows of the header: it takes no lock.
///
/// The copies are written one after the other, each durable before the next, with one sequence number that is greater
/// than the old one. After a crash at any point one copy is whole, and libcryptsetup mends the other from it.
pub(crate) fn replace_segment(device: &Path, segment: Value) -> Result<(), HeaderError> {
    let io = |doing| move |error: std::io::Error| HeaderError::io(device, doing, &error);
    let bad = |error: BadCopy| HeaderError::new(device, HeaderErrorKind::NoHeader, format!("the new header: {error}"));

    let file = OpenOptions::new().read(true).write(true).open(device).map_err(io("opening"))?;
    let mut bytes = vec![0; HeaderCopy::BINARY_LEN];
    file.read_exact_at(&mut bytes, 0).map_err(io("reading the header"))?;
    bytes.resize(HeaderCopy::len_of(&bytes).map_err(bad)?, 0);
    file.read_exact_at(&mut bytes, 0).map_err(io("reading the header"))?;
    let copy = HeaderCopy::parse(&bytes).map_err(bad)?;

    let mut json = copy.json().clone();
    match json.pointer_mut("/segments/0") {
        Some(place) => *place = segment,
        None => return Err(bad(BadCopy::Json)),
    }
    let copies = copy.successors(&json, [fresh_salt(device)?, fresh_salt(device)?]).map_err(bad)?;
    let mut offset = 0;
    for copy in copies {
        write_durably(&file, &copy, offset).map_err(io("writing the header"))?;
        offset += copy.len() as u64;
    }
    Ok(())
}

fn write_durably(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    file.write_all_at(bytes, offset)?;
    file.sync_data()
}

/// LUKS2 wants a new one with every header, so that no two checksums are alike.
fn fresh_salt(device: &Path) -> Result<[u8; 64], HeaderError> {
    let mut salt = [0; 64];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| {
        HeaderError::new(device, HeaderErrorKind::Device, "no random numbers from the operating system")
    })?;
    Ok(salt)
}
