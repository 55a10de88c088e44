//! `attach`: offer a volume as a disk.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sealdisk_cipher::VolumeKey;
use sealdisk_export::fuse::{FuseExport, FuseOptions, cleanup_stale};
use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export, LoopOptions, become_io_flusher};
use sealdisk_header::Payload;
use sealdisk_volume::{OpenOptions, Volume};

use crate::arguments::{Attach, How};
use crate::attachable::{Attachable, Opened};
use crate::control::ControlSocket;
use crate::daemon::{self, Ready};
use crate::failure::Failure;
use crate::helper::helper;
use crate::logged_disk::LoggedDisk;
use crate::memory::{self, Place, Shares};
use crate::registry::{Claim, Entry, Registry, Room, default_name};
use crate::server::{Served, Server, damage_story};
use crate::signals::{ENDING, HeldSignals};
use crate::unlock::unlock;
use crate::{hardening, output};

/// Returns when the disk is ready, or, in the foreground, when it has ended. Prints where the disk is.
pub fn run(options: &Attach, quiet: bool) -> Result<(), Failure> {
    let offer = Offer::choose(options)?;
    let place = Place::from(&options.volume.name);
    let shares = Shares::of(options.memory, place)?;
    let volume = Attachable::look(&options.volume, options.read_only)?;
    let registry = Registry::of_this_user()?;
    if let Some(left) = registry.find_volume(&volume.identity)?.filter(|left| !left.alive) {
        registry.claim(&left.name, clean_up_after_death)?.release();
    }
    let header = volume.header()?;
    let name = options.name.clone().unwrap_or_else(|| default_name(&options.volume.name.stem()));
    let claim = registry.claim(&name, clean_up_after_death)?;
    let key = match unlock(&volume.header_file, &header, &options.key) {
        Ok(key) => key,
        Err(failure) => {
            claim.release();
            return Err(failure);
        }
    };
    let payload = *header.payload();
    let shares = shares.of_kind(place, &payload);
    let attachment = Attachment {
        open: OpenOptions { read_only: volume.read_only, memory: shares.volume },
        requests: shares.requests,
        place,
        volume,
        name,
        payload,
        key,
        claim,
        offer,
        quiet,
    };
    if options.foreground {
        return attachment.serve(Ready::in_foreground());
    }
    output::say(&daemon::start(|ready| attachment.serve(ready))?)
}

/// Removes the mount and the loop device that a killed process left in its folder.
pub fn clean_up_after_death(room: &Room) -> Result<(), Failure> {
    if fs::symlink_metadata(room.mount_point()).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    Ok(cleanup_stale(&room.mount_point()).map(drop)?)
}

/// How the disk will be offered.
enum Offer {
    /// NBD at this address, or at one in the registry.
    Nbd(Option<ListenAddress>),
    /// A file, or, as root, a loop device on it.
    Fuse,
}

impl Offer {
    fn choose(options: &Attach) -> Result<Self, Failure> {
        let listen = options.listen.as_deref().map(str::parse::<ListenAddress>).transpose().map_err(Failure::usage)?;
        match (options.how, listen) {
            (How::Fuse, Some(_)) => Err(Failure::usage("--listen is for --as nbd; FUSE listens nowhere")),
            (_, Some(address)) => Ok(Self::Nbd(Some(absolute(address)?))),
            (How::Nbd, None) => Ok(Self::Nbd(None)),
            (How::Fuse, None) => Ok(Self::Fuse),
            (How::Auto, None) => Ok(if is_root() { Self::Fuse } else { Self::Nbd(None) }),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Nbd(_) => "nbd",
            Self::Fuse => "fuse",
        }
    }
}

