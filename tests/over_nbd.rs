//! Volumes under NBD clients that keep many requests in flight: short reads go another way than long ones, and both meet
//! writes. The clients' own checks are the judges.
// A failed expectation here is a failed test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use sealdisk_cipher::CipherName;
use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export};
use sealdisk_layout::{Payload, PlainPayload};
use sealdisk_store::{FileStore, MemoryStore, OpenMode, Store};
use sealdisk_units::{Lba, SECTOR_SIZE};
use sealdisk_volume::{OpenOptions, Volume};
use support::programs::{succeed, tool};
use support::{Fixture, key, write};

const SIZE: u64 = 96 << 20;

fn fixture(cipher: CipherName, fold: bool) -> Fixture {
    Fixture { cipher, fold, size: SIZE, journal_len: 4 << 20, atomicity: 4096 }
}

/// A file of the store's size: reads go through io_uring.
fn file_store(path: &Path, len: u64) -> Arc<dyn Store> {
    std::fs::File::create(path).unwrap().set_len(len).unwrap();
    Arc::new(FileStore::open(path, OpenMode::ReadWrite).unwrap())
}

fn served(volume: Volume, folder: &Path) -> NbdExport {
    let address = ListenAddress::Unix(folder.join("socket"));
    NbdExport::start(Arc::new(volume) as Arc<dyn Disk>, &address, NbdOptions::default()).unwrap()
}

/// fio writes and reads pieces of many sizes at once, and checks what it reads by the checksums that it wrote.
fn fio_finds_what_it_wrote(mut volume: Volume) {
    volume.start_background();
    let folder = tempfile::tempdir().unwrap();
    let export = served(volume, folder.path());
    let uri = format!("--uri={}", export.address());
    for (name, sizes) in [("sectors", "4k-4k"), ("mixed", "4k-192k"), ("unaligned", "512-9k")] {
        let mut fio = tool("fio", "fio");
        fio.current_dir(folder.path()).args(["--ioengine=nbd", &uri, "--iodepth=32", "--rw=randrw", "--size=48M"]);
        fio.arg(format!("--name={name}")).arg(format!("--bsrange={sizes}")).arg("--bs_unaligned=1");
        // Checks lag behind writes, so both are in flight together.
        fio.args(["--verify=crc32c", "--verify_backlog=200", "--verify_fatal=1", "--fsync=500"]);
        succeed(&mut fio);
    }
    Box::new(export).stop().unwrap();
}

#[test]
fn fio_finds_what_it_wrote_to_sealed_volumes() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (cipher, fold) in [(CipherName::Aegis256, true), (CipherName::Aes256XtsRandom, false)] {
        let fixture = fixture(cipher, fold);
        let store = file_store(&folder.path().join("volume"), fixture.layout().store_size(SIZE));
        Volume::format_with_journal(&*store, &fixture.payload(), &key(), SIZE, fixture.journal_len).unwrap();
        let payload = Payload::Sealed(fixture.payload());
        // Little memory: most reads find neither the sector nor its seal there.
        let options = OpenOptions { read_only: false, memory: 0 };
        fio_finds_what_it_wrote(Volume::open(store, "test", &payload, &key(), options).unwrap());
    }
}

#[test]
fn fio_finds_what_it_wrote_to_a_luks2_volume() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = file_store(&folder.path().join("volume"), SIZE);
    let payload = Payload::Plain(PlainPayload { offset: 0, size: None, sector_size: 4096, iv_tweak: 0 });
    fio_finds_what_it_wrote(Volume::open(store, "test", &payload, &key(), OpenOptions::default()).unwrap());
}

/// Of many reads in flight the one that meets a changed sector fails, and no other.
#[test]
fn a_bad_sector_fails_its_own_read_only() {
    let fixture = fixture(CipherName::Aegis256, false);
    let store = Arc::new(MemoryStore::from_image(fixture.formatted(), 4096));
    let volume = fixture.open(store.clone()).unwrap();
    for lba in 0..64 {
        write(&volume, lba * SECTOR_SIZE as u64, &[lba as u8 + 1; SECTOR_SIZE]).unwrap();
    }
    volume.close().unwrap();
    let mut image = store.image();
    let place = fixture.layout().place(Lba(13)).data;
    image.write(place.offset + 100, &[0xff; 8]);
    let volume = fixture.open(Arc::new(MemoryStore::from_image(image, 4096))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let export = served(volume, folder.path());
    let script = r#"
import errno, nbd, os
h.connect_uri(os.environ["URI"])
results = {}
def done(lba, buf):
    def callback(error):
        results[lba] = error.value
        return 1
    return callback
buffers = {lba: nbd.Buffer(4096) for lba in range(64)}
for lba, buf in buffers.items():
    h.aio_pread(buf, lba * 4096, completion=done(lba, buf))
while len(results) < 64:
    h.poll(-1)
for lba, buf in buffers.items():
    if lba == 13:
        assert results[lba] == errno.EIO, results[lba]
    else:
        assert results[lba] == 0, (lba, results[lba])
        assert buf.to_bytearray() == bytearray([lba + 1]) * 4096, lba
h.shutdown()
"#;
    let mut nbdsh = tool("nbdsh", "python3-libnbd");
    // The module belongs to Debian's Python, whichever other one stands before it in the path.
    nbdsh.env("PATH", "/usr/bin:/bin").env("URI", export.address());
    succeed(nbdsh.args(["-c", script]));
    Box::new(export).stop().unwrap();
}
