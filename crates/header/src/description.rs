//! The JSON of a LUKS2 header, reduced to what we need and checked for what we do not support.

use std::collections::BTreeMap;

use sealdisk_layout::Payload;
use serde::Deserialize;
use serde_json::Value;

use crate::binding::{is_bound, is_marked};
use crate::segment::{malformed, number, to_payload};
use crate::{KeySlot, Priority, SlotPbkdf, Unsupported};

/// Bytes of a binary header in front of each JSON area.
const BINARY_HEADER: u64 = 4096;
/// Key slots that LUKS2 has.
const KEY_SLOTS: usize = 32;
/// The only segment there may be.
const SEGMENT: &str = "0";

/// What a header's JSON says. None of it is authentic before a key slot has been opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    pub(crate) payload: Payload,
    pub(crate) key_slots: Vec<KeySlot>,
    /// Bytes of the volume key; unknown once no slot holds it.
    pub(crate) volume_key_len: Option<usize>,
    /// Where key material may lie.
    pub(crate) key_area: std::ops::Range<u64>,
    /// How many key slots there can be.
    pub(crate) most_key_slots: usize,
}

#[derive(Deserialize)]
struct Metadata {
    keyslots: BTreeMap<String, Value>,
    segments: BTreeMap<String, Value>,
    digests: BTreeMap<String, Digest>,
    config: Config,
}

#[derive(Deserialize)]
struct Digest {
    salt: String,
    keyslots: Vec<String>,
    segments: Vec<String>,
}

#[derive(Deserialize)]
struct Config {
    json_size: String,
    keyslots_size: String,
    #[serde(default)]
    requirements: Requirements,
}

#[derive(Deserialize, Default)]
struct Requirements {
    #[serde(default)]
    mandatory: Vec<String>,
}

#[derive(Deserialize)]
struct StoredKeySlot {
    key_size: u64,
    priority: Option<u64>,
    kdf: StoredPbkdf,
    area: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum StoredPbkdf {
    #[serde(rename = "pbkdf2")]
    Pbkdf2 { hash: String, iterations: u32 },
    #[serde(rename = "argon2i")]
    Argon2i { time: u32, memory: u32, cpus: u32 },
    #[serde(rename = "argon2id")]
    Argon2id { time: u32, memory: u32, cpus: u32 },
}

impl Description {
    /// Reads the JSON text of a header. Accepts exactly the headers that [`Header::load`](crate::Header::load) does,
    /// provided that libcryptsetup accepts them too.
    pub fn from_json(json: &[u8]) -> Result<Self, Unsupported> {
        let json = serde_json::from_slice(json).map_err(|error| Unsupported::Malformed(error.to_string()))?;
        Self::of(&json)
    }

    pub(crate) fn of(json: &Value) -> Result<Self, Unsupported> {
        let metadata = Metadata::deserialize(json).map_err(|error| Unsupported::Malformed(error.to_string()))?;
        if let Some(requirement) = metadata.config.requirements.mandatory.first() {
            return Err(if requirement.contains("reencrypt") {
                Unsupported::Reencryption
            } else {
                Unsupported::Requirement(requirement.clone())
            });
        }
        let payload = match metadata.segments.get(SEGMENT) {
            Some(segment) if metadata.segments.len() == 1 => to_payload(segment)?,
            _ => return Err(Unsupported::Segments(metadata.segments.len())),
        };
        let key_area = metadata.config.key_area()?;
        let offset = match payload {
            Payload::Plain(plain) => plain.offset,
            Payload::Sealed(sealed) => sealed.offset,
        };
        if offset < key_area.end {
            return Err(Unsupported::Detached { offset, header_end: key_area.end });
        }
        let digest = metadata.segment_digest()?;
        match &payload {
            Payload::Sealed(sealed) if !is_bound(&digest.salt, sealed) => return Err(Unsupported::NotVouchedFor),
            Payload::Plain(_) if is_marked(&digest.salt) => return Err(Unsupported::Disguised),
            _ => {}
        }
        let mut key_slots = Vec::new();
        let mut volume_key_len = None;
        for (number, slot) in &metadata.keyslots {
            let bound = digest.keyslots.contains(number);
            let (slot, key_size) = key_slot(number, slot, bound)?;
            if bound && volume_key_len.replace(key_size).is_some_and(|other| other != key_size) {
                return Err(malformed("key_size"));
            }
            key_slots.push(slot);
        }
        key_slots.sort_by_key(|slot| slot.number);
        let volume_key_len = match (volume_key_len, &payload) {
            (None, _) => None,
            (Some(64), _) => Some(64),
            (Some(32), Payload::Plain(_)) => Some(32),
            (Some(bytes), _) => return Err(Unsupported::KeyBits(bytes.saturating_mul(8))),
        };
        Ok(Self { payload, key_slots, volume_key_len, key_area, most_key_slots: KEY_SLOTS })
    }

