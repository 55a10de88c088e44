//! `format`: make a volume.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sealdisk_cipher::{CipherName, VolumeKey};
use sealdisk_header::{FormatOptions, Header, Passphrase, Payload};
use sealdisk_layout::{LayoutName, PlainPayload, SealedPayload, check_combination};
use sealdisk_rados::{Image, ImageName};
use sealdisk_store::{OpenMode, ReadExtent};
use sealdisk_units::{Lineage, SECTOR_SIZE, StoreRange};
use sealdisk_volume::Volume;
use zeroize::Zeroizing;

use crate::arguments::Format;
use crate::commands::key::pbkdf;
use crate::existing::{self, Container, Existing};
use crate::failure::{Failure, Kind};
use crate::header_file::anonymous_file;
use crate::location::{ImageLocation, Location, OpenVolume, file};
use crate::passphrase::{self, Purpose};
use crate::signals::{ENDING, HeldSignals};
use crate::size::ByteSize;
use crate::volume_name::VolumeName;

/// Bytes in front of the data, for the header: as much as cryptsetup takes by default.
const HEADER_SIZE: u64 = 16 << 20;

/// Makes and writes nothing before everything is checked and the passphrase is known. The header comes last: until it is
/// there, the file is no volume.
pub fn run(options: &Format) -> Result<(), Failure> {
    let payload = payload(options)?;
    if let Some(size) = options.size {
        check_size(size, &payload)?;
    }
    if let (VolumeName::Path(_), Payload::Sealed(sealed)) = (&options.volume.name, &payload)
        && sealed.layout.needs_objects()
    {
        return Err(Failure::usage(format_args!(
            "layout {} is for images on Ceph (rbd:POOL/IMAGE); a file or device takes packed",
            sealed.layout
        )));
    }
    let place = Place::find(options)?;
    let existing = match place {
        Place::Free(_) if options.size.is_none() => return Err(no_size(options)),
        Place::Free(free) => Err(free),
        Place::Taken(location) => Ok(Target::existing(location, options, &payload)?),
    };
    let prompt = format!("New passphrase for {}", options.volume.name);
    let passphrase = passphrase::read(options.key.key_file.as_deref(), &prompt, Purpose::Create)?;
    let target = match existing {
        Ok(target) => target,
        Err(free) => Target::new(free, options, &payload)?,
    };
    target.format(options, payload, &passphrase)
}

fn no_size(options: &Format) -> Failure {
    match options.volume.name {
        VolumeName::Path(_) => Failure::usage("a volume in a file needs a --size"),
        VolumeName::Image(_) => Failure::usage("a volume in a new image needs a --size"),
    }
}

/// Where the volume is to lie.
enum Place {
    /// Something is there.
    Taken(Location),
    /// Nothing is there yet.
    Free(Free),
}

/// Where something can be made.
enum Free {
    File(PathBuf),
    Image(ImageLocation),
}

impl Place {
    fn find(options: &Format) -> Result<Self, Failure> {
        let found = match &options.volume.name {
            VolumeName::Path(path) => {
                if options.data_pool.is_some() {
                    return Err(Failure::usage("--data-pool is for images on Ceph"));
                }
                match path.symlink_metadata() {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                        let parent = parent.unwrap_or(Path::new("."));
                        fs::metadata(parent).map_err(|e| Failure::path(parent, &e))?;
                        Self::Free(Free::File(path.clone()))
                    }
                    _ => Self::Taken(Location::find(&options.volume)?),
                }
            }
            VolumeName::Image(ImageName { snapshot: Some(_), .. }) => {
                return Err(Failure::usage("a snapshot cannot become a volume; format the image"));
            }
            VolumeName::Image(name) => {
                let image = ImageLocation::connect(name, &options.volume.ceph)?;
                match image.exists()? {
                    true if options.data_pool.is_some() => {
                        return Err(Failure::usage(
                            "the image exists already, and its data is in the pool that it was made with",
                        ));
                    }
                    true => Self::Taken(Location::Image(image)),
                    false => Self::Free(Free::Image(image)),
                }
            }
        };
        Ok(found)
    }
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

/// What may be overwritten.
struct Target {
    open: OpenVolume,
    /// Usable size in bytes.
    size: u64,
    /// Removes what this command made, unless it becomes a volume.
    made: Option<Unfinished>,
}

