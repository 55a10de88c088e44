//! The data segment: what LUKS2 says of the bytes behind the header.

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, Payload, PlainPayload, SealedPayload, check_combination};
use sealdisk_units::{OBJECT_SIZE, SECTOR_SIZE};
use serde_json::{Value, json};

use crate::Unsupported;

/// The cipher of an ordinary segment, as dm-crypt spells it.
const PLAIN_ENCRYPTION: &str = "aes-xts-plain64";
/// Before the cipher's name in a sealed segment. No kernel and no crypto library knows a cipher `sealdisk`.
const SEALED_ENCRYPTION: &str = "sealdisk-";
/// The private member of a sealed segment.
const PRIVATE: &str = "sealdisk";
/// What `PRIVATE` is written in.
const FORMAT: u64 = 1;

/// The segment that describes `payload`.
pub(crate) fn of_payload(payload: &Payload) -> Value {
    match payload {
        Payload::Plain(PlainPayload { offset, size, sector_size, iv_tweak }) => json!({
            "type": "crypt",
            "offset": offset.to_string(),
            "size": size.map_or("dynamic".to_owned(), |size| size.to_string()),
            "iv_tweak": iv_tweak.to_string(),
            "encryption": PLAIN_ENCRYPTION,
            "sector_size": sector_size,
        }),
        Payload::Sealed(SealedPayload { cipher, layout, fold, lineage, offset }) => json!({
            "type": "crypt",
            "offset": offset.to_string(),
            "size": "dynamic",
            "iv_tweak": "0",
            "encryption": format!("{SEALED_ENCRYPTION}{cipher}"),
            "sector_size": SECTOR_SIZE,
            // A tag size other than none makes cryptsetup look at the journal; a journal cipher other than "none" makes
            // it refuse.
            "integrity": { "type": "aead", "journal_encryption": "sealdisk", "journal_integrity": "none" },
            PRIVATE: {
                "format": FORMAT,
                "cipher": cipher.as_str(),
                "layout": layout.as_str(),
                "fold": fold,
                "lineage": lineage.to_string(),
            },
        }),
    }
}

/// The payload that `segment` describes, if it is one of the two kinds that [`of_payload`] writes, member by member.
pub(crate) fn to_payload(segment: &Value) -> Result<Payload, Unsupported> {
    if segment.get("flags").is_some() {
        return Err(Unsupported::Reencryption);
    }
    let kind = text(segment, "type")?;
    if kind != "crypt" {
        return Err(Unsupported::SegmentType(kind.to_owned()));
    }
    let payload = if claims_to_be_sealed(segment) { sealed(segment)? } else { plain(segment)? };
    match first_difference(segment, &of_payload(&payload)) {
        Some(member) => Err(Unsupported::Edited(member)),
        None => Ok(payload),
    }
}

/// Any trace of a sealed segment: an edited one must not pass for an ordinary one.
fn claims_to_be_sealed(segment: &Value) -> bool {
    segment.get(PRIVATE).is_some()
        || segment["encryption"].as_str().is_some_and(|name| name.starts_with(SEALED_ENCRYPTION))
        || segment["integrity"]["journal_encryption"].as_str() == Some("sealdisk")
}

fn sealed(segment: &Value) -> Result<Payload, Unsupported> {
    let private = segment.get(PRIVATE).ok_or_else(|| Unsupported::Edited(PRIVATE.to_owned()))?;
    let format = private["format"].as_u64().ok_or_else(|| edited("format"))?;
    if format != FORMAT {
        return Err(Unsupported::Format(format));
    }
    let cipher: CipherName = text(private, "cipher")?.parse().map_err(unknown)?;
    let layout: LayoutName = text(private, "layout")?.parse().map_err(unknown)?;
    let fold = private["fold"].as_bool().ok_or_else(|| edited("fold"))?;
    let lineage = text(private, "lineage")?.parse().map_err(unknown)?;
    let offset = number(segment, "offset")?;
    check_combination(cipher, layout, fold)?;
    if cipher.seal_len() == 0 || !offset.is_multiple_of(OBJECT_SIZE) {
        return Err(edited(if cipher.seal_len() == 0 { "cipher" } else { "offset" }));
    }
    Ok(Payload::Sealed(SealedPayload { cipher, layout, fold, lineage, offset }))
}

