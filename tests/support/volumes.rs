//! Volumes in memory.

use std::sync::Arc;

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_layout::{LayoutName, PackedLayout, Payload, SealedPayload};
use sealdisk_store::{Image, MemoryStore, Store};
use sealdisk_units::{ByteRange, Lineage};
use sealdisk_volume::{OpenError, OpenOptions, ReadRequest, Volume, VolumeError, WriteRequest};
use zeroize::Zeroizing;

/// A key for tests.
pub fn key() -> VolumeKey {
    VolumeKey::new(Zeroizing::new((0..64).collect::<Vec<u8>>().into_boxed_slice())).unwrap()
}

/// Every cipher that notices changes.
pub fn authenticated_ciphers() -> impl Iterator<Item = CipherName> + Clone {
    CipherName::ALL.into_iter().filter(|cipher| cipher.is_authenticated())
}

/// A payload right at the start of the store: the header is another test's subject.
pub fn payload(cipher: CipherName, fold: bool) -> SealedPayload {
    SealedPayload { cipher, layout: LayoutName::Packed, fold, lineage: Lineage([7; 16]), offset: 0 }
}

/// What a test volume is like.
#[derive(Debug, Clone, Copy)]
pub struct Fixture {
    /// Cipher and folding.
    pub cipher: CipherName,
    /// Whether sectors may carry their own seal.
    pub fold: bool,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Length of the journal in bytes.
    pub journal_len: u64,
    /// What the store claims never to tear.
    pub atomicity: u32,
}

impl Fixture {
    /// The payload.
    pub fn payload(&self) -> SealedPayload {
        payload(self.cipher, self.fold)
    }

    /// Where things lie.
    pub fn layout(&self) -> PackedLayout {
        PackedLayout::new(0, self.journal_len, self.cipher.seal_len())
    }

    /// A freshly formatted image.
    pub fn formatted(&self) -> Image {
        let store = MemoryStore::new(self.layout().store_size(self.size));
        Volume::format_with_journal(&store, &self.payload(), &key(), self.size, self.journal_len).unwrap();
        store.image()
    }

    /// Opens the volume on a store.
    pub fn open(&self, store: Arc<dyn Store>) -> Result<Volume, OpenError> {
        open(store, &self.payload(), false)
    }
}

/// Opens a volume with little memory, so that its caches are too small for it.
pub fn open(store: Arc<dyn Store>, payload: &SealedPayload, read_only: bool) -> Result<Volume, OpenError> {
    let options = OpenOptions { read_only, memory: 4 << 20 };
    Volume::open(store, "test", &Payload::Sealed(*payload), &key(), options)
}

/// Opens a volume without writing to its store.
pub fn read_only(store: Arc<dyn Store>, payload: &SealedPayload) -> Result<Volume, OpenError> {
    open(store, payload, true)
}

/// Reads one range.
pub fn read(volume: &Volume, offset: u64, buf: &mut [u8]) -> Result<(), VolumeError> {
    let range = ByteRange::checked(offset, buf.len() as u64, volume.size()).unwrap();
    let mut batch = [ReadRequest::new(range, buf)];
    volume.read(&mut batch);
    let [request] = batch;
    request.result
}

/// Writes one range.
pub fn write(volume: &Volume, offset: u64, buf: &[u8]) -> Result<(), VolumeError> {
    let range = ByteRange::checked(offset, buf.len() as u64, volume.size()).unwrap();
    write_one(volume, WriteRequest::new(range, buf))
}

/// The same, with memory that the volume may keep and encrypt in.
pub fn write_giving(volume: &Volume, offset: u64, buf: Vec<u8>) -> Result<(), VolumeError> {
    let range = ByteRange::checked(offset, buf.len() as u64, volume.size()).unwrap();
    write_one(volume, WriteRequest::giving(range, Box::new(buf)))
}

fn write_one(volume: &Volume, request: WriteRequest<'_>) -> Result<(), VolumeError> {
    let mut batch = [request];
    volume.write(&mut batch);
    let [request] = batch;
    request.result
}
