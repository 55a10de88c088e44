//! Volumes without a journal, in every layout, that one implementation writes and the other reads.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{FormatOptions, Header, Payload, Pbkdf};
use sealdisk_layout::{LayoutName, SealedPayload};
use sealdisk_store::{Choices, MemoryObjects, ObjectImage, Store, WriteExtent};
use sealdisk_units::{ByteRange, Lineage, OBJECT_SIZE};
use sealdisk_volume::{OpenOptions, Space, Volume};
use support::Random;
use tempfile::TempDir;

use crate::exchange::{OFFSET, PASSPHRASE, assert_same, bare_description, passphrase, read_all, sealed_ciphers, work};
use crate::objects_folder::Folder;
use crate::python;

pub const LAYOUTS: [LayoutName; 4] =
    [LayoutName::Packed, LayoutName::ObjectEnd, LayoutName::Omap, LayoutName::Unaligned];

/// Every cipher in every layout, some of both folding.
fn kinds() -> impl Iterator<Item = (CipherName, LayoutName, bool)> {
    let ciphers = sealed_ciphers().enumerate();
    ciphers.flat_map(|(c, cipher)| {
        LAYOUTS.into_iter().enumerate().map(move |(l, layout)| (cipher, layout, (c + l) % 2 == 0))
    })
}

/// How many sectors an object has, and how many slots a page: section 6's formulas.
pub fn shape(sealed: &SealedPayload) -> (u64, u64) {
    let slots = 4096 / sealed.cipher.seal_len() as u64;
    (if sealed.layout == LayoutName::Packed { 1024 * slots / (slots + 1) / 16 * 16 } else { 1024 }, slots)
}

/// Objects of the store, by their numbers.
#[derive(Clone, Copy)]
pub struct Places {
    /// With the superblocks.
    pub superblocks: u64,
    /// With the first map page.
    pub map: u64,
    /// The first with data.
    pub data: u64,
}

impl Places {
    pub fn of(layout: LayoutName) -> Self {
        let superblocks = OFFSET / layout.object_size();
        Self { superblocks, map: superblocks + 1, data: superblocks + 2 }
    }
}

/// A folder with a volume's objects, the secret that opens it, and room for the disk's bytes.
pub struct Scratch {
    folder: TempDir,
    pub objects: Folder,
    object_size: u64,
}

impl Scratch {
    pub fn new(secret: &[u8], layout: LayoutName) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let objects = Folder::at(folder.path().join("objects"));
        let scratch = Self { objects, folder, object_size: layout.object_size() };
        fs::write(scratch.secret(), secret).unwrap();
        scratch
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn header(&self) -> PathBuf {
        self.folder.path().join("header")
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The bytes of a header for this payload.
    fn new_header(&self, sealed: SealedPayload, key: &VolumeKey) -> Vec<u8> {
        File::create(self.header()).unwrap().set_len(OFFSET + OBJECT_SIZE).unwrap();
        let options = FormatOptions { payload: Payload::Sealed(sealed), label: None, pbkdf: Pbkdf::CHEAPEST };
        Header::format(&self.header(), &options, key, &passphrase()).unwrap();
        let mut header = fs::read(self.header()).unwrap();
        header.truncate(OFFSET as usize);
        header
    }

    /// Payload and volume key, as the header among the objects has them.
    fn unlock(&self) -> (SealedPayload, VolumeKey) {
        let file = File::create(self.header()).unwrap();
        file.set_len(OFFSET + OBJECT_SIZE).unwrap();
        for object in 0..OFFSET / self.object_size {
            let bytes = self.objects.read(object, 0, self.object_size as usize);
            file.write_all_at(&bytes, object * self.object_size).unwrap();
        }
        let header = Header::load(&self.header()).unwrap();
        let Payload::Sealed(sealed) = *header.payload() else { panic!("a sealed volume") };
        (sealed, header.unlock(&passphrase(), None).unwrap())
    }

    fn paths(&self) -> [PathBuf; 3] {
        [self.objects.path().to_owned(), self.secret(), self.disk()]
    }

    pub fn read_by_python(&self, options: &[&str]) -> Vec<u8> {
        self.reading(options, |arguments| python::run("reader.py", arguments));
        fs::read(self.disk()).unwrap()
    }

    pub fn refused_by_python(&self, options: &[&str]) -> String {
        self.reading(options, |arguments| python::fails("reader.py", arguments))
    }

    fn reading<T>(&self, options: &[&str], run: impl FnOnce(&[&OsStr]) -> T) -> T {
        let object_size = self.object_size.to_string();
        let options: Vec<_> = options.iter().copied().chain(["--object-size", &object_size]).collect();
        run(&arguments(&options, &self.paths()))
    }
}

fn arguments<'a>(options: &'a [&'a str], paths: &'a [PathBuf]) -> Vec<&'a OsStr> {
    options.iter().map(OsStr::new).chain(paths.iter().map(|path| path.as_os_str())).collect()
}

