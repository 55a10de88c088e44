//! Sealdisk's volumes on images: made by the benchmark, served by a process of their own.
//!
//! They have no header, since what opens a volume is not measured: cipher and layout are said on the command line, and the
//! key lies in a file. Everything behind the header is as `sealdisk format` makes it and `sealdisk attach` serves it.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_export::Disk;
use sealdisk_layout::{LayoutName, Payload, PlainPayload, SealedPayload};
use sealdisk_rados::{Cluster, Credentials, ImageName, RbdStore};
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::{Lineage, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions as VolumeOptions, Volume};
use zeroize::Zeroizing;

use super::failure;
use crate::serving::{offer_nbd, serve_until_asked};
use crate::{BenchError, Interrupt};

/// Where data begin: behind as much room as `sealdisk format` leaves for a header.
const OFFSET: u64 = 16 << 20;
/// Bytes of a volume key.
const KEY_LEN: usize = 64;

/// What a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeKind {
    /// How sectors are encrypted.
    pub cipher: CipherName,
    /// Where seals lie.
    pub layout: LayoutName,
    /// Whether sectors are folded.
    pub fold: bool,
}

impl VolumeKind {
    /// What a header would say.
    pub fn payload(self) -> Payload {
        let Self { cipher, layout, fold } = self;
        match layout {
            LayoutName::LengthPreserving => Payload::Plain(PlainPayload {
                offset: OFFSET,
                size: None,
                sector_size: SECTOR_SIZE as u32,
                iv_tweak: 0,
            }),
            // Nothing is copied from these volumes to others.
            _ => Payload::Sealed(SealedPayload { cipher, layout, fold, lineage: Lineage([0; 16]), offset: OFFSET }),
        }
    }
}

/// A volume that a process is to serve.
#[derive(Debug, Clone)]
pub struct ServedVolume {
    /// Where it lies.
    pub image: ImageName,
    /// Who opens it.
    pub credentials: Credentials,
    /// What it is.
    pub kind: VolumeKind,
    /// The file with its key: 64 bytes.
    pub key: PathBuf,
    /// Where NBD clients will find it.
    pub socket: PathBuf,
    /// About how much memory the volume may take, in bytes.
    pub memory: usize,
    /// How much requests of its clients may take, in bytes.
    pub requests: usize,
}

/// Serves a volume over NBD until the benchmark asks for the end. Prints where the disk is when it is ready.
pub fn serve(served: &ServedVolume, interrupt: &Interrupt) -> Result<(), BenchError> {
    let name = served.image.to_string();
    let cluster = Cluster::connect(&served.credentials).map_err(failure)?;
    let store = RbdStore::open(&cluster, &served.image, OpenMode::ReadWrite).map_err(failure)?;
    let key = read_key(&served.key)?;
    let options = VolumeOptions { read_only: false, memory: served.memory };
    let mut volume = Volume::open(Arc::new(store), &name, &served.kind.payload(), &key, options).map_err(failure)?;
    drop(key);
    volume.start_background();
    let volume = Arc::new(volume);
    let disk: Arc<dyn Disk> = Arc::<Volume>::clone(&volume);
    serve_until_asked(offer_nbd(disk, &served.socket, served.requests)?, interrupt)?;
    match Arc::try_unwrap(volume) {
        Ok(volume) => volume.close().map_err(failure),
        // A client's thread has not ended yet.
        Err(volume) => volume.flush().map_err(failure),
    }
}

/// Makes a volume of `size` bytes in an image that is large enough. Not every pool can hold every layout.
pub(super) fn format(store: &dyn Store, kind: VolumeKind, key: &VolumeKey, size: u64) -> Result<(), BenchError> {
    Volume::format(store, &kind.payload(), key, size).map_err(|error| BenchError::Unsuited(error.to_string()))
}

/// The share of sectors that carry their own seals; `None` where there is nothing to see.
pub(super) fn folded_share(store: &dyn Store, kind: VolumeKind) -> Result<Option<f64>, BenchError> {
    let forms = Volume::sector_forms(store, &kind.payload(), &mut |_, _| {}).map_err(failure)?;
    Ok(forms.and_then(|forms| {
        let all = forms.folded + forms.plain;
        (all > 0).then(|| forms.folded as f64 / all as f64)
    }))
}

/// Makes a key and writes it to a new file that nobody else reads.
pub(super) fn make_key(path: &Path) -> Result<VolumeKey, BenchError> {
    let key = VolumeKey::generate().map_err(|e| BenchError::Wrong(format!("no random numbers: {e}")))?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(BenchError::path(path))?;
    file.write_all(key.expose()).map_err(BenchError::path(path))?;
    Ok(key)
}

fn read_key(path: &Path) -> Result<VolumeKey, BenchError> {
    let mut file = std::fs::File::open(path).map_err(BenchError::path(path))?;
    // Of its final size from the beginning: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(vec![0; KEY_LEN].into_boxed_slice());
    file.read_exact(&mut bytes).map_err(BenchError::path(path))?;
    VolumeKey::new(bytes).map_err(|e| BenchError::Wrong(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let made = make_key(&path).unwrap();
        assert_eq!(read_key(&path).unwrap().expose(), made.expose());
        assert!(make_key(&path).is_err());
        std::fs::write(&path, [1; 63]).unwrap();
        assert!(read_key(&path).unwrap_err().to_string().contains("failed to fill whole buffer"));
    }
}