impl Target {
    /// What is not there yet.
    fn new(free: Free, options: &Format, payload: &Payload) -> Result<Self, Failure> {
        let size = options.size.ok_or_else(|| no_size(options))?.0;
        let (made, location) = match free {
            Free::File(path) => (Unfinished::create_file(&path)?, Location::File(file::locate(&path)?)),
            Free::Image(image) => {
                let location = Location::Image(image.clone());
                (
                    Unfinished::create_image(
                        &image,
                        location.store_size(payload, size),
                        payload.object_size(),
                        options,
                    )?,
                    location,
                )
            }
        };
        Ok(Self { open: location.open(OpenMode::ReadWrite)?, size, made: Some(made) })
    }

    /// Locks what is there, and makes sure that nothing is lost.
    fn existing(location: Location, options: &Format, payload: &Payload) -> Result<Self, Failure> {
        let open = location.open(OpenMode::ReadWrite)?;
        let shown = &options.volume.name;
        if let Location::File(path) = &open.location {
            file::refuse_under_loop_device(path)?;
        }
        if !options.force
            && let Some(found) = content(&open)?
        {
            return Err(Failure::device(format_args!("{shown} holds {found}; --force overwrites it")));
        }
        Ok(Self { size: usable_size(&open, options, payload)?, open, made: None })
    }

    fn format(self, options: &Format, payload: Payload, passphrase: &Passphrase) -> Result<(), Failure> {
        let payload = match payload {
            // On a larger device the header says where the data ends; a file is exactly as large as it needs to be.
            Payload::Plain(plain) if self.made.is_none() && has_fixed_size(&self.open) && options.size.is_some() => {
                Payload::Plain(PlainPayload { size: Some(self.size), ..plain })
            }
            other => other,
        };
        let key = volume_key(options)?;
        let header = FormatOptions { payload, label: options.label.clone(), pbkdf: pbkdf(&options.derivation) };
        header.check(Path::new(&options.volume.name.to_string()), &key)?;

        // An interrupt takes effect when there is a volume, or nothing: half of one is of no use to anybody.
        let signals = HeldSignals::hold(&ENDING).map_err(|e| Failure::io("holding back signals", &e))?;
        let Self { open, size, made } = self;
        let is_new = made.is_some();
        let formatted = write(open, size, is_new, options, &header, &key, passphrase);
        if let (Ok(()), Some(made)) = (&formatted, made) {
            made.keep();
        }
        drop(signals);
        formatted
    }
}

/// Makes a volume of what was opened, and closes it.
fn write(
    open: OpenVolume,
    size: u64,
    is_new: bool,
    options: &Format,
    header: &FormatOptions,
    key: &VolumeKey,
    passphrase: &Passphrase,
) -> Result<(), Failure> {
    if !is_new {
        clear(&open, options.force)?;
    }
    let OpenVolume { location, store } = open;
    let mut file = location.header_file()?;
    if matches!(&location, Location::File(path) if !file::is_device(path)) {
        store.resize(location.store_size(&header.payload, size))?;
    }
    Volume::format(&*store, &header.payload, key, size)?;
    // libcryptsetup wants a device for itself; everything else stays locked until it is a volume.
    let _locked = (!matches!(&location, Location::File(path) if file::is_device(path))).then_some(store);
    file.change(|path| Header::format(path, header, key, passphrase).map(drop))
}

/// Whether its size is given, so that there may be more room than is wanted.
fn has_fixed_size(open: &OpenVolume) -> bool {
    match &open.location {
        Location::File(path) => file::is_device(path),
        Location::Image(_) => true,
    }
}

/// How much of an image is looked at and cleared at either end. Signatures of file systems, RAID and the like lie there.
const EDGE: u64 = 8 << 20;

/// The two ends of a store.
fn edges(size: u64) -> impl Iterator<Item = StoreRange> {
    let first = EDGE.min(size);
    let last = size.saturating_sub(EDGE).max(first);
    [StoreRange::new(0, first), StoreRange::new(last, size - last)].into_iter().filter(|range| range.len > 0)
}

