//! Which volumes are attached: one folder each, in a folder that only the user can enter.
//!
//! ```text
//! /run/sealdisk/                 or $XDG_RUNTIME_DIR/sealdisk for users other than root
//!     pgdata/                    one attached volume, by name
//!         lock                   locked by the process that serves the volume, as long as it lives
//!         entry.json             what is attached, see `Entry`
//!         control                socket for `detach`, `list` and `info`
//!         log                    what went wrong since
//!         nbd, mount             where an export lives, if it needs a place
//! ```
//!
//! The lock decides: a folder whose lock nobody holds was left behind by a process that was killed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind};

/// Longest name of an attached volume in bytes: a unix socket's path has room for 107.
const LONGEST_NAME: usize = 48;

/// Which volume it is, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// A regular file: device and inode.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
    /// An image on Ceph.
    Image {
        /// The cluster's UUID.
        cluster: String,
        /// The pool's number.
        pool: i64,
        /// The image's id, which stays when it is renamed.
        image: String,
        /// The snapshot's name.
        snapshot: Option<String>,
    },
}

impl Identity {
    /// The identity of what `path` leads to.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(match metadata.file_type().is_block_device() {
            true => Self::Device(metadata.rdev()),
            false => Self::File(metadata.dev(), metadata.ino()),
        })
    }
}

/// What must be remembered of a connection to Ceph beyond the life of the process that had it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Client {
    /// Its address, by which the image's lock knows its owner; `None` where nothing is locked.
    pub address: Option<String>,
    /// `--conf`
    pub conf: Option<PathBuf>,
    /// `--id`
    pub id: Option<String>,
    /// `--keyring`
    pub keyring: Option<PathBuf>,
}

/// What is attached. The fields that `list --json` shows are documented there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// The name it was attached under.
    pub name: String,
    /// The volume's absolute path, or the image's name.
    pub volume: String,
    /// The volume, whatever its name.
    pub identity: Identity,
    /// The connection to Ceph, for an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
    /// The process that serves it.
    pub pid: u32,
    /// Seconds since 1970 when it was attached.
    pub since: u64,
    /// `nbd` or `fuse`.
    pub export: String,
    /// Where clients find the disk.
    pub address: String,
    /// Usable size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The cipher's name.
    pub cipher: String,
    /// The layout's name.
    pub layout: String,
}

/// The folder of all attached volumes.
pub struct Registry {
    folder: PathBuf,
}

/// An attached volume, or what is left of one.
pub struct Registered {
    /// Its name.
    pub name: String,
    /// What it says of itself; `None` while it is still being attached.
    pub entry: Option<Entry>,
    /// Whether the process that serves it is alive.
    pub alive: bool,
    /// Its folder.
    pub room: Room,
}

