//! `detach`: flush a volume and stop offering it.

use crate::arguments::{CephOptions, Detach, Volume};
use crate::commands::attach::clean_up_after_death;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::location::{ImageLocation, Location};
use crate::registry::{Entry, Identity, Registered, Registry};
use crate::volume_name::VolumeName;

/// Returns when the volume is flushed and can be attached again. Takes as long as the flush takes.
pub fn run(options: &Detach) -> Result<(), Failure> {
    let registry = Registry::of_this_user()?;
    let target = find(&registry, options)?;
    if !target.alive {
        // Whoever served it was killed; what is left is a name, perhaps a dead mount, and perhaps a lock.
        if let Some(entry) = &target.entry
            && let Err(failure) = unlock(entry)
        {
            eprintln!("sealdisk: warning: its lock stays until Ceph notices, half a minute at most: {failure}");
        }
        registry.claim(&target.name, clean_up_after_death)?.release();
        return Ok(());
    }
    let is_image = target.entry.as_ref().is_some_and(|entry| entry.client.is_some());
    let late = || {
        let store =
            if is_image { "Ceph has not taken everything yet; `ceph status` tells why" } else { "still flushing" };
        let pid = target.entry.as_ref().map_or(String::new(), |entry| format!(" (process {})", entry.pid));
        eprintln!(
            "sealdisk: {store}. This goes on by itself and can be interrupted here; killing the server{pid} instead loses \
             what was written since the last flush"
        );
    };
    control::ask_patiently(&target.room.control_socket(), Request::Detach, late).map(drop)
}

/// Gives back the lock that a killed process had on an image.
fn unlock(entry: &Entry) -> Result<(), Failure> {
    let Some(client) = &entry.client else { return Ok(()) };
    let Some(dead) = &client.address else { return Ok(()) };
    let Ok(VolumeName::Image(name)) = VolumeName::parse(entry.volume.clone().into()) else { return Ok(()) };
    let options = CephOptions { conf: client.conf.clone(), id: client.id.clone(), keyring: client.keyring.clone() };
    ImageLocation::connect(&name, &options)?.break_lock_of(dead)
}

/// A name, unless it can only be a path or an image.
fn find(registry: &Registry, options: &Detach) -> Result<Registered, Failure> {
    let shown = options.target.to_string();
    let found = match &options.target {
        VolumeName::Path(path) => match path.to_str().filter(|name| !name.contains('/')).and_then(|n| registry.find(n))
        {
            Some(found) => Some(found),
            None => match Identity::of_file(path) {
                Ok(identity) => registry.find_volume(&identity)?,
                // The file is gone; its name may still be known.
                Err(_) => registry.find_named(&shown)?,
            },
        },
        // Its name will do, whatever the cluster is able to say, unless two clusters have images of one name.
        VolumeName::Image(_) => match registry.count_living(&shown)? {
            0 | 1 => registry.find_named(&shown)?,
            _ => {
                let volume = Volume { name: options.target.clone(), ceph: options.ceph.clone() };
                registry.find_volume(&Location::find(&volume)?.identity()?)?
            }
        },
    };
    found.ok_or_else(|| Failure::device(format_args!("{shown} is not attached; see `sealdisk list`")))
}
