//! A file in which a volume's header can be worked on, and its way back to where it lies.
//!
//! libcryptsetup works on files and devices. The header of an image is brought into an anonymous file, which holds what
//! lies on the image and no plaintext key, and what is changed there is written back.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use sealdisk_header::{BadCopy, Header, HeaderCopy, HeaderError, ObjectEdit};
use sealdisk_rados::ObjectChange;
use sealdisk_store::{OpenMode, ReadExtent, Store};

use crate::failure::Failure;
use crate::location::image::ImageLocation;

/// As much as cryptsetup takes for a header by default, and as librbd does.
const USUAL: u64 = 16 << 20;
/// Two copies of 4 MiB and 128 MiB for key slots are the most that LUKS2 allows.
const MOST: u64 = 136 << 20;
/// Bytes that are brought here at once.
const STEP: usize = 4 << 20;
/// How often others may be faster.
const TRIES: u32 = 5;

/// A file with a header.
pub struct HeaderFile {
    path: PathBuf,
    /// What the volume is called.
    shown: String,
    origin: Origin,
}

enum Origin {
    /// The file is the volume.
    Itself,
    /// What lay on an image when another process looked.
    Looked(#[expect(dead_code, reason = "keeps the file, which has no name")] File),
    /// What lies on an image.
    Image(Box<Copy>),
}

struct Copy {
    image: ImageLocation,
    file: File,
    /// The beginning of the image, as it is there.
    before: Vec<u8>,
}

impl HeaderFile {
    /// The header of a file or device.
    pub fn of_file(path: &Path) -> Self {
        Self { path: path.to_owned(), shown: path.display().to_string(), origin: Origin::Itself }
    }

    /// The header that [`fetch`] has put into an anonymous file, for a volume of this name. To be looked at only.
    pub fn of_anonymous_file(file: File, shown: String) -> Self {
        Self { path: path_of(&file), shown, origin: Origin::Looked(file) }
    }

    /// The header of an image.
    pub fn of_image(image: ImageLocation) -> Result<Self, Failure> {
        let file = anonymous_file()?;
        let before = fetch(&image.store(OpenMode::ReadOnly)?, &file)?;
        let (path, shown) = (path_of(&file), image.to_string());
        Ok(Self { path, shown, origin: Origin::Image(Box::new(Copy { image, file, before })) })
    }

    /// What the volume is called.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Loads the header.
    pub fn load(&self) -> Result<Header, Failure> {
        Header::load(&self.path).map_err(|error| self.failure(error))
    }

    /// Looks at the file with the header.
    pub fn read<T>(&self, act: impl FnOnce(&Path) -> Result<T, HeaderError>) -> Result<T, Failure> {
        act(&self.path).map_err(|error| self.failure(error))
    }

    /// Changes the header. If somebody else does so at the same time, both changes are made, one after the other: `act`
    /// may be called more than once.
    pub fn change<T>(&mut self, mut act: impl FnMut(&Path) -> Result<T, HeaderError>) -> Result<T, Failure> {
        if let Origin::Image(copy) = &self.origin
            && copy.image.name.snapshot.is_some()
        {
            return Err(Failure::device(format_args!("{} is a snapshot, which nothing can change", self.shown)));
        }
        for _ in 0..TRIES {
            let done = act(&self.path).map_err(|error| self.failure(error))?;
            if self.write_back()? {
                return Ok(done);
            }
        }
        Err(Failure::busy(format_args!("{}: others keep changing the header; try again", self.shown)))
    }

    /// Whether it was written where it belongs. If not, the file has what others made of it meanwhile.
    fn write_back(&mut self) -> Result<bool, Failure> {
        let map = Header::load(&self.path).map_err(|error| self.failure(error))?.map();
        let Origin::Image(copy) = &mut self.origin else { return Ok(true) };
        let Copy { image, file, before } = &mut **copy;
        let failed = |e: io::Error| Failure::io(format_args!("reading the header of {image}"), &e);
        let mut after = vec![0; before.len()];
        file.read_exact_at(&mut after, 0).map_err(failed)?;
        let open = std::sync::Arc::new(image.whole_image(OpenMode::ReadWrite)?);
        let object_size = open.object_size().map_err(|error| image.failure(error))?;
        let edits = ObjectEdit::between(before, &after, &map, object_size);
        let changes: Vec<ObjectChange> =
            edits.into_iter().map(|edit| object_change(edit, before, object_size)).collect();
        match open.change(&changes) {
            Ok(()) => {
                *before = after;
                Ok(true)
            }
            Err(error) if error.is_mismatch() => {
                *before = fetch(&image.store(OpenMode::ReadOnly)?, file)?;
                Ok(false)
            }
            Err(error) => Err(image.failure(error)),
        }
    }

    /// The failure that an error about this header is.
    pub fn failure(&self, error: HeaderError) -> Failure {
        error.about(&self.shown).into()
    }
}

/// A file that has no name and takes memory only where it is written.
pub fn anonymous_file() -> Result<File, Failure> {
    let made = memfd_create("sealdisk-header", MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(|e| Failure::io("making a file in memory", &e.into()))
}

/// Makes of `file` what is at the beginning of a store, as far as a header may reach, in the store's size. Returns these
/// bytes.
pub fn fetch(store: &dyn Store, file: &File) -> Result<Vec<u8>, Failure> {
    let failed = |e: io::Error| Failure::io("copying the header into memory", &e);
    let size = store.size()?;
    file.set_len(0).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    let mut bytes = Vec::new();
    read_up_to(store, size.min(USUAL), &mut bytes)?;
    let needed = end_of_header(&bytes).unwrap_or(0);
    read_up_to(store, size.min(needed), &mut bytes)?;
    for (number, chunk) in bytes.chunks(4096).enumerate().filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0)) {
        file.write_all_at(chunk, number as u64 * 4096).map_err(failed)?;
    }
    Ok(bytes)
}

fn read_up_to(store: &dyn Store, end: u64, bytes: &mut Vec<u8>) -> Result<(), Failure> {
    let begun = bytes.len();
    if (begun as u64) < end {
        bytes.resize(end as usize, 0);
        for (number, buf) in bytes[begun..].chunks_mut(STEP).enumerate() {
            store.read(&mut [ReadExtent { offset: (begun + number * STEP) as u64, buf }])?;
        }
    }
    Ok(())
}

/// Where the header ends that the bytes begin with, if they begin with one of LUKS2.
fn end_of_header(bytes: &[u8]) -> Result<u64, BadCopy> {
    let copy = HeaderCopy::parse(bytes).or_else(|_| {
        let len = HeaderCopy::len_of(bytes)?;
        HeaderCopy::parse(bytes.get(len..).unwrap_or_default())
    })?;
    let keys = copy.json()["config"]["keyslots_size"].as_str().and_then(|size| size.parse().ok()).unwrap_or(0);
    Ok((2 * HeaderCopy::len_of(bytes)? as u64).saturating_add(keys).min(MOST))
}

fn object_change(edit: ObjectEdit, before: &[u8], object_size: u64) -> ObjectChange {
    let start = edit.object.saturating_mul(object_size).min(before.len() as u64) as usize;
    let end = (start + object_size as usize).min(before.len());
    ObjectChange {
        object: edit.object,
        base: before[start..end].to_vec(),
        expected: edit.expected,
        writes: edit.writes,
        zeros: edit.zeros,
    }
}

fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
