//! A folder with a volume's objects, in which `stores.py` finds them: `NUMBER` has an object's bytes, `NUMBER.omap` its keys.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sealdisk_store::{MemoryObjects, ObjectImage, ObjectRead, ObjectStore, ObjectWrite, Step, WriteExtent};
use sealdisk_units::OBJECT_SIZE;

/// More than any layout has in an object, and more keys.
const MOST_BYTES: usize = 2 * OBJECT_SIZE as usize;
const MOST_KEYS: u32 = 2048;

/// Objects as files.
pub struct Folder(PathBuf);

impl Folder {
    /// What lies in this folder, or is to.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn bytes_of(&self, object: u64) -> PathBuf {
        self.0.join(format!("{object:016x}"))
    }

    fn keys_of(&self, object: u64) -> PathBuf {
        self.0.join(format!("{object:016x}.omap"))
    }

    /// Makes the folder anew, with all objects of a store as it is now, without zeros at their ends.
    pub fn save(&self, image: &ObjectImage) {
        if self.0.exists() {
            fs::remove_dir_all(&self.0).unwrap();
        }
        fs::create_dir(&self.0).unwrap();
        let store = MemoryObjects::from_image(image.clone(), 0, OBJECT_SIZE, true);
        let mut bytes = vec![0; MOST_BYTES];
        for object in image.numbers() {
            image.bytes(object, 0, &mut bytes);
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            fs::write(self.bytes_of(object), &bytes[..end]).unwrap();
            let mut reads = [ObjectRead::new(object)];
            reads[0].keys = (0..MOST_KEYS).collect();
            store.read_objects(&mut reads);
            let [read] = reads;
            self.set_values(object, &read.values.into_iter().collect());
        }
    }

    /// A store with what lies here.
    pub fn load(&self, size: u64, object_size: u64, keys: bool) -> MemoryObjects {
        let store = MemoryObjects::new(size, object_size, keys);
        for entry in fs::read_dir(&self.0).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".omap") {
                continue;
            }
            let object = u64::from_str_radix(&name, 16).unwrap();
            let (bytes, values) = (fs::read(self.bytes_of(object)).unwrap(), self.values(object));
            let mut steps = vec![Step::Write(WriteExtent { offset: 0, buf: &bytes })];
            steps.extend(values.iter().map(|(key, value)| Step::Set { key: *key, value }));
            put(&store, object, steps);
        }
        store
    }

    /// The object is there no longer.
    pub fn remove(&self, object: u64) {
        fs::remove_file(self.bytes_of(object)).unwrap();
        self.set_values(object, &BTreeMap::new());
    }

    /// Changes bytes of an object.
    pub fn write(&self, object: u64, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.bytes_of(object)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    /// Bytes of an object.
    pub fn read(&self, object: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = fs::read(self.bytes_of(object)).unwrap();
        bytes.resize(bytes.len().max(offset as usize + len), 0);
        bytes[offset as usize..][..len].to_vec()
    }

    /// The keys of an object.
    pub fn values(&self, object: u64) -> BTreeMap<u32, Vec<u8>> {
        let Ok(text) = fs::read(self.keys_of(object)) else { return BTreeMap::new() };
        let values: BTreeMap<String, String> = serde_json::from_slice(&text).unwrap();
        let number = |key: String| u32::from_str_radix(&key, 16).unwrap();
        values.into_iter().map(|(key, value)| (number(key), unhex(&value))).collect()
    }

    /// Gives an object these keys and no others.
    pub fn set_values(&self, object: u64, values: &BTreeMap<u32, Vec<u8>>) {
        if values.is_empty() {
            // There may have been none.
            let _ = fs::remove_file(self.keys_of(object));
            return;
        }
        let says: BTreeMap<_, _> = values.iter().map(|(key, value)| (format!("{key:08x}"), hex(value))).collect();
        fs::write(self.keys_of(object), serde_json::to_vec(&says).unwrap()).unwrap();
    }
}

/// Changes an object of a store.
pub fn put(store: &MemoryObjects, object: u64, steps: Vec<Step<'_>>) {
    let mut writes = [ObjectWrite::new(object, steps)];
    store.write_objects(&mut writes);
    let [write] = writes;
    write.result.unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
