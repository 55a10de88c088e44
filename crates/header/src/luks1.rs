//! Headers of LUKS1, which are opened and whose key slots are managed, and which nobody makes any more.
//!
//! Its payload is that of an ordinary LUKS2 volume with encryption sectors of 512 bytes. libcryptsetup says what stands in
//! it; there is no JSON. "LUKS On-Disk Format Specification" 1.2.3.

use std::ops::Range;

use libcryptsetup_rs::CryptPbkdfType;
use libcryptsetup_rs::consts::flags::CryptPbkdf;
use libcryptsetup_rs::consts::vals::{CryptKdf, KeyslotInfo};
use libcryptsetup_rs::{CryptDevice, LibcryptErr};
use sealdisk_layout::{Payload, PlainPayload};

use crate::{Description, KeySlot, Pbkdf, Priority, SlotPbkdf, Unsupported};

/// How many key slots there are.
pub(crate) const KEY_SLOTS: u32 = 8;
/// The first key material lies here at the earliest; before it is all else.
const BINARY_LEN: u64 = 4096;
/// The unit in which LUKS1 counts, and its encryption sector.
const SECTOR: u32 = 512;

/// Why a LUKS1 header could not be described.
pub(crate) enum Undescribed {
    Failed(LibcryptErr),
    Unsupported(Unsupported),
}

impl From<LibcryptErr> for Undescribed {
    fn from(error: LibcryptErr) -> Self {
        Self::Failed(error)
    }
}

/// What a loaded LUKS1 header says.
pub(crate) fn describe(device: &mut CryptDevice) -> Result<Description, Undescribed> {
    let mut status = device.status_handle();
    let cipher = format!("{}-{}", status.get_cipher()?, status.get_cipher_mode()?);
    let offset = status.get_data_offset().saturating_mul(SECTOR.into());
    let key_bytes = u64::from(status.get_volume_key_size().unsigned_abs());
    if cipher != "aes-xts-plain64" {
        return Err(Undescribed::Unsupported(Unsupported::Cipher(cipher)));
    }
    if !matches!(key_bytes, 32 | 64) {
        return Err(Undescribed::Unsupported(Unsupported::KeyBits(key_bytes * 8)));
    }
    let mut key_slots = Vec::new();
    let mut key_area = BINARY_LEN..BINARY_LEN;
    for number in 0..KEY_SLOTS {
        let (start, len) = device.keyslot_handle().area(number)?;
        let area: Range<u64> = start..start.saturating_add(len);
        key_area.end = key_area.end.max(area.end);
        if matches!(device.keyslot_handle().status(number)?, KeyslotInfo::Active | KeyslotInfo::ActiveLast) {
            let pbkdf = device.keyslot_handle().get_pbkdf(number)?;
            key_slots.push(KeySlot {
                number,
                bound: true,
                priority: Priority::Normal,
                pbkdf: SlotPbkdf::Pbkdf2 { hash: pbkdf.hash.unwrap_or_default(), iterations: pbkdf.iterations },
                encryption: cipher.clone(),
                area,
            });
        }
    }
    if offset < key_area.end {
        return Err(Undescribed::Unsupported(Unsupported::Detached { offset, header_end: key_area.end }));
    }
    Ok(Description {
        payload: Payload::Plain(PlainPayload { offset, size: None, sector_size: SECTOR, iv_tweak: 0 }),
        volume_key_len: (!key_slots.is_empty()).then_some(key_bytes as usize),
        key_slots,
        key_area,
        most_key_slots: KEY_SLOTS as usize,
    })
}

/// The only function that LUKS1 knows, for the same time; cryptsetup's hash. What Argon2 would have cost it cannot.
pub(crate) fn pbkdf2(pbkdf: Pbkdf) -> CryptPbkdfType {
    /// PBKDF2's cost is its time alone.
    const LEAST: u32 = 1000;
    let (time_ms, iterations, flags) = match pbkdf {
        Pbkdf::Calibrated { time_ms } => (time_ms, 0, CryptPbkdf::empty()),
        Pbkdf::Fixed { passes, .. } => (0, passes.max(LEAST), CryptPbkdf::NO_BENCHMARK),
    };
    CryptPbkdfType {
        type_: CryptKdf::Pbkdf2,
        hash: Some("sha256".to_owned()),
        time_ms,
        iterations,
        max_memory_kb: 0,
        parallel_threads: 0,
        flags,
    }
}
