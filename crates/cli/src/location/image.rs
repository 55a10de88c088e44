//! Images on Ceph: found, opened and locked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealdisk_rados::{Cluster, Credentials, Image, ImageError, ImageName, Pool, RadosError, RbdStore};
use sealdisk_store::OpenMode;

use crate::arguments::CephOptions;
use crate::failure::{Failure, Kind};
use crate::patience::Patience;
use crate::registry::Identity;
use crate::volume_name::VolumeName;

/// An image, or a snapshot of one, in a cluster that this process is connected to.
#[derive(Clone)]
pub struct ImageLocation {
    /// The connection.
    pub cluster: Arc<Cluster>,
    /// The pool, and the namespace in it.
    pub pool: Arc<Pool>,
    /// The image.
    pub name: ImageName,
    credentials: Credentials,
    /// Says so when the cluster does not answer.
    _patience: Arc<Patience>,
}

impl ImageLocation {
    /// Connects to where the image is, or will be. This starts threads: not before a fork.
    pub fn connect(name: &ImageName, options: &CephOptions) -> Result<Self, Failure> {
        let credentials = credentials(options)?;
        let patience = Arc::new(Patience::begin());
        let cluster = Cluster::connect(&credentials).map_err(|error| not_connected(error, &credentials))?;
        patience.watch(&cluster);
        let pool = Pool::open(&cluster, &name.pool, &name.namespace);
        let pool = pool.map_err(|error| match error.is_absent() {
            true => {
                Failure::device(format_args!("there is no pool {} in this cluster; see `ceph osd pool ls`", name.pool))
            }
            false => explain(error, name, &credentials),
        })?;
        Ok(Self { cluster, pool: Arc::new(pool), name: name.clone(), credentials, _patience: patience })
    }

    /// With what it is connected.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Makes sure that it exists.
    pub fn look(&self) -> Result<(), Failure> {
        self.image(OpenMode::ReadOnly).map(drop)
    }

