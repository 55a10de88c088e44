//! A volume of either kind, as its owner sees it.

use std::sync::Arc;

use sealdisk_cipher::VolumeKey;
use sealdisk_layout::{MAX_VOLUME_SIZE, ObjectLayout, PackedLayout, Payload, SealedPayload};
use sealdisk_store::{ObjectStore, Store};
use sealdisk_units::{ByteRange, Lba, SECTOR_SIZE};

use crate::keeper::Keeper;
use crate::kind::{Kind, whichever};
use crate::metadata::size::change_size;
use crate::objects::{self, ObjectVolume};
use crate::plain::{self, PlainVolume};
use crate::sealed::{self, SealedVolume, SectorForms};
use crate::{Allocation, OpenError, ReadQueue, ReadRequest, Space, VolumeError, VolumeErrorKind, WriteRequest};

/// How a volume is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Refuse writes, and write nothing to the store, not even to recover.
    pub read_only: bool,
    /// About how much memory the volume may take, in bytes.
    pub memory: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { read_only: false, memory: 192 << 20 }
    }
}

/// An open volume: a disk with a volatile write cache.
pub struct Volume {
    kind: Arc<Kind>,
    keeper: Option<Keeper>,
}

/// How a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether it takes writes.
    pub state: State,
    /// What runs the cipher on this machine.
    pub implementation: &'static str,
    /// Sectors in memory that are not yet in place.
    pub waiting_sectors: usize,
    /// Data objects of 4 MiB that exist, for sealed volumes.
    pub objects: Option<u64>,
    /// What is known to be missing of a volume that could only be opened read-only: flushed writes that its damaged
    /// journal had held.
    pub damage: Option<String>,
}

/// Whether a volume takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does.
    Healthy,
    /// It was opened read-only.
    ReadOnly,
    /// It does not since a sync failed; this is what the sync said.
    Failed(String),
}

/// What [`Volume::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Sectors that were read.
    pub sectors: u64,
    /// Sectors that are not what was written.
    pub not_authentic: Vec<Lba>,
    /// Sectors that the store could not read, and why.
    pub unreadable: Vec<(Lba, String)>,
}

/// What a volume's store shows without the key. Nothing of it is authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// Size of the disk in bytes.
    pub size: u64,
    /// Length of the journal in bytes.
    pub journal_len: u64,
    /// Whether it was closed in order; always true for LUKS2 volumes, which have no journal.
    pub clean: bool,
}

impl Volume {
    /// Bytes that a file or device needs for a disk of `size` bytes, header and all.
    pub fn store_size(payload: &Payload, size: u64) -> u64 {
        match payload {
            Payload::Plain(plain) => plain.offset + size,
            Payload::Sealed(sealed) => {
                let journal_len = sealed::journal_len_for(size);
                PackedLayout::new(sealed.offset, journal_len, sealed.cipher.seal_len()).store_size(size)
            }
        }
    }

    /// As [`store_size`](Self::store_size), of a store of [objects](Store::objects): it has no journal.
    pub fn object_store_size(payload: &Payload, size: u64) -> u64 {
        let layout = match payload {
            Payload::Plain(_) => None,
            Payload::Sealed(sealed) => ObjectLayout::new(sealed.layout, sealed.offset, sealed.cipher.seal_len()),
        };
        layout.map_or_else(|| Self::store_size(payload, size), |layout| layout.rows().store_size(size))
    }

    /// Writes what a new disk of `size` bytes needs, behind the header, into a store of
    /// [`store_size`](Self::store_size) bytes. Little is written, however large the disk is.
    pub fn format(store: &dyn Store, payload: &Payload, key: &VolumeKey, size: u64) -> Result<(), OpenError> {
        match payload {
            Payload::Plain(_) => Ok(()),
            Payload::Sealed(sealed) => match objects_of(store, sealed) {
                Some(objects) => objects::format(store, objects, sealed, key, size),
                None if sealed.layout.needs_objects() => Err(needs_objects(store, sealed)),
                None => sealed::format(store, sealed, key, size, sealed::journal_len_for(size)),
            },
        }
    }

