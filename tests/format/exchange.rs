//! Volumes that one implementation writes and the other reads.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{FormatOptions, Header, Passphrase, Payload, Pbkdf};
use sealdisk_layout::{LayoutName, PackedLayout, PlainPayload, SealedPayload, SectorPlacement, ZoneNumber};
use sealdisk_store::{Choices, FaultStore, FileStore, Image, MemoryStore, OpenMode};
use sealdisk_units::{ByteRange, Lba, Lineage, OBJECT_SIZE};
use sealdisk_volume::{OpenOptions, Space, Volume};
use support::{Contents, Fixture, Model, Op, Random, read, write};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::python;

pub const OFFSET: u64 = 16 << 20;
/// Short, so that it wraps.
const JOURNAL_LEN: u64 = 256 << 10;
pub const PASSPHRASE: &[u8] = b"correct horse \x00 battery staple\n";

pub fn sealed_ciphers() -> impl Iterator<Item = CipherName> + Clone {
    CipherName::ALL.into_iter().filter(|cipher| cipher.seal_len() > 0)
}

pub fn passphrase() -> Passphrase {
    Passphrase::new(Zeroizing::new(PASSPHRASE.to_vec()))
}

/// All bytes of the disk.
pub fn read_all(volume: &Volume) -> Vec<u8> {
    let mut disk = vec![0; volume.size() as usize];
    for (i, part) in disk.chunks_mut(1 << 20).enumerate() {
        read(volume, (i as u64) << 20, part).unwrap();
    }
    disk
}

pub fn assert_same(found: &[u8], expected: &[u8], story: &str) {
    assert_eq!(found.len(), expected.len(), "{story}: another size");
    if let Some(lba) = found.chunks(4096).zip(expected.chunks(4096)).position(|(a, b)| a != b) {
        panic!("{story}: sector {lba} differs");
    }
}

/// A folder with a volume in a file, the passphrase in another, and room for the disk's bytes.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        fs::write(scratch.key_file(), PASSPHRASE).unwrap();
        scratch
    }

    fn volume(&self) -> PathBuf {
        self.0.path().join("volume")
    }

    fn key_file(&self) -> PathBuf {
        self.0.path().join("key")
    }

    fn disk(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    /// A header on a file that is long enough for it.
    fn header(&self, payload: Payload, key: &VolumeKey, len: u64) {
        File::create(self.volume()).unwrap().set_len(len).unwrap();
        let options = FormatOptions { payload, label: None, pbkdf: Pbkdf::CHEAPEST };
        Header::format(&self.volume(), &options, key, &passphrase()).unwrap();
    }

    fn store(&self) -> Arc<FileStore> {
        Arc::new(FileStore::open(&self.volume(), OpenMode::ReadWrite).unwrap())
    }

    /// Opens the volume as a user does: header, passphrase, payload.
    fn open(&self, read_only: bool) -> Volume {
        let header = Header::load(&self.volume()).unwrap();
        let key = header.unlock(&passphrase(), None).unwrap();
        let options = OpenOptions { read_only, memory: 4 << 20 };
        Volume::open(self.store(), "test", header.payload(), &key, options).unwrap()
    }

    fn read_by_python(&self) -> Vec<u8> {
        let (volume, key, disk) = (self.volume(), self.key_file(), self.disk());
        python::run("reader.py", &[volume.as_ref(), key.as_ref(), disk.as_ref()]);
        fs::read(disk).unwrap()
    }

    fn refused_by_python(&self) -> String {
        let (volume, key, disk) = (self.volume(), self.key_file(), self.disk());
        python::fails("reader.py", &[volume.as_ref(), key.as_ref(), disk.as_ref()])
    }
}

/// Does random things to a volume and to the bytes that it should hold.
pub fn work(volume: &Volume, disk: &mut [u8], sectors_per_object: u64, random: &mut Random) {
    for _ in 0..80 {
        let op = Model::random_op(volume.size(), sectors_per_object, random);
        match op {
            Op::Write(offset, len, contents) => {
                let mut buf = vec![0; len];
                for chunk in buf.chunks_mut(4096) {
                    let marked = if contents == Contents::Random { chunk.len() } else { chunk.len().min(100) };
                    random.fill(&mut chunk[..marked]);
                }
                write(volume, offset, &buf).unwrap();
                disk[offset as usize..][..len].copy_from_slice(&buf);
            }
            Op::Zero(offset, len, space) => {
                volume.zero(ByteRange::checked(offset, len, volume.size()).unwrap(), space).unwrap();
                disk[offset as usize..][..len as usize].fill(0);
            }
            Op::Flush => volume.flush().unwrap(),
            Op::Tidy(idle) => drop(volume.tidy(idle).unwrap()),
        }
    }
}