    /// Whether it exists.
    pub fn exists(&self) -> Result<bool, Failure> {
        match Image::open(&self.pool, &self.name.image, None, true) {
            Ok(_) => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Opens the image, or its snapshot, for what librbd does with it. This takes no lock.
    pub fn image(&self, mode: OpenMode) -> Result<Image, Failure> {
        let read_only = mode == OpenMode::ReadOnly;
        let opened = Image::open(&self.pool, &self.name.image, self.name.snapshot.as_deref(), read_only);
        opened.map_err(|error| self.failure(error))
    }

    /// Opens the image itself, also where a snapshot was named.
    pub fn whole_image(&self, mode: OpenMode) -> Result<Image, Failure> {
        let opened = Image::open(&self.pool, &self.name.image, None, mode == OpenMode::ReadOnly);
        opened.map_err(|error| self.failure(error))
    }

    /// Which image it is, whatever it is called.
    pub fn identity(&self) -> Result<Identity, Failure> {
        let image = self.image(OpenMode::ReadOnly)?;
        let identity = || -> Result<Identity, RadosError> {
            Ok(Identity::Image {
                cluster: self.cluster.fsid()?,
                pool: self.pool.id(),
                image: image.id()?,
                snapshot: self.name.snapshot.clone(),
            })
        };
        identity().map_err(|error| self.failure(error))
    }

    /// Opens it alone, or for reading together with other readers. Nobody reads what another is writing.
    pub fn open(&self, mode: OpenMode) -> Result<RbdStore, Failure> {
        match (mode, &self.name.snapshot) {
            (OpenMode::ReadWrite, Some(_)) => {
                return Err(Failure::device(format_args!("{self} is a snapshot, which nothing can change")));
            }
            (OpenMode::ReadOnly, None) => self.refuse_while_written()?,
            _ => {}
        }
        self.store(mode)
    }

    /// Opens it as it is. For writing, this takes its lock.
    pub fn store(&self, mode: OpenMode) -> Result<RbdStore, Failure> {
        RbdStore::open(&self.cluster, &self.name, mode).map_err(|error| match error {
            ImageError::Rados(error) => self.failure(error),
            busy @ ImageError::Busy { .. } => Failure::busy(busy),
            other => Failure::device(other),
        })
    }

    /// Whether a living client has the lock.
    pub fn refuse_while_written(&self) -> Result<(), Failure> {
        let image = self.whole_image(OpenMode::ReadOnly)?;
        match living_owner(&image).map_err(|error| self.failure(error))? {
            None => Ok(()),
            Some(owner) => Err(Failure::busy(format_args!(
                "{self} is being written by {owner}; detach it there, or use a snapshot: `sealdisk snapshot create`"
            ))),
        }
    }

    /// Takes the lock away from a client that is known to be dead, so that nobody waits until the cluster notices. Does
    /// nothing if somebody else has the lock, or nobody.
    pub fn break_lock_of(&self, dead: &str) -> Result<(), Failure> {
        let image = self.whole_image(OpenMode::ReadWrite)?;
        let broken = match image.lock_owner() {
            Ok(Some(owner)) if owner == dead => image.break_lock(dead),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        broken.map_err(|error| self.failure(error))
    }

    /// What it means for the user that Ceph refused.
    pub fn failure(&self, error: RadosError) -> Failure {
        explain(error, &self.name, &self.credentials)
    }
}

impl fmt::Display for ImageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        VolumeName::Image(self.name.clone()).fmt(f)
    }
}

/// The address of whoever has the lock, unless nobody at that address watches the image any more.
pub fn living_owner(image: &Image) -> Result<Option<String>, RadosError> {
    let Some(owner) = image.lock_owner()? else { return Ok(None) };
    Ok(image.watchers()?.contains(&owner).then_some(owner))
}

/// The options in Ceph's terms, with paths that hold in any working folder.
pub fn credentials(options: &CephOptions) -> Result<Credentials, Failure> {
    // As for Ceph's own programs; a list of several files is left to librados.
    let from_environment = std::env::var_os("CEPH_CONF").map(PathBuf::from);
    let from_environment = from_environment.filter(|conf| conf.exists() && !conf.is_absolute());
    let conf = options.conf.clone().or(from_environment);
    let absolute = |path: Option<PathBuf>| {
        path.map(|path| std::path::absolute(&path).map_err(|e| Failure::path(&path, &e))).transpose()
    };
    let (conf, keyring) = (absolute(conf)?, absolute(options.keyring.clone())?);
    let readable = |path: &Path| std::fs::File::open(path).map(drop).map_err(|e| Failure::path(path, &e));
    [&conf, &keyring].into_iter().flatten().try_for_each(|path| readable(path))?;
    Ok(Credentials { conf, id: options.id.clone(), keyring })
}

/// Why there is no connection, and what to do.
fn not_connected(error: RadosError, credentials: &Credentials) -> Failure {
    let user = user(credentials);
    let advice = match error.errno() {
        None => return Failure::device(error),
        Some(libc::ENOENT) if credentials.conf.is_none() && std::env::var_os("CEPH_CONF").is_none() => {
            "is there a configuration, and in it or beside it a keyring? --conf and --keyring name others".to_owned()
        }
        Some(libc::ENOENT) => {
            format!("no key of {user} was found; --keyring names a file that has it, --id another user")
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("the monitors do not know {user}, or the keyring has another key of it; see `ceph auth get {user}`")
        }
        Some(libc::ETIMEDOUT) => "no monitor answers; are the addresses in the configuration right?".to_owned(),
        _ => "see `ceph status`".to_owned(),
    };
    with_advice(error, &advice)
}

/// Why an operation on an image failed, and what to do.
fn explain(error: RadosError, name: &ImageName, credentials: &Credentials) -> Failure {
    let user = user(credentials);
    let pool = &name.pool;
    let advice = match error.errno() {
        None => return Failure::device(error),
        Some(libc::ENOENT) => format!("see `rbd ls {pool}` and `rbd snap ls {pool}/{}`", name.image),
        Some(libc::EACCES | libc::EPERM) => format!(
            "{user} may not do that; `ceph auth caps {user} mon 'profile rbd' osd 'profile rbd pool={pool}'` lets it read \
             and write images in this pool"
        ),
        Some(libc::EROFS) => "another client has the image open for writing".to_owned(),
        Some(libc::ETIMEDOUT) => "the cluster does not answer; see `ceph status`".to_owned(),
        Some(libc::ESHUTDOWN) => "the cluster has shut this client out; see `ceph osd blocklist ls`".to_owned(),
        Some(libc::EDQUOT | libc::ENOSPC) => format!("pool {pool} is full; see `ceph df`"),
        _ => return Failure::new(kind(&error), without_number(&error)),
    };
    with_advice(error, &advice)
}

fn with_advice(error: RadosError, advice: &str) -> Failure {
    Failure::new(kind(&error), format_args!("{}; {advice}", without_number(&error)))
}

fn kind(error: &RadosError) -> Kind {
    match error {
        RadosError::Missing(_) => Kind::WrongDevice,
        error if error.is_locked_elsewhere() => Kind::Busy,
        RadosError::Failed { source, .. } => Kind::of(source),
    }
}

/// The number says nothing to people.
fn without_number(error: &RadosError) -> String {
    let text = error.to_string();
    text.split_once(" (os error ").map_or(text.clone(), |(reason, _)| reason.to_owned())
}

fn user(credentials: &Credentials) -> String {
    match &credentials.id {
        Some(id) => format!("client.{id}"),
        None => "the user (client.admin unless --id or $CEPH_ARGS names another)".to_owned(),
    }
}