impl Registry {
    /// This user's. `SEALDISK_RUNTIME_DIR` overrides where it lies.
    pub fn of_this_user() -> Result<Self, Failure> {
        if let Some(folder) = std::env::var_os("SEALDISK_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
            let folder = std::path::absolute(&folder).map_err(|e| Failure::path(Path::new(&folder), &e))?;
            return Ok(Self { folder });
        }
        if rustix::process::geteuid().is_root() {
            return Ok(Self { folder: "/run/sealdisk".into() });
        }
        let uid = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(format!("/run/user/{uid}"))).filter(|folder| folder.is_dir()))
            .ok_or_else(|| Failure::usage("XDG_RUNTIME_DIR is not set: there is no place to note what is attached"))?;
        Ok(Self { folder: runtime.join("sealdisk") })
    }

    fn create_folder(&self) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::path(&self.folder, &e);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(failed)?;
        let metadata = fs::symlink_metadata(&self.folder).map_err(failed)?;
        // Sockets in here hand out decrypted disks.
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(Failure::permission(format_args!(
                "{} must be a folder of this user's that nobody else can write to",
                self.folder.display()
            )));
        }
        Ok(())
    }

    /// Takes `name` for this process and its children, and clears away what a killed process left under it by calling
    /// `clean_up` with the folder first.
    pub fn claim(&self, name: &str, clean_up: impl Fn(&Room) -> Result<(), Failure>) -> Result<Claim, Failure> {
        check_name(name)?;
        self.create_folder()?;
        let room = Room { folder: self.folder.join(name) };
        loop {
            let failed = |e: io::Error| Failure::path(&room.folder, &e);
            match DirBuilder::new().mode(0o700).create(&room.folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(e)),
                _ => {}
            }
            let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(room.lock());
            let lock = match open {
                // Somebody removed the folder just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(failed)?,
            };
            match lock_patiently(&lock) {
                Ok(()) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let whom = room.read_entry().map_or("another volume that is being attached".into(), |entry| {
                        format!("{} (process {})", entry.volume, entry.pid)
                    });
                    return Err(Failure::busy(format_args!(
                        "the name '{name}' is taken by {whom}; choose another --name"
                    )));
                }
                Err(e) => return Err(failed(e.into())),
            }
            // The lock counts only if it is still the one that others would find.
            let found = fs::metadata(room.lock()).map(|m| (m.dev(), m.ino())).ok();
            let held = lock.metadata().map(|m| (m.dev(), m.ino())).map_err(failed)?;
            if found != Some(held) {
                continue;
            }
            clean_up(&room)?;
            room.clear();
            return Ok(Claim { room, _lock: lock });
        }
    }

    /// All attached volumes by name, and what is left of those whose process was killed.
    pub fn all(&self) -> Result<Vec<Registered>, Failure> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| Failure::path(&self.folder, &e))?,
        };
        let mut all: Vec<Registered> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| self.find(&name))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// The volume attached under `name`.
    pub fn find(&self, name: &str) -> Option<Registered> {
        check_name(name).ok()?;
        let room = Room { folder: self.folder.join(name) };
        let lock = File::open(room.lock()).ok()?;
        let alive = flock(&lock, FlockOperation::NonBlockingLockShared).is_err();
        Some(Registered { name: name.to_owned(), entry: room.read_entry(), alive, room })
    }

    /// The attached volume of this identity; what a killed process left of it only where no living one has it.
    pub fn find_volume(&self, identity: &Identity) -> Result<Option<Registered>, Failure> {
        self.first(|entry| entry.identity == *identity)
    }

    /// The attached volume of this name, for when what it names is gone or out of reach.
    pub fn find_named(&self, volume: &str) -> Result<Option<Registered>, Failure> {
        self.first(|entry| entry.volume == volume)
    }

    /// How many volumes of this name are attached.
    pub fn count_living(&self, volume: &str) -> Result<usize, Failure> {
        let is_named = |registered: &&Registered| {
            registered.alive && registered.entry.as_ref().is_some_and(|entry| entry.volume == volume)
        };
        Ok(self.all()?.iter().filter(is_named).count())
    }

    fn first(&self, matches: impl Fn(&Entry) -> bool) -> Result<Option<Registered>, Failure> {
        let matching = self.all()?.into_iter().filter(|registered| registered.entry.as_ref().is_some_and(&matches));
        Ok(matching.max_by_key(|registered| registered.alive))
    }
}

/// Whoever looks whether a volume is alive holds its lock for a moment, and is not to be taken for its owner.
fn lock_patiently(lock: &File) -> rustix::io::Result<()> {
    let mut left = 20;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) if left > 0 => left -= 1,
            other => return other,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The folder of one attached volume.
#[derive(Clone)]
pub struct Room {
    folder: PathBuf,
}

impl Room {
    fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Where requests of `detach`, `list` and `info` arrive.
    pub fn control_socket(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// What went wrong since the volume was attached.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Where NBD is served unless the user says otherwise.
    pub fn nbd_socket(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    /// Where FUSE is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.folder.join("mount")
    }

    fn entry(&self) -> PathBuf {
        self.folder.join("entry.json")
    }

    /// Removes everything but the lock, by name: a mount that is still there must not be descended into.
    fn clear(&self) {
        for file in [self.entry(), self.unfinished_entry(), self.control_socket(), self.log(), self.nbd_socket()] {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(self.mount_point());
    }

    fn unfinished_entry(&self) -> PathBuf {
        self.folder.join("entry.json.new")
    }

    /// What the process that serves the volume says of it.
    fn read_entry(&self) -> Option<Entry> {
        serde_json::from_slice(&fs::read(self.entry()).ok()?).ok()
    }
}

/// A name that this process, or the one that made it, has taken. The lock goes with the process; the folder goes with
/// [`release`](Self::release).
pub struct Claim {
    room: Room,
    _lock: File,
}

impl Claim {
    /// The folder.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Lets others see what is attached.
    pub fn announce(&self, entry: &Entry) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::path(&self.room.entry(), &e);
        let text = serde_json::to_vec_pretty(entry).map_err(|e| failed(e.into()))?;
        let unfinished = self.room.unfinished_entry();
        fs::write(&unfinished, text).map_err(failed)?;
        fs::rename(&unfinished, self.room.entry()).map_err(failed)
    }

    /// Gives the name back and removes the folder.
    pub fn release(self) {
        // Still under the lock, so that nobody's new folder is removed. What cannot be removed is cleared away when the
        // name is used next.
        self.room.clear();
        let _ = fs::remove_file(self.room.lock());
        let _ = fs::remove_dir(&self.room.folder);
    }
}

/// Names go into paths and device names.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let good =
        !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with(['.', '-']) && name.chars().all(allowed);
    good.then_some(()).ok_or_else(|| {
        Failure::usage(format_args!(
            "'{name}' cannot be a name: it has 1 to {LONGEST_NAME} letters, digits or . _ - + and does not begin with . or -"
        ))
    })
}