fn payload(cipher: CipherName, fold: bool, random: &mut Random) -> SealedPayload {
    let mut lineage = [0; 16];
    random.fill(&mut lineage);
    SealedPayload { cipher, layout: LayoutName::Packed, fold, lineage: Lineage(lineage), offset: OFFSET }
}

#[test]
fn python_reads_what_sealdisk_writes() {
    let seed = Random::seed_from_environment("python_reads_what_sealdisk_writes");
    let random = &mut Random::new(seed);
    for (cipher, fold) in sealed_ciphers().flat_map(|cipher| [(cipher, false), (cipher, true)]) {
        let sealed = payload(cipher, fold, random);
        let layout = PackedLayout::new(OFFSET, JOURNAL_LEN, cipher.seal_len());
        let sectors = layout.sectors_per_object();
        let size = (3 * sectors + 300) * 4096 + 512;
        let (scratch, key) = (Scratch::new(), VolumeKey::generate().unwrap());
        scratch.header(Payload::Sealed(sealed), &key, layout.store_size(size));
        Volume::format_with_journal(&*scratch.store(), &sealed, &key, size, JOURNAL_LEN).unwrap();
        let story = format!("{cipher}, fold {fold}, seed {seed}");

        let mut disk = vec![0; size as usize];
        let volume = scratch.open(false);
        work(&volume, &mut disk, sectors, random);
        volume.flush().unwrap();
        // As after a crash: much of it is in the journal alone.
        drop(volume);
        assert_same(&scratch.read_by_python(), &disk, &format!("{story}, not closed"));

        let volume = scratch.open(false);
        work(&volume, &mut disk, sectors, random);
        volume.close().unwrap();
        assert_same(&scratch.read_by_python(), &disk, &format!("{story}, closed"));
    }
}

#[test]
fn sealdisk_reads_what_python_writes() {
    for (cipher, fold) in sealed_ciphers().flat_map(|cipher| [(cipher, false), (cipher, true)]) {
        for clean in [false, true] {
            let scratch = Scratch::new();
            let (volume, key, expected) = (scratch.volume(), scratch.key_file(), scratch.0.path().join("expected"));
            let mut arguments: Vec<&OsStr> = vec!["--cipher".as_ref(), cipher.as_str().as_ref()];
            arguments.extend([volume.as_os_str(), key.as_os_str(), expected.as_os_str()]);
            arguments.extend(fold.then_some(OsStr::new("--fold")));
            arguments.extend(clean.then_some(OsStr::new("--clean")));
            python::run("writer.py", &arguments);
            let expected = fs::read(expected).unwrap();
            let story = format!("{cipher}, fold {fold}, clean {clean}");

            assert_same(&read_all(&scratch.open(true)), &expected, &format!("{story}, read-only"));
            assert_same(&scratch.read_by_python(), &expected, &format!("{story}, by Python"));
            if clean {
                continue;
            }
            // Puts the journal in place.
            let volume = scratch.open(false);
            assert_same(&read_all(&volume), &expected, &story);
            volume.close().unwrap();
            assert_same(&scratch.read_by_python(), &expected, &format!("{story}, recovered"));
        }
    }
}

/// Whatever a crash leaves, both see the same disk in it.
#[test]
fn both_recover_the_same_disk() {
    let seed = Random::seed_from_environment("both_recover_the_same_disk");
    let random = &mut Random::new(seed);
    for (round, cipher) in sealed_ciphers().cycle().take(8).enumerate() {
        let size = (2 * 1008 + 300) * 4096 + 512;
        let fixture =
            Fixture { cipher, fold: round >= 4, size, journal_len: 64 << 10 << random.below(3), atomicity: 512 };
        let store = Arc::new(FaultStore::new(fixture.formatted(), fixture.atomicity));
        let volume = fixture.open(store.clone()).unwrap();
        work(&volume, &mut vec![0; size as usize], fixture.layout().sectors_per_object(), random);
        drop(volume);
        let history = store.history();
        let at = history.events.len() / 2 + random.below(history.events.len() as u64 / 2) as usize;
        let image = history.crash(at, fixture.atomicity, random);

        let scratch = Scratch::new();
        write_image(&scratch.volume(), &image);
        fs::write(scratch.key_file(), bare_description(&fixture.payload())).unwrap();
        let (path, key, disk) = (scratch.volume(), scratch.key_file(), scratch.disk());
        python::run("reader.py", &["--bare".as_ref(), path.as_ref(), key.as_ref(), disk.as_ref()]);
        let store = Arc::new(MemoryStore::from_image(image, fixture.atomicity));
        let volume = support::read_only(store, &fixture.payload()).unwrap();
        assert_same(&fs::read(disk).unwrap(), &read_all(&volume), &format!("{fixture:?}, event {at}, seed {seed}"));
    }
}

