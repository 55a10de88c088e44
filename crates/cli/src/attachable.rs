//! A volume that is to be attached: what must be known of it before a process of its own serves it.

use std::sync::Arc;

use sealdisk_header::Header;
use sealdisk_rados::{Cluster, ImageName};
use sealdisk_store::{FileStore, OpenMode, Store};
use serde::{Deserialize, Serialize};

use crate::arguments::{CephOptions, Volume};
use crate::daemon;
use crate::failure::Failure;
use crate::header_file::{HeaderFile, anonymous_file, fetch};
use crate::location::{ImageLocation, file, image};
use crate::registry::{Client, Identity, Registered, Registry};
use crate::volume_name::VolumeName;

/// A volume that was looked at and can be attached.
pub struct Attachable {
    /// What it is called.
    pub shown: String,
    /// Which it is.
    pub identity: Identity,
    /// Its header.
    pub header_file: HeaderFile,
    /// Whether nobody will write to it.
    pub read_only: bool,
    opening: Opening,
}

/// How its store is opened.
enum Opening {
    /// It is open already: a lock on a file passes on to a child.
    File(FileStore),
    /// A connection to Ceph has threads, and they do not pass on.
    Image(ImageName, CephOptions),
}

/// An open store.
pub struct Opened {
    /// It.
    pub store: Arc<dyn Store>,
    /// The connection that it lies behind.
    pub cluster: Option<Arc<Cluster>>,
    /// What the registry must remember of that.
    pub client: Option<Client>,
}

/// What a process found out that looked at an image.
#[derive(Serialize, Deserialize)]
struct Looked {
    identity: Identity,
}

impl Attachable {
    /// Looks at a volume: whether it is there, free, and has a header. Leaves this process with one thread.
    pub fn look(volume: &Volume, read_only: bool) -> Result<Self, Failure> {
        match &volume.name {
            VolumeName::Path(path) => {
                let path = file::locate(path)?;
                let identity = Identity::of_file(&path).map_err(|e| Failure::path(&path, &e))?;
                refuse_attached(&identity)?;
                let store = file::open(&path, mode(read_only))?;
                file::refuse_under_loop_device(&path)?;
                let (shown, header_file) = (path.display().to_string(), HeaderFile::of_file(&path));
                Ok(Self { shown, identity, header_file, read_only, opening: Opening::File(store) })
            }
            VolumeName::Image(name) => {
                let read_only = read_only || name.snapshot.is_some();
                let header = anonymous_file()?;
                let Looked { identity } = daemon::in_child(|| {
                    let image = ImageLocation::connect(name, &volume.ceph)?;
                    let identity = image.identity()?;
                    let left = refuse_attached(&identity)?;
                    if read_only {
                        if name.snapshot.is_none() {
                            image.refuse_while_written()?;
                        }
                    } else {
                        make_way(&image, left)?;
                    }
                    fetch(&image.store(OpenMode::ReadOnly)?, &header)?;
                    Ok(Looked { identity })
                })?;
                let shown = volume.name.to_string();
                let opening = Opening::Image(name.clone(), volume.ceph.clone());
                let header_file = HeaderFile::of_anonymous_file(header, shown.clone());
                Ok(Self { shown, identity, header_file, read_only, opening })
            }
        }
    }

    /// Loads its header.
    pub fn header(&self) -> Result<Header, Failure> {
        self.header_file.load()
    }

    /// Opens its store in the process that will serve it. From here on there are threads.
    pub fn open(self) -> Result<Opened, Failure> {
        let (name, options) = match self.opening {
            Opening::File(store) => return Ok(Opened { store: Arc::new(store), cluster: None, client: None }),
            Opening::Image(name, options) => (name, options),
        };
        let image = ImageLocation::connect(&name, &options)?;
        let store = image.open(mode(self.read_only))?;
        let address = image.cluster.address().map_err(|error| image.failure(error))?;
        let credentials = image.credentials().clone();
        let client = Client {
            address: (!self.read_only).then_some(address),
            conf: credentials.conf,
            id: credentials.id,
            keyring: credentials.keyring,
        };
        Ok(Opened { store: Arc::new(store), cluster: Some(Arc::clone(&image.cluster)), client: Some(client) })
    }
}

fn mode(read_only: bool) -> OpenMode {
    if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite }
}

/// Refuses what is attached already. Returns what a killed process left of it.
fn refuse_attached(identity: &Identity) -> Result<Option<Registered>, Failure> {
    match Registry::of_this_user()?.find_volume(identity)? {
        Some(holder) if holder.alive => Err(holder.in_the_way()),
        left => Ok(left),
    }
}

/// Makes sure that the image's lock can be had: takes it away from a process of ours that was killed. From another that
/// died the cluster takes it after half a minute; one that lives is reported before a passphrase is asked for.
fn make_way(image: &ImageLocation, left: Option<Registered>) -> Result<(), Failure> {
    if let Some(dead) = left.and_then(|left| left.entry?.client?.address) {
        image.break_lock_of(&dead)?;
    }
    let open = image.whole_image(OpenMode::ReadOnly)?;
    match image::living_owner(&open).map_err(|error| image.failure(error))? {
        None => Ok(()),
        Some(_) => image.store(OpenMode::ReadWrite).map(drop),
    }
}