    /// Whether one more key slot would find a number and a place for its key material.
    pub(crate) fn has_room_for_a_slot(&self) -> bool {
        let Some(needed) = self.key_slots.iter().map(|slot| slot.area.end - slot.area.start).max() else {
            return true;
        };
        let mut areas: Vec<_> = self.key_slots.iter().map(|slot| slot.area.clone()).collect();
        areas.sort_by_key(|area| area.start);
        let ends = std::iter::once(self.key_area.start).chain(areas.iter().map(|area| area.end));
        let starts = areas.iter().map(|area| area.start).chain(std::iter::once(self.key_area.end));
        self.key_slots.len() < self.most_key_slots
            && ends.zip(starts).any(|(end, start)| start.saturating_sub(end) >= needed)
    }
}

impl Metadata {
    /// The digest that tells whether a key is the data's. A key slot belongs to one digest only: libcryptsetup checks
    /// its key against the first that names it, which must not be another than the data's.
    fn segment_digest(&self) -> Result<&Digest, Unsupported> {
        let mut named: Vec<&String> = self.digests.values().flat_map(|digest| &digest.keyslots).collect();
        named.sort_unstable();
        let mut digests = self.digests.values().filter(|digest| digest.segments.iter().any(|s| s == SEGMENT));
        match (digests.next(), digests.next()) {
            (Some(digest), None) if named.windows(2).all(|pair| pair[0] != pair[1]) => Ok(digest),
            _ => Err(malformed("digests")),
        }
    }
}

impl Config {
    /// Two binary headers and two JSON areas come first, the key slots' material after them.
    fn key_area(&self) -> Result<std::ops::Range<u64>, Unsupported> {
        let json: u64 = self.json_size.parse().map_err(|_| malformed("json_size"))?;
        let keys: u64 = self.keyslots_size.parse().map_err(|_| malformed("keyslots_size"))?;
        let start = json.checked_add(BINARY_HEADER).and_then(|copy| copy.checked_mul(2));
        let range = start.and_then(|start| Some(start..start.checked_add(keys)?));
        range.ok_or_else(|| malformed("keyslots_size"))
    }
}

fn key_slot(name: &str, json: &Value, bound: bool) -> Result<(KeySlot, u64), Unsupported> {
    let slot_number: u32 = name.parse().map_err(|_| malformed("keyslots"))?;
    match json["type"].as_str() {
        Some("luks2") => {}
        Some("reencrypt") => return Err(Unsupported::Reencryption),
        kind => {
            return Err(Unsupported::KeySlot { slot: slot_number, kind: kind.unwrap_or_default().to_owned() });
        }
    }
    let stored = StoredKeySlot::deserialize(json).map_err(|error| Unsupported::Malformed(error.to_string()))?;
    let priority = match stored.priority {
        Some(0) => Priority::Ignore,
        None | Some(1) => Priority::Normal,
        Some(2) => Priority::Prefer,
        Some(_) => return Err(malformed("priority")),
    };
    let argon2 = |variant: &str, passes, memory_kib, threads| SlotPbkdf::Argon2 {
        variant: variant.to_owned(),
        passes,
        memory_kib,
        threads,
    };
    let pbkdf = match stored.kdf {
        StoredPbkdf::Pbkdf2 { hash, iterations } => SlotPbkdf::Pbkdf2 { hash, iterations },
        StoredPbkdf::Argon2i { time, memory, cpus } => argon2("argon2i", time, memory, cpus),
        StoredPbkdf::Argon2id { time, memory, cpus } => argon2("argon2id", time, memory, cpus),
    };
    let encryption = stored.area["encryption"].as_str().ok_or_else(|| malformed("area"))?.to_owned();
    let (start, len) = (number(&stored.area, "offset")?, number(&stored.area, "size")?);
    let area = start..start.checked_add(len).ok_or_else(|| malformed("area"))?;
    Ok((KeySlot { number: slot_number, bound, priority, pbkdf, encryption, area }, stored.key_size))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata() -> Value {
        let slot = |offset: u64| {
            json!({
                "type": "luks2", "key_size": 64,
                "area": { "type": "raw", "offset": offset.to_string(), "size": "258048", "encryption": "aes-xts-plain64" },
                "kdf": { "type": "argon2id", "time": 4, "memory": 32, "cpus": 1 },
            })
        };
        json!({
            "keyslots": { "0": slot(32768), "1": slot(290816) },
            "segments": { "0": {
                "type": "crypt", "offset": "16777216", "size": "dynamic", "iv_tweak": "0",
                "encryption": "aes-xts-plain64", "sector_size": 4096,
            } },
            "digests": { "0": { "keyslots": ["0", "1"], "segments": ["0"], "salt": "" } },
            "config": { "json_size": "12288", "keyslots_size": "16744448" },
        })
    }

    #[test]
    fn the_key_of_a_slot_is_checked_against_one_digest() {
        let mut json = metadata();
        assert_eq!(Description::of(&json).unwrap().volume_key_len, Some(64));
        json["digests"]["1"] = json!({ "keyslots": ["1"], "segments": [], "salt": "" });
        assert_eq!(Description::of(&json), Err(malformed("digests")));
        json["digests"]["0"]["keyslots"] = json!(["0"]);
        let bound: Vec<bool> = Description::of(&json).unwrap().key_slots.iter().map(|slot| slot.bound).collect();
        assert_eq!(bound, [true, false]);
    }

    #[test]
    fn room_for_a_slot_is_a_gap_between_key_areas() {
        let mut json = metadata();
        for (keys, room) in [(2 * 258048, false), (3 * 258048 - 4096, false), (3 * 258048, true)] {
            json["config"]["keyslots_size"] = json!(keys.to_string());
            assert_eq!(Description::of(&json).unwrap().has_room_for_a_slot(), room, "{keys}");
        }
        json["config"]["keyslots_size"] = json!((3 * 258048).to_string());
        json["keyslots"]["1"]["area"]["offset"] = json!((32768 + 258048 + 4096).to_string());
        assert!(!Description::of(&json).unwrap().has_room_for_a_slot(), "two gaps are not one");
    }
}