    /// As [`format`](Self::format), with a journal of a chosen length (a multiple of 4096, at least 64 KiB). For tests
    /// that want the journal to wrap often.
    pub fn format_with_journal(
        store: &dyn Store,
        payload: &sealdisk_layout::SealedPayload,
        key: &VolumeKey,
        size: u64,
        journal_len: u64,
    ) -> Result<(), OpenError> {
        sealed::format(store, payload, key, size, journal_len)
    }

    /// Opens a volume. After a crash this is where the journal is put in place. Errors and reports call it `name`.
    pub fn open(
        store: Arc<dyn Store>,
        name: &str,
        payload: &Payload,
        key: &VolumeKey,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let kind = match payload {
            Payload::Plain(plain) => Kind::Plain(PlainVolume::open(store, name, plain, key, options)?),
            Payload::Sealed(sealed) => match lies_on(&*store, sealed)? {
                Ground::Objects => Kind::Objects(Box::new(ObjectVolume::open(store, name, sealed, key, options)?)),
                Ground::Bytes => Kind::Sealed(Box::new(SealedVolume::open(store, name, sealed, key, options)?)),
            },
        };
        Ok(Self { kind: Arc::new(kind), keeper: None })
    }

    /// Starts a thread that writes in the background what waits in memory. Without it, everything happens within the
    /// calls of clients.
    pub fn start_background(&mut self) {
        if self.keeper.is_none() && matches!(&*self.kind, Kind::Sealed(_)) && !self.is_read_only() {
            self.keeper = Some(Keeper::start(self.kind.clone()));
        }
    }

    /// Does a piece of the work that [`start_background`](Self::start_background) does. `idle` says that nothing was
    /// written for a while. Returns whether there was anything to do.
    pub fn tidy(&self, idle: bool) -> Result<bool, VolumeError> {
        match &*self.kind {
            Kind::Plain(_) | Kind::Objects(_) => Ok(false),
            Kind::Sealed(sealed) => sealed.tidy(idle),
        }
    }

    /// Writes everything in place and says on the store that nothing is left to recover.
    pub fn close(mut self) -> Result<(), VolumeError> {
        drop(self.keeper.take());
        match &*self.kind {
            Kind::Plain(plain) => plain.flush(),
            Kind::Sealed(sealed) => sealed.close(),
            Kind::Objects(objects) => objects.close(),
        }
    }

    /// Size of the disk in bytes.
    pub fn size(&self) -> u64 {
        whichever!(&*self.kind, volume => volume.size())
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.kind.standing().is_read_only()
    }

