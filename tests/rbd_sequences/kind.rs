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
const CIPHERS: [CipherName; 4] =
    [CipherName::Aegis256, CipherName::Aes256Gcm, CipherName::XChaCha20Poly1305, CipherName::Aes256XtsRandom];
/// Of volumes that have one. So short that it is full now and then.
const JOURNAL: u64 = 1 << 20;

/// What is the same in all sequences of a name.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Images are called after it.
    pub name: &'static str,
    layout: LayoutName,
    /// Whether it folds; drawn where it makes no difference to what Ceph does.
    fold: Option<bool>,
    journal: bool,
}

impl Column {
    const fn new(name: &'static str, layout: LayoutName, fold: Option<bool>) -> Self {
        Self { name, layout, fold, journal: false }
    }
}

/// Every layout, and a volume that came from a file with its journal.
pub const COLUMNS: [Column; 7] = [
    Column::new("packed", LayoutName::Packed, Some(false)),
    Column::new("packed-folded", LayoutName::Packed, Some(true)),
    Column { journal: true, ..Column::new("packed-journaled", LayoutName::Packed, None) },
    Column::new("length-preserving", LayoutName::LengthPreserving, None),
    Column::new("object-end", LayoutName::ObjectEnd, None),
    Column::new("omap", LayoutName::Omap, None),
    Column::new("unaligned", LayoutName::Unaligned, None),
];

/// A volume's header, so to speak.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    column: Column,
    payload: Payload,
    /// Bytes of the image's objects.
    pub object_size: u64,
    /// Bytes for caches.
    memory: usize,
}

impl Kind {
    /// One of a column.
    pub fn random(column: Column, random: &mut Random) -> Self {
        let fold = random.one_in(2);
        let payload = match column.layout {
            LayoutName::LengthPreserving => Payload::Plain(PlainPayload {
                // As LUKS2 has it and as LUKS1 has it, and across the objects' borders.
                offset: [OBJECT_SIZE, OBJECT_SIZE / 2, OBJECT_SIZE / 2 + 512][random.below(3) as usize],
                size: None,
                sector_size: [512, 4096][random.below(2) as usize],
                iv_tweak: [0, 12345][random.below(2) as usize],
            }),
            layout => Payload::Sealed(SealedPayload {
                cipher: CIPHERS[random.below(CIPHERS.len() as u64) as usize],
                layout,
                fold: column.fold.unwrap_or(fold),
                lineage: Lineage([5; 16]),
                offset: OBJECT_SIZE,
            }),
        };
        // Where nothing but bytes is asked of the image, it may have others than ours.
        let any_objects = column.journal || column.layout == LayoutName::LengthPreserving;
        let object_size = if any_objects { OBJECT_SIZE << 1 >> random.below(4) } else { OBJECT_SIZE };
        // With the least, few of the slots of a disk are in memory.
        let memory = if random.one_in(2) && !column.journal { 0 } else { 8 << 20 };
        Self { column, payload, object_size, memory }
    }

    /// What its images are called.
    pub fn name(&self) -> &'static str {
        self.column.name
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
        !self.column.layout.needs_objects()
    }

    /// Whether its data may be erasure-coded, where objects have no keys.
    pub fn may_be_coded(&self) -> bool {
        self.column.layout != LayoutName::Omap
    }

    /// Whether `rbd sparsify` leaves the seals. It removes objects of zeros, keys and all; and where data is erasure-coded,
    /// it cuts off what lies behind the last byte in 4 MiB that is not zero.
    pub fn survives_sparsify(&self, coded: bool) -> bool {
        match self.column.layout {
            LayoutName::ObjectEnd => !coded,
            LayoutName::Omap => false,
            _ => true,
        }
    }

    /// Whether what was answered must be flushed to survive.
    pub fn is_volatile(&self) -> bool {
        self.column.journal
    }

    /// Bytes of an image for a disk of so many.
    pub fn image_size(&self, size: u64) -> u64 {
        match &self.payload {
            Payload::Sealed(sealed) if self.column.journal => journaled(sealed).store_size(size),
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
            Payload::Sealed(sealed) if self.column.journal => {
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

fn rows(sealed: &SealedPayload) -> PackedLayout {
    *ObjectLayout::new(sealed.layout, sealed.offset, sealed.cipher.seal_len()).unwrap().rows()
}

fn journaled(sealed: &SealedPayload) -> PackedLayout {
    PackedLayout::new(sealed.offset, JOURNAL, sealed.cipher.seal_len())
}