/// The daemon has another working folder.
fn absolute(address: ListenAddress) -> Result<ListenAddress, Failure> {
    match address {
        ListenAddress::Unix(path) => {
            std::path::absolute(&path).map(ListenAddress::Unix).map_err(|e| Failure::path(&path, &e))
        }
        tcp => Ok(tcp),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everything that the process needs that will serve the volume.
struct Attachment {
    volume: Attachable,
    name: String,
    payload: Payload,
    key: VolumeKey,
    claim: Claim,
    offer: Offer,
    open: OpenOptions,
    /// Bytes for requests of NBD's clients.
    requests: usize,
    place: Place,
    quiet: bool,
}

impl Attachment {
    fn serve(self, ready: Ready) -> Result<(), Failure> {
        let room = self.claim.room().clone();
        let log = room.log();
        // The kernel may need a disk of its own to free memory. Before the first thread, which inherits it.
        let flusher = if matches!(self.offer, Offer::Fuse) { become_io_flusher() } else { Ok(()) };
        match self.begin() {
            Ok((server, entry)) => {
                let damage = server.served.volume.status().damage;
                let told = damage.map_or(Ok(()), |damage| ready.warn(&damage_story(&damage), &log));
                let told = told.and_then(|()| server.claim.announce(&entry));
                let told = told.and_then(|()| ready.announce(&entry.address, &log));
                match told {
                    Ok(()) => {
                        if let Err(reason) = flusher {
                            eprintln!("sealdisk: not marked as a process that frees memory: {reason}");
                        }
                        server.run()
                    }
                    // Nobody waits for the disk: take it down in good order.
                    Err(failure) => server.abandon().and(Err(failure)),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Opens the volume and begins to offer it.
    fn begin(self) -> Result<(Server, Entry), Failure> {
        let Self { volume: attachable, name, payload, key, claim, offer, open, requests, place, quiet } = self;
        // Before the first thread: all of this is inherited by threads, and not by those that exist already.
        let signals = HeldSignals::hold(&ENDING).map_err(|e| Failure::io("holding back signals", &e))?;
        memory::bound_allocator(place);
        if !hardening::keep_memory_out_of_swap() {
            hardening::keep_out_of_swap(key.expose());
        }
        // Whatever the user's: /dev/sealdisk is for everyone to look into, and what is private says so itself.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));

        let begun = (|| {
            let control = ControlSocket::listen(&claim.room().control_socket())?;
            let (shown, identity) = (attachable.shown.clone(), attachable.identity.clone());
            let Opened { store, cluster, client } = attachable.open()?;
            let mut volume = Volume::open(store, &shown, &payload, &key, open)?;
            drop(key);
            volume.start_background();
            let volume = Arc::new(volume);
            let (cipher, layout) = cipher_and_layout(&payload);
            let disk: Arc<dyn Disk> = Arc::new(LoggedDisk::new(Arc::<Volume>::clone(&volume)));
            let kind = offer.name();
            let export = offer.start(disk, &name, requests, claim.room(), quiet)?;
            let entry = Entry {
                name,
                volume: shown,
                identity,
                client,
                pid: std::process::id(),
                since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
                export: kind.to_owned(),
                address: export.address(),
                size: volume.size(),
                read_only: volume.is_read_only(),
                cipher,
                layout,
            };
            Ok((Served { volume, cluster, export }, control, entry))
        })();
        match begun {
            Ok((served, control, entry)) => Ok((Server { claim, served, control, signals }, entry)),
            Err(failure) => {
                claim.release();
                Err(failure)
            }
        }
    }
}

impl Offer {
    fn start(
        self,
        disk: Arc<dyn Disk>,
        name: &str,
        memory: usize,
        room: &Room,
        quiet: bool,
    ) -> Result<Box<dyn Export>, Failure> {
        match self {
            Self::Nbd(address) => {
                let address = address.unwrap_or_else(|| ListenAddress::Unix(room.nbd_socket()));
                let options = NbdOptions { name: name.to_owned(), memory, ..NbdOptions::default() };
                let export = NbdExport::start(disk, &address, options)?;
                if let Some(warning) = export.warning().filter(|_| !quiet) {
                    eprintln!("sealdisk: warning: {warning}");
                }
                Ok(Box::new(export))
            }
            Self::Fuse => {
                let mount_point = make_mount_point(&room.mount_point())?;
                let options = FuseOptions { file_name: name.into(), ..FuseOptions::default() };
                let mut export = FuseExport::mount(disk, &mount_point, &options)?;
                if is_root() {
                    let options = LoopOptions { name: Some(name.to_owned()), ..LoopOptions::default() };
                    export.attach_loop(&options, &helper())?;
                }
                Ok(Box::new(export))
            }
        }
    }
}

fn make_mount_point(path: &Path) -> Result<PathBuf, Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map(|()| path.to_owned()).map_err(|e| Failure::path(path, &e))
}

/// The names of what a payload is encrypted with and how it lies.
pub fn cipher_and_layout(payload: &Payload) -> (String, String) {
    use sealdisk_cipher::CipherName;
    use sealdisk_layout::LayoutName;
    let (cipher, layout) = match payload {
        Payload::Plain(_) => (CipherName::Aes256Xts, LayoutName::LengthPreserving),
        Payload::Sealed(sealed) => (sealed.cipher, sealed.layout),
    };
    (cipher.to_string(), layout.to_string())
}
