//! `tests/vectors/`, made by the second implementation: what another reader can be tried with before it meets a volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_cipher::{
    CipherName, Form, KeyContext, Seal, SectorSealer, VolumeKey, metadata_cipher, sector_sealer, superblock_mac, unfold,
};
use sealdisk_header::Description;
use sealdisk_layout::{
    JournalTail, LayoutName, MapTag, ObjectNumber, PackedLayout, SealedPayload, Superblock, Unverified, ZoneMap,
    ZoneNumber,
};
use sealdisk_store::{Image, MemoryObjects, MemoryStore, Step, WriteExtent};
use sealdisk_units::{Lba, Lineage};
use sealdisk_volume::{OpenOptions, Volume};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::exchange::read_all;
use crate::objects_folder::put;
use crate::python;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn read(name: &str) -> Value {
    let path = folder().join(name);
    serde_json::from_slice(&fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn array<const LEN: usize>(value: &Value) -> [u8; LEN] {
    bytes(value).try_into().unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// The vectors of one cipher, and what they are made under.
struct Vectors {
    all: Value,
    key: VolumeKey,
    payload: SealedPayload,
}

impl Vectors {
    fn of_every_cipher() -> impl Iterator<Item = Self> {
        CipherName::ALL.into_iter().filter(|cipher| cipher.seal_len() > 0).map(|cipher| {
            let all = read(&format!("{cipher}.json"));
            let payload = SealedPayload {
                cipher: all["cipher"].as_str().unwrap().parse().unwrap(),
                layout: LayoutName::Packed,
                fold: all["fold"].as_bool().unwrap(),
                lineage: Lineage(array(&all["lineage"])),
                offset: number(&all["offset"]),
            };
            assert_eq!(payload.cipher, cipher);
            let key = VolumeKey::new(Zeroizing::new(bytes(&all["volume_key"]).into_boxed_slice())).unwrap();
            Self { all, key, payload }
        })
    }

    /// The context that the info of a derived key names: `sealdisk/1/PURPOSE/CIPHER/CONTEXT/epoch=0`.
    fn context(&self, purpose: &str) -> KeyContext<'_> {
        let info: Vec<&str> = self.all["keys"][purpose]["info"].as_str().unwrap().split('/').collect();
        assert_eq!((info[2], info[3], info[5]), (purpose, self.payload.cipher.as_str(), "epoch=0"));
        KeyContext { cipher: self.payload.cipher, lineage: self.payload.lineage, context: info[4], epoch: 0 }
    }

    fn sealer(&self) -> SectorSealer {
        sector_sealer(&self.key, &self.context("sector"), self.payload.fold)
    }
}

#[test]
fn the_vectors_are_what_python_makes() {
    let ciphers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cipher/testdata");
    let arguments = ["--check".as_ref(), "--ciphers".as_ref(), ciphers.as_os_str()];
    python::run("vectors.py", &[&arguments[..], &[folder().as_os_str()]].concat());
}

#[test]
fn headers_are_bound_to_their_segment() {
    for vectors in Vectors::of_every_cipher() {
        let header = vectors.all["header"].clone();
        Description::from_json(header.to_string().as_bytes()).unwrap();
        for (member, other) in [("fold", json!(false)), ("lineage", json!("00112233445566778899aabbccddeeff"))] {
            let mut edited = header.clone();
            edited["segments"]["0"]["sealdisk"][member] = other;
            Description::from_json(edited.to_string().as_bytes()).unwrap_err();
        }
    }
}

#[test]
fn sectors_open_in_their_place_alone() {
    for vectors in Vectors::of_every_cipher() {
        let sealer = vectors.sealer();
        for (vector, form) in vectors.all["sectors"].as_array().unwrap().iter().zip([
            ("plain", Form::Plain),
            ("folded", Form::FoldMark),
            ("zero", Form::Zero),
        ]) {
            let (lba, slot) = (Lba(number(&vector["lba"])), Seal::from_slice(&bytes(&vector["slot"])));
            let mut sector = bytes(&vector["place"]);
            assert_eq!((vector["form"].as_str(), sealer.claimed_form(&slot)), (Some(form.0), Some(form.1)));
            sealer.open(lba, &slot, &mut sector).unwrap();
            assert!(sector == bytes(&vector["sector"]), "{} {}", vectors.payload.cipher, form.0);
            if sealer.is_authenticated() || form.1 == Form::Zero {
                let mut changed = bytes(&vector["place"]);
                changed[4000] ^= 1;
                sealer.open(lba, &slot, &mut changed).unwrap_err();
            }
            if sealer.is_authenticated() {
                let place = bytes(&vector["place"]);
                sealer.open(Lba(lba.0 + 1), &slot, &mut place.clone()).unwrap_err();
                sealer.open(lba, &Seal::from_slice(&vec![0; sealer.seal_len()]), &mut place.clone()).unwrap_err();
            }
        }
    }
}

#[test]
fn superblocks_are_the_same_bytes() {
    for vectors in Vectors::of_every_cipher() {
        let mac = superblock_mac(&vectors.key, &vectors.context("superblock"));
        let vector = &vectors.all["superblock"];
        let expected = Superblock {
            generation: number(&vector["generation"]),
            size: number(&vector["size"]),
            journal_len: number(&vector["journal_len"]),
            key_epoch: 0,
            clean: vector["clean"].as_bool().unwrap(),
            tail: JournalTail {
                sequence: number(&vector["tail_sequence"]),
                position: number(&vector["tail_position"]),
                previous_tag: array(&vector["tail_previous_tag"]),
                previous_position: number(&vector["tail_previous_position"]),
            },
        };
        let tags: Vec<MapTag> = vector["map_tags"].as_array().unwrap().iter().map(|tag| MapTag(array(tag))).collect();
        let layout = PackedLayout::new(0, expected.journal_len, vectors.payload.cipher.seal_len());
        assert_eq!(layout.zone_count(expected.size), tags.len() as u64);
        let pages = bytes(&vector["pages"]);
        assert_eq!(layout.superblock_len(expected.size), pages.len() as u64);
        let (first, behind) = pages.split_first_chunk().unwrap();
        let found = Unverified::decode(first).unwrap().verify(&mac, behind, tags.len() as u64);
        assert_eq!(found, Ok((expected, tags.clone())));
        assert!(expected.encode(&mac, &tags) == pages);
    }
}

#[test]
fn map_pages_say_which_objects_exist() {
    for vectors in Vectors::of_every_cipher() {
        let cipher = metadata_cipher(&vectors.key, &vectors.context("metadata"));
        let vector = &vectors.all["map"];
        let (zone, page) = (ZoneNumber(number(&vector["zone"])), array(&vector["page"]));
        let tag = MapTag::of(&page, cipher.seal_len());
        let open = |zone, tag| ZoneMap::open(&cipher, vectors.payload.lineage, zone, tag, &page);
        let map = open(zone, tag).unwrap();
        let objects = vector["objects"].as_array().unwrap();
        assert_eq!(map.count(), objects.len() as u64);
        assert!(objects.iter().all(|object| map.exists(ObjectNumber(number(object)))));
        assert!(open(ZoneNumber(zone.0 + 1), tag).is_err());
        assert!(open(zone, MapTag([0; 16])).is_err());
    }
}

#[test]
fn a_journal_brings_its_volume_up_to_date() {
    for vectors in Vectors::of_every_cipher() {
        let vector = &vectors.all["journal"];
        let mut image = Image::new(number(&vector["store_size"]));
        for (offset, content) in vector["store"].as_object().unwrap() {
            image.write(offset.parse().unwrap(), &bytes(content));
        }
        let mut disk = vec![0; number(&vector["size"]) as usize];
        for (lba, sector) in vector["disk"].as_object().unwrap() {
            disk[lba.parse::<usize>().unwrap() * 4096..][..4096].copy_from_slice(&bytes(sector));
        }
        for read_only in [true, false] {
            let store = Arc::new(MemoryStore::from_image(image.clone(), 512));
            let options = OpenOptions { read_only, ..Default::default() };
            let payload = sealdisk_layout::Payload::Sealed(vectors.payload);
            let volume = Volume::open(store, "vector", &payload, &vectors.key, options).unwrap();
            assert!(read_all(&volume) == disk, "{}", vectors.payload.cipher);
        }
    }
}

#[test]
fn objects_of_every_layout_open() {
    for vectors in Vectors::of_every_cipher() {
        for vector in vectors.all["layouts"].as_array().unwrap() {
            let layout: LayoutName = vector["layout"].as_str().unwrap().parse().unwrap();
            let payload = SealedPayload { layout, ..vectors.payload };
            let story = format!("{}, {layout}", payload.cipher);
            for purpose in ["sector", "metadata", "superblock"] {
                let (cipher, offset) = (payload.cipher, payload.offset);
                let info = format!("sealdisk/1/{purpose}/{cipher}/layout={layout} fold=true offset={offset}/epoch=0");
                assert_eq!(vector["keys"][purpose]["info"].as_str(), Some(&*info));
            }

            let wrapped = sealdisk_layout::Payload::Sealed(payload);
            let size = number(&vector["size"]);
            let store = MemoryObjects::new(
                Volume::object_store_size(&wrapped, size),
                layout.object_size(),
                layout == LayoutName::Omap,
            );
            for (object, content) in vector["objects"].as_object().unwrap() {
                let pieces = content["bytes"].as_object().unwrap().iter();
                let pieces: Vec<_> = pieces.map(|(offset, piece)| (offset.parse().unwrap(), bytes(piece))).collect();
                let values = content["omap"].as_object().unwrap().iter();
                let values: Vec<_> =
                    values.map(|(key, value)| (u32::from_str_radix(key, 16).unwrap(), bytes(value))).collect();
                let mut steps = Vec::new();
                for (offset, buf) in &pieces {
                    steps.push(Step::Write(WriteExtent { offset: *offset, buf }));
                }
                steps.extend(values.iter().map(|(key, value)| Step::Set { key: *key, value }));
                put(&store, u64::from_str_radix(object, 16).unwrap(), steps);
            }
            let options = OpenOptions { read_only: true, ..Default::default() };
            let volume = Volume::open(Arc::new(store), "vector", &wrapped, &vectors.key, options).unwrap();
            assert_eq!(volume.size(), size);
            let disk = vector["disk"].as_object().unwrap();
            assert_eq!(disk.len(), 4);
            let mut sector = [0; 4096];
            let first = disk.keys().map(|lba| lba.parse::<u64>().unwrap()).min().unwrap();
            for (lba, content) in disk {
                support::read(&volume, lba.parse::<u64>().unwrap() * 4096, &mut sector).unwrap();
                assert!(sector == array(content), "{story}: sector {lba}");
            }
            // There is no map page for what lies in front, and an object that the map does not have lies behind.
            support::read(&volume, (first - 1) * 4096, &mut sector).unwrap_err();
            let last = size / 4096;
            support::read(&volume, last * 4096, &mut sector[..789]).unwrap();
            assert!(sector[..789] == [0; 789], "{story}: an absent object");
            if payload.cipher != CipherName::Aes256XtsRandom {
                support::read(&volume, (first + 1) * 4096, &mut sector).unwrap_err();
            }
        }
    }
}

#[test]
fn folded_texts_unfold_or_are_malformed() {
    let vectors = read("folding.json");
    let (mut good, mut bad) = (0, 0);
    for vector in vectors.as_array().unwrap() {
        let mut text = bytes(&vector["text"]);
        text.resize(text.len() + vector["zeros"].as_u64().unwrap_or(0) as usize, 0);
        let mut sector = [0; 4096];
        let unfolded = unfold(&text, &mut sector);
        match vector["malformed"].as_str() {
            Some(why) => assert!(unfolded.is_err(), "{why}"),
            None => assert!(unfolded.is_ok() && sector == array(&vector["sector"])),
        }
        *if vector["malformed"].is_null() { &mut good } else { &mut bad } += 1;
    }
    assert_eq!((good, bad), (3, 8));
}
