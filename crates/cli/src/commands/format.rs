//! `format`: make a volume.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{FormatOptions, Header, Passphrase, Payload};
use sealdisk_layout::{LayoutName, PlainPayload, SealedPayload, check_combination};
use sealdisk_store::{OpenMode, Store};
use sealdisk_units::{Lineage, SECTOR_SIZE};
use sealdisk_volume::Volume;
use zeroize::Zeroizing;

use crate::arguments::Format;
use crate::commands::key::pbkdf;
use crate::existing;
use crate::failure::{Failure, Kind};
use crate::passphrase::{self, Purpose};
use crate::signals::{ENDING, HeldSignals};
use crate::size::ByteSize;
use crate::volume_file::{VolumeFile, loop_devices_on};

/// Bytes in front of the data, for the header: as much as cryptsetup takes by default.
const HEADER_SIZE: u64 = 16 << 20;

/// Makes and writes nothing before everything is checked and the passphrase is known. The header comes last: until it is
/// there, the file is no volume.
pub fn run(options: &Format) -> Result<(), Failure> {
    let payload = payload(options)?;
    if let Some(size) = options.size {
        check_size(size, &payload)?;
    }
    let path = &options.volume.path;
    let existing = match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            check_place_for_a_file(options)?;
            None
        }
        _ => Some(Target::existing(options, &payload)?),
    };
    let prompt = format!("New passphrase for {}", path.display());
    let passphrase = passphrase::read(options.key.key_file.as_deref(), &prompt, Purpose::Create)?;
    let target = match existing {
        Some(target) => target,
        None => Target::new_file(options, &payload)?,
    };
    target.format(options, payload, &passphrase)
}

fn check_place_for_a_file(options: &Format) -> Result<(), Failure> {
    if options.size.is_none() {
        return Err(no_size());
    }
    let parent = options.volume.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::metadata(parent).map(drop).map_err(|e| Failure::path(parent, &e))
}

fn no_size() -> Failure {
    Failure::usage("a volume in a file needs a --size")
}

/// What the options ask for.
fn payload(options: &Format) -> Result<Payload, Failure> {
    let cipher = options.cipher.unwrap_or_else(CipherName::default_for_this_cpu);
    let suitable = if cipher.seal_len() == 0 { LayoutName::LengthPreserving } else { LayoutName::Packed };
    let layout = options.layout.unwrap_or(suitable);
    check_combination(cipher, layout, options.fold).map_err(Failure::usage)?;
    if cipher == CipherName::Aes256Xts {
        let offset = options.offset.map_or(HEADER_SIZE, |offset| offset.0);
        let sector_size = options.sector_size.as_deref().map_or(Ok(SECTOR_SIZE as u32), str::parse);
        let sector_size = sector_size.map_err(Failure::usage)?;
        return Ok(Payload::Plain(PlainPayload { offset, size: None, sector_size, iv_tweak: 0 }));
    }
    for (given, name) in [
        (options.offset.is_some(), "--offset"),
        (options.sector_size.is_some(), "--sector-size"),
        (options.key_size.is_some(), "--key-size"),
    ] {
        if given {
            return Err(Failure::usage(format_args!(
                "{name} is for --cipher aes-256-xts; a sealed volume has sectors of 4096 bytes, a key of 512 bits and its data at 16 MiB"
            )));
        }
    }
    let mut lineage = [0; 16];
    getrandom::fill(&mut lineage).map_err(|e| Failure::usage(format_args!("no random numbers: {e}")))?;
    let lineage = Lineage(lineage);
    Ok(Payload::Sealed(SealedPayload { cipher, layout, fold: options.fold, lineage, offset: HEADER_SIZE }))
}

/// Whether a disk can have this size.
pub fn check_size(size: ByteSize, payload: &Payload) -> Result<(), Failure> {
    let unit = unit(payload);
    match (size.0 / unit, size.0 % unit) {
        (0, _) => Err(Failure::usage(format_args!("a disk has at least one sector of {unit} bytes"))),
        (_, 0) => Ok(()),
        (sectors, _) => Err(Failure::usage(format_args!(
            "a size of {} bytes is not a multiple of a sector's {unit}; {} and {} are",
            size.0,
            sectors * unit,
            (sectors + 1).saturating_mul(unit)
        ))),
    }
}

fn unit(payload: &Payload) -> u64 {
    match payload {
        Payload::Plain(plain) => u64::from(plain.sector_size),
        Payload::Sealed(_) => SECTOR_SIZE as u64,
    }
}

fn volume_key(options: &Format) -> Result<VolumeKey, Failure> {
    let random = |e: getrandom::Error| Failure::usage(format_args!("no random numbers: {e}"));
    if options.key_size.as_deref() != Some("256") {
        return VolumeKey::generate().map_err(random);
    }
    let mut bytes = Zeroizing::new(vec![0; 32].into_boxed_slice());
    getrandom::fill(&mut bytes).map_err(random)?;
    VolumeKey::new(bytes).map_err(Failure::usage)
}

/// A file or device that may be overwritten.
struct Target {
    file: VolumeFile,
    /// Usable size in bytes.
    size: u64,
    /// Removes a file that this command made, unless it becomes a volume.
    made: Option<Unfinished>,
}