/// The name for a volume whose user did not choose one: `stem` with an underscore for every character that a name cannot
/// have.
pub fn default_name(stem: &str) -> String {
    let stem = stem.trim_start_matches(['.', '-']);
    let name: String =
        stem.chars().map(|c| if check_name(&format!("x{c}")).is_ok() { c } else { '_' }).take(LONGEST_NAME).collect();
    if name.is_empty() { "volume".to_owned() } else { name }
}

impl Registered {
    /// The failure of a command that needs the volume for itself.
    pub fn in_the_way(&self) -> Failure {
        let pid = self.entry.as_ref().map_or(String::new(), |entry| format!(" by process {}", entry.pid));
        Failure::new(
            Kind::Busy,
            format_args!("the volume is attached as '{}'{pid}; `sealdisk detach {}` first", self.name, self.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> (tempfile::TempDir, Registry) {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sealdisk");
        (dir, Registry { folder })
    }

    fn entry(name: &str, volume: &Path) -> Entry {
        Entry {
            name: name.to_owned(),
            volume: volume.display().to_string(),
            identity: Identity::of_file(volume).unwrap(),
            client: None,
            pid: 1,
            since: 0,
            export: "nbd".into(),
            address: String::new(),
            size: 0,
            read_only: false,
            cipher: String::new(),
            layout: String::new(),
        }
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "\u{e9}", &"x".repeat(49)] {
            assert_eq!(check_name(bad).unwrap_err().kind, Kind::WrongParameters, "{bad}");
        }
        for good in ["pgdata", "a", "x.1_2-3+4", &"x".repeat(48)] {
            check_name(good).unwrap();
        }
        for (path, name) in
            [("pgdata", "pgdata"), ("a b", "a_b"), ("", "volume"), ("..x", "x"), ("-@", "_"), ("i@s", "i_s")]
        {
            let given = default_name(path);
            check_name(&given).unwrap();
            assert_eq!(given, name);
        }
    }

    #[test]
    fn a_name_is_claimed_once_and_released() {
        let (_dir, registry) = registry();
        let claim = registry.claim("a", |_| Ok(())).unwrap();
        assert_eq!(registry.claim("a", |_| Ok(())).err().unwrap().kind, Kind::Busy);
        assert!(registry.find("a").unwrap().alive);
        claim.release();
        assert!(registry.find("a").is_none());
        registry.claim("a", |_| Ok(())).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_seen_as_dead_and_cleared_away() {
        let (_dir, registry) = registry();
        let volume = tempfile::NamedTempFile::new().unwrap();
        let claim = registry.claim("a", |_| Ok(())).unwrap();
        claim.announce(&entry("a", volume.path())).unwrap();
        assert!(registry.find_volume(&Identity::of_file(volume.path()).unwrap()).unwrap().unwrap().alive);
        drop(claim);
        assert!(!registry.find_volume(&Identity::of_file(volume.path()).unwrap()).unwrap().unwrap().alive);
        let cleaned = std::cell::Cell::new(false);
        registry
            .claim("a", |_| {
                cleaned.set(true);
                Ok(())
            })
            .unwrap();
        assert!(cleaned.get());
    }

    #[test]
    fn a_living_process_is_found_before_a_dead_one() {
        let (_dir, registry) = registry();
        let volume = tempfile::NamedTempFile::new().unwrap();
        for name in ["a", "c"] {
            registry.claim(name, |_| Ok(())).unwrap().announce(&entry(name, volume.path())).unwrap();
        }
        let living = registry.claim("b", |_| Ok(())).unwrap();
        living.announce(&entry("b", volume.path())).unwrap();
        assert_eq!(registry.find_volume(&Identity::of_file(volume.path()).unwrap()).unwrap().unwrap().name, "b");
    }

    #[test]
    fn a_volume_is_found_by_any_of_its_paths() {
        let (dir, registry) = registry();
        let volume = dir.path().join("v");
        let other = dir.path().join("other");
        fs::write(&volume, b"x").unwrap();
        fs::hard_link(&volume, &other).unwrap();
        let claim = registry.claim("a", |_| Ok(())).unwrap();
        claim.announce(&entry("a", &volume)).unwrap();
        assert_eq!(registry.find_volume(&Identity::of_file(&other).unwrap()).unwrap().unwrap().name, "a");
        assert!(registry.find_volume(&Identity::of_file(dir.path()).unwrap()).unwrap().is_none());
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let (_dir, registry) = registry();
        DirBuilder::new().mode(0o700).create(&registry.folder).unwrap();
        fs::set_permissions(&registry.folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(registry.claim("a", |_| Ok(())).err().unwrap().kind, Kind::NoPermission);
    }
}