fn write_image(path: &Path, image: &Image) {
    let file = File::create(path).unwrap();
    file.set_len(image.size()).unwrap();
    let mut object = vec![0; OBJECT_SIZE as usize];
    for offset in (0..image.size()).step_by(OBJECT_SIZE as usize) {
        let part = &mut object[..OBJECT_SIZE.min(image.size() - offset) as usize];
        image.read(offset, part);
        file.write_all_at(part, offset).unwrap();
    }
}

/// What a header would say of a payload, for the reader's `--bare`.
pub fn bare_description(payload: &SealedPayload) -> String {
    let SealedPayload { cipher, layout, fold, lineage, offset } = payload;
    let key: String = support::key().expose().iter().map(|byte| format!("{byte:02x}")).collect();
    let says = serde_json::json!({
        "cipher": cipher.as_str(), "layout": layout.as_str(), "fold": fold, "lineage": lineage.to_string(),
        "offset": offset, "key": key,
    });
    says.to_string()
}

/// The reader verifies what it reads, or its reading proves little.
#[test]
fn python_refuses_what_was_changed() {
    let random = &mut Random::new(1);
    let (scratch, key) = (Scratch::new(), VolumeKey::generate().unwrap());
    let sealed = payload(CipherName::Aes256Gcm, true, random);
    let layout = PackedLayout::new(OFFSET, JOURNAL_LEN, 40);
    let size = 100 * 4096;
    scratch.header(Payload::Sealed(sealed), &key, layout.store_size(size));
    Volume::format_with_journal(&*scratch.store(), &sealed, &key, size, JOURNAL_LEN).unwrap();
    let volume = scratch.open(false);
    let mut sector = [0; 4096];
    random.fill(&mut sector);
    write(&volume, 7 * 4096, &sector).unwrap();
    write(&volume, 9 * 4096, &[1; 4096]).unwrap();
    volume.zero(ByteRange::checked(11 * 4096, 4096, size).unwrap(), Space::Free).unwrap();
    volume.close().unwrap();
    scratch.read_by_python();

    let [plain, folded, zero] = [7, 9, 11].map(|lba| layout.place(Lba(lba)));
    let slot = |place: SectorPlacement| layout.seal_page(place.seal_page).offset + place.seal_offset as u64;
    let file = File::options().read(true).write(true).open(scratch.volume()).unwrap();
    for (offset, said) in [
        (plain.data.offset + 100, "Unreadable: sector 7 is not authentic"),
        (folded.data.offset + 4095, "Unreadable: sector 9 is not authentic"),
        (slot(plain), "Unreadable: sector 7 is not authentic"),
        (slot(folded) + 39, "Unreadable: sector 9 is not authentic"),
        (slot(zero) + 20, "Unreadable: sector 11 is not authentic"),
        (zero.data.offset + 4000, "Unreadable: sector 11 is not authentic"),
        (layout.map_page(ZoneNumber(0)).offset + 60, "Unreadable: sector 0 is not authentic"),
        (4096 + 40, "BadHeader"),
    ] {
        // A header has two copies, and one that is whole is enough.
        let copies: &[u64] = if offset < OFFSET { &[0, 16 << 10] } else { &[0] };
        copies.iter().for_each(|copy| flip(&file, offset + copy));
        let found = scratch.refused_by_python();
        assert!(found.contains(said), "byte {offset}: {found:?} instead of {said:?}");
        copies.iter().for_each(|copy| flip(&file, offset + copy));
    }
    scratch.read_by_python();
}

fn flip(file: &File, offset: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[test]
fn python_reads_length_preserving_volumes() {
    let random = &mut Random::new(2);
    for (sector_size, key_len, iv_tweak, size) in
        [(512, 64, 0, None), (4096, 64, 0, None), (4096, 32, 7, Some(3 << 20)), (2048, 32, u64::MAX, None)]
    {
        let plain = Payload::Plain(PlainPayload { offset: OFFSET, size, sector_size, iv_tweak });
        let mut key = vec![0; key_len];
        random.fill(&mut key);
        let key = VolumeKey::new(Zeroizing::new(key.into_boxed_slice())).unwrap();
        let scratch = Scratch::new();
        scratch.header(plain, &key, OFFSET + (3 << 20));
        let mut disk = vec![0; 3 << 20];
        random.fill(&mut disk);
        let volume = scratch.open(false);
        write(&volume, 0, &disk).unwrap();
        volume.close().unwrap();
        assert_same(&scratch.read_by_python(), &disk, &format!("{sector_size} {key_len}"));
    }
}
