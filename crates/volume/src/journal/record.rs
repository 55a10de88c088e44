//! What a journal frame says happened. Little-endian; one byte of kind, then the fields.

use sealdisk_cipher::{Seal, Sealed, SealedForm};
use sealdisk_layout::{MapTag, ObjectNumber, ZoneNumber};
use sealdisk_units::{Lba, SectorRange};

/// One thing that a frame makes so, all of them together or none.
#[derive(Debug, Clone)]
pub(crate) enum Record {
    /// These objects exist no longer. Their sectors read as zeros.
    Drop { first: ObjectNumber, count: u64 },
    /// This object begins to exist, with every sector zero.
    Create { object: ObjectNumber },
    /// The zone's map page becomes this frame's next payload page, which has this tag.
    Map { zone: ZoneNumber, tag: MapTag },
    /// These sectors of existing objects become zero.
    Zero { sectors: SectorRange },
    /// The sector becomes this frame's next payload page. `check` vouches for the page where the cipher does not.
    Data { lba: Lba, sealed: Sealed, check: Option<Seal> },
    /// The sector becomes what is written in its place after this frame is durable. Recovery believes it if what lies
    /// there opens under this seal.
    InPlace { lba: Lba, sealed: Sealed },
}

mod kind {
    pub(super) const DROP: u8 = 1;
    pub(super) const CREATE: u8 = 2;
    pub(super) const MAP: u8 = 3;
    pub(super) const ZERO: u8 = 4;
    pub(super) const DATA_PLAIN: u8 = 5;
    pub(super) const DATA_FOLDED: u8 = 6;
    pub(super) const IN_PLACE_PLAIN: u8 = 7;
    pub(super) const IN_PLACE_FOLDED: u8 = 8;
}

/// How seals are stored in records: their lengths differ with the volume's cipher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordFormat {
    /// Bytes of a sector's seal.
    pub(crate) seal_len: usize,
    /// Bytes of the check that `Data` carries; 0 where the sector's seal is check enough.
    pub(crate) check_len: usize,
}

impl Record {
    /// Whether a payload page belongs to the record.
    pub(crate) fn has_payload(&self) -> bool {
        matches!(self, Self::Map { .. } | Self::Data { .. })
    }

    /// Appends the record's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Drop { first, count } => {
                out.push(kind::DROP);
                out.extend(first.0.to_le_bytes());
                out.extend(count.to_le_bytes());
            }
            Self::Create { object } => {
                out.push(kind::CREATE);
                out.extend(object.0.to_le_bytes());
            }
            Self::Map { zone, tag } => {
                out.push(kind::MAP);
                out.extend(zone.0.to_le_bytes());
                out.extend(tag.0);
            }
            Self::Zero { sectors } => {
                out.push(kind::ZERO);
                out.extend(sectors.first().0.to_le_bytes());
                out.extend(sectors.count().to_le_bytes());
            }
            Self::Data { lba, sealed, check } => {
                out.push(match sealed.form {
                    SealedForm::Plain => kind::DATA_PLAIN,
                    SealedForm::Folded => kind::DATA_FOLDED,
                });
                out.extend(lba.0.to_le_bytes());
                out.extend(sealed.seal.as_bytes());
                out.extend(check.iter().flat_map(|check| check.as_bytes().iter().copied()));
            }
            Self::InPlace { lba, sealed } => {
                out.push(match sealed.form {
                    SealedForm::Plain => kind::IN_PLACE_PLAIN,
                    SealedForm::Folded => kind::IN_PLACE_FOLDED,
                });
                out.extend(lba.0.to_le_bytes());
                out.extend(sealed.seal.as_bytes());
            }
        }
    }

    /// Reads one record off the front of `bytes`; `None` where they are not one.
    pub(crate) fn decode(bytes: &mut &[u8], format: RecordFormat) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        *bytes = rest;
        let number = |bytes: &mut &[u8]| {
            let (number, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*number))
        };
        let seal = |bytes: &mut &[u8], len: usize| {
            let (seal, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            Some(Seal::from_slice(seal))
        };
        let form = match kind {
            kind::DATA_FOLDED | kind::IN_PLACE_FOLDED => SealedForm::Folded,
            _ => SealedForm::Plain,
        };
        Some(match kind {
            kind::DROP => Self::Drop { first: ObjectNumber(number(bytes)?), count: number(bytes)? },
            kind::CREATE => Self::Create { object: ObjectNumber(number(bytes)?) },
            kind::MAP => {
                let zone = ZoneNumber(number(bytes)?);
                let (tag, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Self::Map { zone, tag: MapTag(*tag) }
            }
            kind::ZERO => {
                let (first, count) = (number(bytes)?, number(bytes)?);
                first.checked_add(count)?;
                Self::Zero { sectors: SectorRange::new(Lba(first), count) }
            }
            kind::DATA_PLAIN | kind::DATA_FOLDED => {
                let lba = Lba(number(bytes)?);
                let sealed = Sealed { form, seal: seal(bytes, format.seal_len)? };
                let check = if format.check_len > 0 { Some(seal(bytes, format.check_len)?) } else { None };
                Self::Data { lba, sealed, check }
            }
            kind::IN_PLACE_PLAIN | kind::IN_PLACE_FOLDED => {
                Self::InPlace { lba: Lba(number(bytes)?), sealed: Sealed { form, seal: seal(bytes, format.seal_len)? } }
            }
            _ => return None,
        })
    }
}