pub fn store_size(sealed: SealedPayload, size: u64) -> u64 {
    Volume::object_store_size(&Payload::Sealed(sealed), size)
}

pub fn has_keys(sealed: &SealedPayload) -> bool {
    sealed.layout == LayoutName::Omap
}

pub fn open(store: &Arc<MemoryObjects>, sealed: SealedPayload, key: &VolumeKey, read_only: bool) -> Volume {
    let options = OpenOptions { read_only, memory: 4 << 20 };
    Volume::open(store.clone(), "test", &Payload::Sealed(sealed), key, options).unwrap()
}

fn resize(store: &Arc<MemoryObjects>, sealed: SealedPayload, key: &VolumeKey, disk: &mut Vec<u8>, size: u64) {
    Volume::resize(store.clone(), "test", &Payload::Sealed(sealed), key, size, true).unwrap();
    disk.resize(size as usize, 0);
}

#[test]
fn python_reads_what_sealdisk_writes_to_objects() {
    let seed = Random::seed_from_environment("python_reads_what_sealdisk_writes_to_objects");
    let random = &mut Random::new(seed);
    for (cipher, layout, fold) in kinds() {
        let mut lineage = [0; 16];
        random.fill(&mut lineage);
        let sealed = SealedPayload { cipher, layout, fold, lineage: Lineage(lineage), offset: OFFSET };
        let (sectors, _) = shape(&sealed);
        let size = (3 * sectors + 300) * 4096 + 512;
        let (scratch, key) = (Scratch::new(PASSPHRASE, layout), VolumeKey::generate().unwrap());
        let store =
            Arc::new(MemoryObjects::new(store_size(sealed, size), sealed.layout.object_size(), has_keys(&sealed)));
        store.write(&[WriteExtent { offset: 0, buf: &scratch.new_header(sealed, &key) }]).unwrap();
        Volume::format(&*store, &Payload::Sealed(sealed), &key, size).unwrap();
        let story = format!("{cipher}, {layout}, fold {fold}, seed {seed}");

        let mut disk = vec![0; size as usize];
        let volume = open(&store, sealed, &key, false);
        work(&volume, &mut disk, sectors, random);
        // As after a crash.
        drop(volume);
        scratch.objects.save(&store.image());
        assert_same(&scratch.read_by_python(&[]), &disk, &format!("{story}, not closed"));

        // What is cut off is gone, and does not come back.
        resize(&store, sealed, &key, &mut disk, (sectors + 200) * 4096 + 100);
        resize(&store, sealed, &key, &mut disk, (2 * sectors + 50) * 4096);
        let volume = open(&store, sealed, &key, false);
        work(&volume, &mut disk, sectors, random);
        volume.close().unwrap();
        scratch.objects.save(&store.image());
        assert_same(&scratch.read_by_python(&[]), &disk, &format!("{story}, closed"));
    }
}

