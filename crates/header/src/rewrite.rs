//! Putting our segment into a header that libcryptsetup has just made.
//!
//! `crypt_format` takes no cipher that it cannot use itself, and makes no segment with a size or an `iv_tweak`. So the
//! header is made as an ordinary one, its segment replaced here in both copies, and loaded again by libcryptsetup.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sealdisk_cipher::VolumeKey;
use sealdisk_layout::Payload;
use serde_json::Value;

use crate::{BadCopy, HeaderCopy, HeaderError, HeaderErrorKind, binding, segment};

/// Makes segment 0 of the header on `device` that of `payload`, and binds a sealed one to the volume key. To be called before anything else knows of the header: it takes no lock.
///
/// The copies are written one after the other, each durable before the next, with one sequence number that is greater
/// than the old one. After a crash at any point one copy is whole, and libcryptsetup mends the other from it.
pub(crate) fn replace_segment(device: &Path, payload: &Payload, volume_key: &VolumeKey) -> Result<(), HeaderError> {
    let io = |doing| move |error: std::io::Error| HeaderError::io(device, doing, &error);
    let bad = |error: BadCopy| HeaderError::new(device, HeaderErrorKind::NoHeader, format!("the new header: {error}"));

    let file = OpenOptions::new().read(true).write(true).open(device).map_err(io("opening"))?;
    let mut bytes = vec![0; HeaderCopy::BINARY_LEN];
    file.read_exact_at(&mut bytes, 0).map_err(io("reading the header"))?;
    bytes.resize(HeaderCopy::len_of(&bytes).map_err(bad)?, 0);
    file.read_exact_at(&mut bytes, 0).map_err(io("reading the header"))?;
    let copy = HeaderCopy::parse(&bytes).map_err(bad)?;

    let mut json = copy.json().clone();
    replace(&mut json, payload, volume_key, random(device)?).ok_or_else(|| bad(BadCopy::Json))?;
    // LUKS2 wants new salts with every header, so that no two checksums are alike.
    let copies = copy.successors(&json, [random(device)?, random(device)?]).map_err(bad)?;
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

/// `None` if the metadata is not as libcryptsetup makes it.
fn replace(json: &mut Value, payload: &Payload, volume_key: &VolumeKey, nonce: [u8; 12]) -> Option<()> {
    *json.pointer_mut("/segments/0")? = segment::of_payload(payload);
    match payload {
        Payload::Sealed(sealed) => binding::bind(json.pointer_mut("/digests/0")?, sealed, volume_key, nonce),
        Payload::Plain(_) => Some(()),
    }
}

fn random<const LEN: usize>(device: &Path) -> Result<[u8; LEN], HeaderError> {
    let mut bytes = [0; LEN];
    let filled = aws_lc_rs::rand::fill(&mut bytes);
    let refused = "no random numbers from the operating system";
    filled.map_err(|_| HeaderError::new(device, HeaderErrorKind::Device, refused))?;
    Ok(bytes)
}