    /// Serves a batch of reads; each request's `result` says how it went.
    pub fn read(&self, batch: &mut [ReadRequest<'_>]) {
        self.kind.read(batch);
    }

    /// A queue of short reads for the calling thread, where the store can read without a thread that waits for each.
    pub fn read_queue(&self) -> Option<ReadQueue> {
        ReadQueue::new(Arc::clone(&self.kind))
    }

    /// Whether the store is on other machines.
    pub fn is_far(&self) -> bool {
        self.kind.store().object_size().is_some()
    }

    /// How often the data of a request are in memory while it is on its way to other machines and back: as it came, as the
    /// client of those machines has it, and once more where sectors and seals must be put together.
    pub fn copies(&self) -> usize {
        match &*self.kind {
            Kind::Objects(objects) if objects.is_interleaved() => 3,
            _ => 2,
        }
    }

    /// Serves a batch of writes; each request's `result` says how it went.
    pub fn write(&self, batch: &mut [WriteRequest<'_>]) {
        whichever!(&*self.kind, volume => volume.write(batch));
        self.mind_the_keeper();
    }

    /// Makes the range read as zeros.
    pub fn zero(&self, range: ByteRange, space: Space) -> Result<(), VolumeError> {
        if range.is_empty() {
            return Ok(());
        }
        whichever!(&*self.kind, volume => volume.zero(range, space))
    }

    /// Makes everything durable whose write had returned before this call.
    pub fn flush(&self) -> Result<(), VolumeError> {
        match &*self.kind {
            Kind::Plain(plain) => plain.flush(),
            Kind::Objects(objects) => objects.flush(),
            Kind::Sealed(sealed) => {
                let flushed = sealed.flush();
                self.mind_the_keeper();
                flushed
            }
        }
    }

    fn mind_the_keeper(&self) {
        if let (Some(keeper), Kind::Sealed(sealed)) = (&self.keeper, &*self.kind) {
            keeper.note_write();
            if sealed.is_crowded() {
                keeper.call();
            }
        }
    }

    /// Which parts of the range are known to be zero and take no space, from its start on.
    pub fn allocation(&self, range: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        match &*self.kind {
            Kind::Plain(plain) => plain.allocation(range),
            Kind::Sealed(sealed) => sealed.allocation(range),
            Kind::Objects(objects) => Ok(objects.allocation(range)),
        }
    }

    /// How the volume is.
    pub fn status(&self) -> Status {
        let standing = self.kind.standing();
        let state = match standing.failure() {
            Some(reason) => State::Failed(reason.to_owned()),
            None if standing.is_read_only() => State::ReadOnly,
            None => State::Healthy,
        };
        let (waiting_sectors, objects, damage) = match &*self.kind {
            Kind::Plain(_) => (0, None, None),
            Kind::Sealed(v) => (v.waiting(), Some(v.object_count()), v.damage().map(str::to_owned)),
            Kind::Objects(v) => (0, Some(v.object_count()), None),
        };
        let implementation = whichever!(&*self.kind, volume => volume.implementation());
        Status { state, implementation, waiting_sectors, objects, damage }
    }

    /// Reads and authenticates the whole disk. `progress` is told how many bytes of how many are done. What is known to
    /// be zero without reading is not read.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, VolumeError> {
        const STEP: u64 = 1 << 20;
        let mut report = CheckReport::default();
        let mut buf = sealdisk_store::AlignedBuf::new(STEP as usize);
        let mut offset = 0;
        progress(0, self.size());
        while offset < self.size() {
            let hole = self.hole_at(offset)?;
            if hole >= STEP {
                offset += hole;
            } else {
                let len = STEP.min(self.size() - offset);
                self.check_range(offset, &mut buf[..len as usize], &mut report);
                offset += len;
            }
            progress(offset, self.size());
        }
        Ok(report)
    }

    /// How many bytes from here on lie in objects that do not exist.
    fn hole_at(&self, offset: u64) -> Result<u64, VolumeError> {
        match &*self.kind {
            Kind::Plain(_) => Ok(0),
            Kind::Sealed(sealed) => Ok(sealed.absent_bytes(offset)),
            Kind::Objects(objects) => Ok(objects.absent_bytes(offset)),
        }
    }

    fn check_range(&self, offset: u64, buf: &mut [u8], report: &mut CheckReport) {
        let size = self.size();
        let mut batch: Vec<_> = buf
            .chunks_mut(SECTOR_SIZE)
            .enumerate()
            .map(|(i, sector)| {
                let start = offset + (i * SECTOR_SIZE) as u64;
                ReadRequest::new(ByteRange::checked(start, sector.len() as u64, size).expect("inside the disk"), sector)
            })
            .collect();
        self.read(&mut batch);
        for request in batch {
            report.sectors += 1;
            let lba = Lba(request.range.offset() / SECTOR_SIZE as u64);
            match request.result {
                Ok(()) => {}
                Err(error) if error.kind() == VolumeErrorKind::NotAuthentic => report.not_authentic.push(lba),
                Err(error) => report.unreadable.push((lba, error.to_string())),
            }
        }
    }

    /// Changes the size of a volume that is not open. Growing is instant; shrinking discards what lies behind the new
    /// end and must be forced.
    pub fn resize(
        store: Arc<dyn Store>,
        name: &str,
        payload: &Payload,
        key: &VolumeKey,
        size: u64,
        force: bool,
    ) -> Result<(), OpenError> {
        match payload {
            Payload::Sealed(sealed) => Self::resize_sealed(store, name, sealed, key, size, force),
            Payload::Plain(plain) => plain::resize(&*store, plain, size, force),
        }
    }

    /// The superblock alone says how large the disk is, and it changes last: a crash before that leaves the old size, with
    /// (when shrinking) the end of the disk already zero.
    fn resize_sealed(
        store: Arc<dyn Store>,
        name: &str,
        payload: &SealedPayload,
        key: &VolumeKey,
        size: u64,
        force: bool,
    ) -> Result<(), OpenError> {
        if size > MAX_VOLUME_SIZE {
            return Err(OpenError::TooLarge { size });
        }
        // Opening puts a journal in place; closing leaves it empty.
        let options = OpenOptions::default();
        let volume = Self::open(Arc::clone(&store), name, &Payload::Sealed(*payload), key, options)?;
        let old = volume.size();
        if size < old {
            if !force {
                return Err(OpenError::ShrinkNeedsForce { from: old, to: size });
            }
            let end = ByteRange::checked(size, old - size, old).expect("the end of the disk");
            volume.zero(end, Space::Free).map_err(OpenError::Recovery)?;
        }
        let layout = match &*volume.kind {
            Kind::Sealed(sealed) => *sealed.rows(),
            Kind::Objects(objects) => *objects.rows(),
            Kind::Plain(_) => unreachable!("a sealed payload was opened"),
        };
        volume.close().map_err(OpenError::Recovery)?;
        change_size(&*store, payload, key, &layout, old, size)
    }

    /// What can be told without the key.
    pub fn inspect(store: &dyn Store, payload: &Payload) -> Result<Inspection, OpenError> {
        match payload {
            Payload::Plain(plain) => {
                Ok(Inspection { size: plain::size_of_payload(store, plain)?, journal_len: 0, clean: true })
            }
            Payload::Sealed(sealed) => {
                let claims = sealed::inspect(store, sealed)?;
                Ok(Inspection { size: claims.size, journal_len: claims.journal_len, clean: claims.clean })
            }
        }
    }

    /// Counts how the store shows sectors to be sealed, without the key. `None` for LUKS2 volumes.
    pub fn sector_forms(
        store: &dyn Store,
        payload: &Payload,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<SectorForms>, OpenError> {
        match payload {
            Payload::Plain(_) => Ok(None),
            Payload::Sealed(sealed) => match (lies_on(store, sealed)?, objects_of(store, sealed)) {
                (Ground::Objects, Some(objects)) => {
                    let size = sealed::inspect(store, sealed)?.size;
                    objects::sector_forms(objects, sealed, size, progress).map(Some)
                }
                _ => sealed::sector_forms(store, sealed, progress).map(Some),
            },
        }
    }
}

/// How a sealed volume is written.
enum Ground {
    /// In place, with a journal.
    Bytes,
    /// Object by object.
    Objects,
}

/// Which it is, if the store can do it. Until the superblock is believed, an edit makes it unreadable and nothing else.
fn lies_on(store: &dyn Store, payload: &SealedPayload) -> Result<Ground, OpenError> {
    // Which layout, the keys vouch for.
    let has_journal = !payload.layout.needs_objects() && sealed::inspect(store, payload)?.journal_len > 0;
    match (has_journal, objects_of(store, payload)) {
        (true, _) => Ok(Ground::Bytes),
        (false, Some(_)) => Ok(Ground::Objects),
        (false, None) => Err(needs_objects(store, payload)),
    }
}

/// The store as one of objects, if they are of the size that the layout needs.
fn objects_of<'s>(store: &'s dyn Store, payload: &SealedPayload) -> Option<&'s dyn ObjectStore> {
    store.objects().filter(|objects| objects.object_size() == Some(payload.layout.object_size()))
}

fn needs_objects(store: &dyn Store, payload: &SealedPayload) -> OpenError {
    let layout = payload.layout;
    let needed = layout.object_size() >> 20;
    let reason = match (layout.needs_objects(), store.objects()) {
        (_, Some(objects)) => format!(
            "layout {layout} needs an image with objects of {needed} MiB, and this one has others of {} bytes; \
             `rbd create --object-size {needed}M` makes one",
            objects.object_size().unwrap_or(0)
        ),
        (true, None) => format!("layout {layout} needs a store of objects, an RBD image; layout packed does not"),
        (false, None) => {
            "the volume was made on Ceph and has no journal, which a file or device needs; put it into an RBD \
                  image again (`rbd import`)"
                .to_owned()
        }
    };
    OpenError::BadPayload(reason)
}