fn plain(segment: &Value) -> Result<Payload, Unsupported> {
    if let Some(integrity) = segment.get("integrity") {
        let kind = integrity["type"].as_str().unwrap_or("of no type");
        return Err(Unsupported::DmIntegrity(kind.to_owned()));
    }
    let encryption = text(segment, "encryption")?;
    if encryption != PLAIN_ENCRYPTION {
        return Err(Unsupported::Cipher(encryption.to_owned()));
    }
    let size = match text(segment, "size")? {
        "dynamic" => None,
        _ => Some(number(segment, "size")?),
    };
    let sector_size = segment["sector_size"].as_u64().ok_or_else(|| malformed("sector_size"))?;
    let sector_size = match sector_size {
        512 | 1024 | 2048 | 4096 => sector_size as u32,
        other => return Err(Unsupported::SectorSize(other)),
    };
    let (offset, iv_tweak) = (number(segment, "offset")?, number(segment, "iv_tweak")?);
    Ok(Payload::Plain(PlainPayload { offset, size, sector_size, iv_tweak }))
}

/// A member that differs between two objects, or one that only one of them has.
fn first_difference(found: &Value, expected: &Value) -> Option<String> {
    let (Some(found), Some(expected)) = (found.as_object(), expected.as_object()) else {
        return (found != expected).then(|| "segment".to_owned());
    };
    let mut names = found.keys().chain(expected.keys());
    names.find(|&name| found.get(name) != expected.get(name)).cloned()
}

fn text<'a>(object: &'a Value, member: &str) -> Result<&'a str, Unsupported> {
    object[member].as_str().ok_or_else(|| malformed(member))
}

/// LUKS2 writes 64-bit numbers as decimal text.
pub(crate) fn number(object: &Value, member: &str) -> Result<u64, Unsupported> {
    text(object, member)?.parse().map_err(|_| malformed(member))
}

pub(crate) fn malformed(member: &str) -> Unsupported {
    Unsupported::Malformed(format!("'{member}' is missing or not what it should be"))
}

fn edited(member: &str) -> Unsupported {
    Unsupported::Edited(member.to_owned())
}

fn unknown(error: impl std::fmt::Display) -> Unsupported {
    Unsupported::Unknown(error.to_string())
}

#[cfg(test)]
mod tests {
    use sealdisk_units::Lineage;

    use super::*;

    fn payloads() -> Vec<Payload> {
        let sealed = |cipher, fold| {
            Payload::Sealed(SealedPayload {
                cipher,
                layout: LayoutName::Packed,
                fold,
                lineage: Lineage([0xa5; 16]),
                offset: 16 << 20,
            })
        };
        let plain = |size, sector_size, iv_tweak| {
            Payload::Plain(PlainPayload { offset: 16 << 20, size, sector_size, iv_tweak })
        };
        let mut all: Vec<_> = CipherName::ALL.iter().filter(|c| c.seal_len() > 0).map(|&c| sealed(c, false)).collect();
        all.push(sealed(CipherName::Aegis256, true));
        all.extend([plain(None, 4096, 0), plain(Some(1 << 30), 512, 0), plain(None, 2048, u64::MAX)]);
        all
    }

    #[test]
    fn every_payload_survives_its_segment() {
        for payload in payloads() {
            assert_eq!(to_payload(&of_payload(&payload)), Ok(payload));
        }
    }

    /// Changes each member in turn to another type, takes it away, and adds one: never the same payload, never a plain
    /// one out of a sealed one.
    #[test]
    fn no_member_can_be_changed_unnoticed() {
        for payload in payloads() {
            let segment = of_payload(&payload);
            let names: Vec<String> = segment.as_object().unwrap().keys().cloned().collect();
            for name in names {
                for other in [Value::Null, json!([]), json!("x"), json!(7), json!({})] {
                    let mut edited = segment.clone();
                    edited[&name] = other;
                    assert!(to_payload(&edited).is_err(), "{name}: {edited}");
                }
                let mut edited = segment.clone();
                edited.as_object_mut().unwrap().remove(&name);
                assert!(to_payload(&edited).is_err(), "without {name}");
            }
            let mut edited = segment.clone();
            edited["another"] = json!(1);
            assert_eq!(to_payload(&edited), Err(Unsupported::Edited("another".to_owned())));
        }
    }
}
