//! What a sequence's volumes are like.

use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_layout::{LayoutName, ObjectLayout, PackedLayout, Payload, PlainPayload, SealedPayload};
use sealdisk_rados::RbdStore;
use sealdisk_store::Choices;
use sealdisk_units::{Lineage, OBJECT_SIZE, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, Volume};
use support::{Random, key};

const SECTOR: u64 = SECTOR_SIZE as u64;
/// With seals of every length.
const CIPHERS: [CipherName; 3] = [CipherName::Aegis256X4, CipherName::Aes256Gcm, CipherName::Aes256XtsRandom];
const LAYOUTS: [LayoutName; 4] = [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];
/// Bytes of a journal, for volumes that have one: so few that it is full now and then.
const JOURNAL: u64 = 1 << 20;

/// A volume's header, so to speak.
#[derive(Debug, Clone)]
pub struct Kind {
    /// What its images are called.
    pub name: String,
    payload: Payload,
    /// Whether it has a journal, as one has that came from a file.
    journal: bool,
    /// Bytes of the image's objects.
    pub object_size: u64,
    /// Bytes for caches.
    memory: usize,
}

impl Kind {
    /// Every layout with every cipher, folded and not.
    pub fn all(random: &mut Random) -> Vec<Self> {
        let mut all = Vec::new();
        for (number, cipher) in CIPHERS.into_iter().enumerate() {
            for layout in LAYOUTS {
                all.extend([false, true].map(|fold| Self::sealed(cipher, layout, fold, random)));
            }
            let fold = random.one_in(2);
            all.push(Self::sealed(cipher, LayoutName::Packed, fold, random).with_journal(random));
            all.extend([2 * number, 2 * number + 1].map(|number| Self::plain(number, random)));
        }
        all
    }

    fn sealed(cipher: CipherName, layout: LayoutName, fold: bool, random: &mut Random) -> Self {
        let payload = SealedPayload { cipher, layout, fold, lineage: Lineage([5; 16]), offset: 2 * OBJECT_SIZE };
        Self {
            name: format!("{layout}-{cipher}{}", if fold { "-folded" } else { "" }),
            payload: Payload::Sealed(payload),
            journal: false,
            object_size: layout.object_size(),
            // With the least, few of the slots of a disk are in memory.
            memory: if random.one_in(2) { 0 } else { 8 << 20 },
        }
    }

    fn with_journal(self, random: &mut Random) -> Self {
        let name = format!("{}-journaled", self.name);
        Self { name, journal: true, object_size: any_objects(random), memory: 8 << 20, ..self }
    }

    fn plain(number: usize, random: &mut Random) -> Self {
        let payload = PlainPayload {
            // As LUKS2 has it and as LUKS1 has it, and one with which sectors lie across objects.
            offset: [OBJECT_SIZE, OBJECT_SIZE / 2, OBJECT_SIZE / 2 + 512][random.below(3) as usize],
            size: None,
            sector_size: [512, 4096][random.below(2) as usize],
            iv_tweak: [0, 12345][random.below(2) as usize],
        };
        Self {
            name: format!("length-preserving-{number}"),
            payload: Payload::Plain(payload),
            journal: false,
            object_size: any_objects(random),
            memory: 0,
        }
    }

    fn layout(&self) -> LayoutName {
        match self.payload {
            Payload::Plain(_) => LayoutName::LengthPreserving,
            Payload::Sealed(sealed) => sealed.layout,
        }
    }

    /// Bytes that a disk's size is a multiple of.
    pub fn unit(&self) -> u64 {
        match self.payload {
            Payload::Plain(plain) => plain.sector_size.into(),
            Payload::Sealed(_) => SECTOR,
        }
    }

    /// Where on the disk an object begins, and how much of the disk each holds.
    pub fn objects(&self) -> (u64, u64) {
        match self.payload {
            Payload::Plain(plain) => (self.object_size - plain.offset % self.object_size, self.object_size),
            Payload::Sealed(sealed) => (0, rows(&sealed).sectors_per_object() * SECTOR),
        }
    }

    /// Whether clones have the seals. `docs/ceph-operations.md` says which do not.
    pub fn can_be_cloned(&self) -> bool {
        self.layout() != LayoutName::Omap
    }

    /// Whether its data may be erasure-coded, where objects have no keys.
    pub fn may_be_coded(&self) -> bool {
        self.layout() != LayoutName::Omap
    }

    /// Whether `rbd sparsify` leaves the seals. It removes objects of zeros, keys and all.
    pub fn survives_sparsify(&self) -> bool {
        self.layout() != LayoutName::Omap
    }

    /// Whether what was answered must be flushed to survive.
    pub fn is_volatile(&self) -> bool {
        self.journal
    }

    /// Bytes of an image for a disk of so many.
    pub fn image_size(&self, size: u64) -> u64 {
        match &self.payload {
            Payload::Sealed(sealed) if self.journal => journaled(sealed).store_size(size),
            payload => Volume::object_store_size(payload, size),
        }
    }

    /// How large the disk is when it is next opened, if others have given its image another size.
    pub fn size_in(&self, image_size: u64) -> Option<u64> {
        match self.payload {
            Payload::Plain(plain) => Some((image_size - plain.offset) / self.unit() * self.unit()),
            Payload::Sealed(_) => None,
        }
    }

    /// Makes a disk of so many bytes.
    pub fn format(&self, store: &RbdStore, size: u64) {
        match &self.payload {
            Payload::Sealed(sealed) if self.journal => {
                Volume::format_with_journal(store, sealed, &key(), size, JOURNAL).unwrap();
            }
            payload => Volume::format(store, payload, &key(), size).unwrap(),
        }
    }

    /// Opens a disk.
    pub fn open(&self, store: Arc<RbdStore>, image: &str, read_only: bool) -> Volume {
        let options = OpenOptions { read_only, memory: self.memory };
        Volume::open(store, image, &self.payload, &key(), options).unwrap_or_else(|error| panic!("{image}: {error}"))
    }

    /// Gives a disk that is not open another size, and its image too.
    pub fn resize(&self, store: Arc<RbdStore>, image: &str, size: u64) {
        Volume::resize(store, image, &self.payload, &key(), size, true)
            .unwrap_or_else(|error| panic!("{image}: {error}"));
    }
}

/// Where nothing but bytes is asked of an image, it may have other objects than ours.
fn any_objects(random: &mut Random) -> u64 {
    OBJECT_SIZE << 1 >> random.below(4)
}

fn rows(sealed: &SealedPayload) -> PackedLayout {
    *ObjectLayout::new(sealed.layout, sealed.offset, sealed.cipher.seal_len()).unwrap().rows()
}

fn journaled(sealed: &SealedPayload) -> PackedLayout {
    PackedLayout::new(sealed.offset, JOURNAL, sealed.cipher.seal_len())
}