#[test]
fn sealdisk_reads_what_python_writes_to_objects() {
    let seed = Random::seed_from_environment("sealdisk_reads_what_python_writes_to_objects");
    let random = &mut Random::new(seed);
    for ((cipher, layout, fold), clean) in kinds().flat_map(|kind| [(kind, false), (kind, true)]) {
        let scratch = Scratch::new(PASSPHRASE, layout);
        let mut options = vec!["--cipher", cipher.as_str(), "--objects", layout.as_str()];
        options.extend(fold.then_some("--fold"));
        options.extend(clean.then_some("--clean"));
        python::run("writer.py", &arguments(&options, &scratch.paths()));
        let mut disk = fs::read(scratch.disk()).unwrap();
        let story = format!("{cipher}, {layout}, fold {fold}, clean {clean}, seed {seed}");

        let (sealed, key) = scratch.unlock();
        assert_eq!((sealed.cipher, sealed.layout, sealed.fold), (cipher, layout, fold));
        let size = store_size(sealed, disk.len() as u64);
        let store = Arc::new(scratch.objects.load(size, sealed.layout.object_size(), has_keys(&sealed)));
        assert_same(&read_all(&open(&store, sealed, &key, true)), &disk, &format!("{story}, read-only"));
        let volume = open(&store, sealed, &key, false);
        assert_same(&read_all(&volume), &disk, &story);
        work(&volume, &mut disk, shape(&sealed).0, random);
        assert_same(&read_all(&volume), &disk, &format!("{story}, written to"));
        volume.close().unwrap();
        scratch.objects.save(&store.image());
        assert_same(&scratch.read_by_python(&[]), &disk, &format!("{story}, back in Python"));
    }
}

/// What stands in a store: the newest superblock's generation, its tag of zone 0's map page, and the tag that the page has.
pub fn map_of(image: &ObjectImage, cipher: CipherName, layout: LayoutName) -> (u64, [u8; 16], [u8; 16]) {
    let places = Places::of(layout);
    let copy = |at: u64| {
        let (mut generation, mut tag) = ([0; 8], [0; 16]);
        image.bytes(places.superblocks, at + 16, &mut generation);
        image.bytes(places.superblocks, at + 4096, &mut tag);
        (u64::from_le_bytes(generation), tag)
    };
    let (generation, announced) = copy(0).max(copy(2 << 20));
    // Records are authenticated beside every cipher.
    let metadata_cipher = if cipher.is_authenticated() { cipher } else { CipherName::Aes256Gcm };
    let seal_len = metadata_cipher.seal_len() as u64;
    let mut tag = [0; 16];
    image.bytes(places.map, seal_len - 16, &mut tag);
    (generation, announced, tag)
}

/// Whatever a crash leaves of objects, both see the same disk in it.
#[test]
fn both_read_what_a_crash_leaves_of_objects() {
    let seed = Random::seed_from_environment("both_read_what_a_crash_leaves_of_objects");
    let random = &mut Random::new(seed);
    for (cipher, layout, fold) in kinds().step_by(3) {
        let sealed = SealedPayload { cipher, layout, fold, lineage: Lineage([3; 16]), offset: OFFSET };
        let (sectors, _) = shape(&sealed);
        let size = (2 * sectors + 300) * 4096 + 512;
        let key = support::key();
        let store =
            Arc::new(MemoryObjects::new(store_size(sealed, size), sealed.layout.object_size(), has_keys(&sealed)));
        Volume::format(&*store, &Payload::Sealed(sealed), &key, size).unwrap();
        let formatted = store.call_count();
        let volume = open(&store, sealed, &key, false);
        work(&volume, &mut vec![0; size as usize], sectors, random);
        // Objects go and come at the end, whatever happened before.
        volume.zero(ByteRange::checked(0, size, size).unwrap(), Space::Free).unwrap();
        work(&volume, &mut vec![0; size as usize], sectors, random);
        volume.close().unwrap();

        let (mut announced, mut others) = (Vec::new(), Vec::new());
        let mut crashes = store.crashes();
        for at in formatted..=store.call_count() {
            let image = crashes.at(at, random);
            let (_, newest, there) = map_of(&image, cipher, layout);
            if newest == there { &mut others } else { &mut announced }.push((at, image));
        }
        assert!(!announced.is_empty(), "no crash kept a map page from coming; seed {seed}");
        let scratch = Scratch::new(bare_description(&sealed).as_bytes(), layout);
        for (which, states) in [("announced", &announced), ("announced", &announced), ("any", &others)] {
            let (at, image) = &states[random.below(states.len() as u64) as usize];
            let story = format!("{cipher}, {layout}, fold {fold}, {which}, call {at}, seed {seed}");
            scratch.objects.save(image);
            let by_python = scratch.read_by_python(&["--bare"]);
            let after = Arc::new(MemoryObjects::from_image(
                image.clone(),
                store_size(sealed, size),
                sealed.layout.object_size(),
                has_keys(&sealed),
            ));
            assert_same(&by_python, &read_all(&open(&after, sealed, &key, true)), &story);
        }
    }
}