impl Target {
    /// A file that is not there yet.
    fn new_file(options: &Format, payload: &Payload) -> Result<Self, Failure> {
        let made = Unfinished::create(&options.volume.path)?;
        let file = VolumeFile::open(&options.volume.path, OpenMode::ReadWrite)?;
        Ok(Self { size: usable_size(&file, options, payload)?, file, made: Some(made) })
    }

    /// Locks the file or device, and makes sure that nothing is lost.
    fn existing(options: &Format, payload: &Payload) -> Result<Self, Failure> {
        let path = &options.volume.path;
        let file = VolumeFile::open(path, OpenMode::ReadWrite)?;
        if let Some(device) = loop_devices_on(&file.path).first() {
            return Err(Failure::busy(format_args!("{} lies under /dev/{device}; detach that first", path.display())));
        }
        if !options.force {
            let opened = File::open(&file.path).map_err(|e| Failure::path(path, &e))?;
            if let Some(found) = existing::probe(&opened, &file.path)? {
                return Err(Failure::device(format_args!("{} holds {found}; --force overwrites it", path.display())));
            }
        }
        Ok(Self { size: usable_size(&file, options, payload)?, file, made: None })
    }

    fn format(self, options: &Format, payload: Payload, passphrase: &Passphrase) -> Result<(), Failure> {
        let payload = match payload {
            // On a larger device the header says where the data ends; a file is exactly as large as it needs to be.
            Payload::Plain(plain) if self.file.is_device() && options.size.is_some() => {
                Payload::Plain(PlainPayload { size: Some(self.size), ..plain })
            }
            other => other,
        };
        let key = volume_key(options)?;
        let header = FormatOptions { payload, label: options.label.clone(), pbkdf: pbkdf(&options.derivation) };
        header.check(&self.file.path, &key)?;

        // An interrupt takes effect when there is a volume, or nothing: half of one is of no use to anybody.
        let signals = HeldSignals::hold(&ENDING).map_err(|e| Failure::io("holding back signals", &e))?;
        self.clear(options.force)?;
        let Self { file, size, made } = self;
        let is_device = file.is_device();
        let VolumeFile { path, store } = file;
        if !is_device {
            store.resize(Volume::store_size(&payload, size))?;
        }
        Volume::format(&store, &payload, &key, size)?;
        // libcryptsetup wants a device for itself; a file stays locked until it is a volume.
        let _locked = (!is_device).then_some(store);
        Header::format(&path, &header, &key, passphrase)?;
        if let Some(made) = made {
            made.keep();
        }
        drop(signals);
        Ok(())
    }

    /// Leaves nothing of what was there that could be taken for what it was.
    fn clear(&self, force: bool) -> Result<(), Failure> {
        if !self.file.is_device() {
            return Ok(self.file.store.resize(0)?);
        }
        if !force {
            return Ok(());
        }
        // Signatures lie in many places, also at the end; wipefs knows them all.
        let program =
            ["/usr/sbin/wipefs", "/sbin/wipefs"].into_iter().find(|p| Path::new(p).exists()).unwrap_or("wipefs");
        let output = Command::new(program)
            .args(["--all", "--force", "--quiet", "--"])
            .arg(&self.file.path)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Failure::io("running wipefs (package util-linux) to remove old signatures", &e))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let reason = String::from_utf8_lossy(&output.stderr);
                Err(Failure::new(Kind::WrongDevice, format_args!("cannot remove old signatures: {}", reason.trim())))
            }
        }
    }
}

/// The size of the disk: what was asked for, if there is room; else as much as a device holds.
fn usable_size(file: &VolumeFile, options: &Format, payload: &Payload) -> Result<u64, Failure> {
    if !file.is_device() {
        return options.size.map(|size| size.0).ok_or_else(no_size);
    }
    let room = file.store.size()?;
    let largest = largest_size(room, payload);
    let too_small = |needed: u64| {
        Failure::device(format_args!(
            "{} has {room} bytes and {needed} are needed; it can hold a volume of {largest} bytes",
            file.path.display()
        ))
    };
    match options.size {
        Some(ByteSize(size)) if size > largest => Err(too_small(Volume::store_size(payload, size))),
        Some(size) => Ok(size.0),
        None if largest == 0 => Err(too_small(Volume::store_size(payload, unit(payload)))),
        None => Ok(largest),
    }
}

/// The largest disk for which `room` bytes are enough; 0 if there is none.
fn largest_size(room: u64, payload: &Payload) -> u64 {
    let unit = unit(payload);
    let (mut fits, mut too_large) = (0, room / unit + 1);
    while too_large - fits > 1 {
        let middle = fits + (too_large - fits) / 2;
        if Volume::store_size(payload, middle * unit) <= room { fits = middle } else { too_large = middle }
    }
    fits * unit
}

/// A file that is removed again unless it becomes a volume.
struct Unfinished {
    path: Option<PathBuf>,
}

impl Unfinished {
    fn create(path: &Path) -> Result<Self, Failure> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map_err(|e| Failure::path(path, &e))?;
        Ok(Self { path: Some(path.to_owned()) })
    }

    fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The failure that led here is what the user hears of.
            let _ = fs::remove_file(path);
        }
    }
}