/// What is there that should not be lost.
fn content(open: &OpenVolume) -> Result<Option<Existing>, Failure> {
    let shown = open.location.to_string();
    match &open.location {
        Location::File(path) => {
            let container = if file::is_device(path) { Container::Device } else { Container::File };
            existing::probe(&File::open(path).map_err(|e| Failure::path(path, &e))?, &shown, container)
        }
        Location::Image(_) => {
            let copy = anonymous_file()?;
            let failed = |e: io::Error| Failure::io("copying the ends of the image into memory", &e);
            let size = open.store.size()?;
            copy.set_len(size).map_err(failed)?;
            for range in edges(size) {
                let mut buf = vec![0; range.len as usize];
                open.store.read(&mut [ReadExtent { offset: range.offset, buf: &mut buf }])?;
                copy.write_all_at(&buf, range.offset).map_err(failed)?;
            }
            existing::probe(&copy, &shown, Container::Device)
        }
    }
}

/// Leaves nothing of what was there that could be taken for what it was.
fn clear(open: &OpenVolume, force: bool) -> Result<(), Failure> {
    match &open.location {
        Location::File(path) if !file::is_device(path) => Ok(open.store.resize(0)?),
        _ if !force => Ok(()),
        Location::File(path) => wipe_signatures(path),
        Location::Image(_) => Ok(edges(open.store.size()?).try_for_each(|range| open.store.zero(range))?),
    }
}

/// Signatures lie in many places, also at the end; wipefs knows them all.
fn wipe_signatures(device: &Path) -> Result<(), Failure> {
    let program = ["/usr/sbin/wipefs", "/sbin/wipefs"].into_iter().find(|p| Path::new(p).exists()).unwrap_or("wipefs");
    let output = Command::new(program)
        .args(["--all", "--force", "--quiet", "--"])
        .arg(device)
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

/// The size of the disk: what was asked for, if there is room; else as much as a device holds.
fn usable_size(open: &OpenVolume, options: &Format, payload: &Payload) -> Result<u64, Failure> {
    if !has_fixed_size(open) {
        return options.size.map(|size| size.0).ok_or_else(|| no_size(options));
    }
    let room = open.store.size()?;
    let largest = largest_size(&open.location, room, payload);
    let too_small = |needed: u64| {
        Failure::device(format_args!(
            "{} has {room} bytes and {needed} are needed; it can hold a volume of {largest} bytes",
            open.location
        ))
    };
    match options.size {
        Some(ByteSize(size)) if size > largest => Err(too_small(open.location.store_size(payload, size))),
        Some(size) => Ok(size.0),
        None if largest == 0 => Err(too_small(open.location.store_size(payload, unit(payload)))),
        None => Ok(largest),
    }
}

/// The largest disk for which `room` bytes are enough; 0 if there is none.
fn largest_size(location: &Location, room: u64, payload: &Payload) -> u64 {
    let unit = unit(payload);
    let (mut fits, mut too_large) = (0, room / unit + 1);
    while too_large - fits > 1 {
        let middle = fits + (too_large - fits) / 2;
        if location.store_size(payload, middle * unit) <= room { fits = middle } else { too_large = middle }
    }
    fits * unit
}

/// What is removed again unless it becomes a volume.
struct Unfinished(Option<Made>);

enum Made {
    File(PathBuf),
    Image(ImageLocation),
}

impl Unfinished {
    fn create_file(path: &Path) -> Result<Self, Failure> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map_err(|e| Failure::path(path, &e))?;
        Ok(Self(Some(Made::File(path.to_owned()))))
    }

    fn create_image(image: &ImageLocation, size: u64, object_size: u64, options: &Format) -> Result<Self, Failure> {
        let data_pool = options.data_pool.as_deref();
        Image::create(&image.pool, &image.name.image, size, object_size, data_pool).map_err(|error| match (error.errno(), data_pool) {
            (Some(libc::ENOENT), Some(data_pool)) => Failure::device(format_args!(
                "{image} cannot be made: there is no pool {data_pool}, or no namespace '{}' in {}; see `ceph osd pool ls`",
                image.name.namespace, image.name.pool
            )),
            (Some(libc::ENOENT), None) if !image.name.namespace.is_empty() => Failure::device(format_args!(
                "{image} cannot be made: `rbd namespace create {}/{}` makes the namespace",
                image.name.pool, image.name.namespace
            )),
            _ => image.failure(error),
        })?;
        Ok(Self(Some(Made::Image(image.clone()))))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The failure that led here is what the user hears of.
        let _ = match &self.0 {
            None => return,
            Some(Made::File(path)) => fs::remove_file(path).is_ok(),
            Some(Made::Image(image)) => Image::remove(&image.pool, &image.name.image).is_ok(),
        };
    }
}
