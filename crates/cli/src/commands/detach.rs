//! `detach`: flush a volume and stop offering it.

use crate::arguments::Detach;
use crate::commands::attach::clean_up_after_death;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::registry::{Registered, Registry};

/// Returns when the volume is flushed and can be attached again. Takes as long as the flush takes.
pub fn run(options: &Detach) -> Result<(), Failure> {
    let registry = Registry::of_this_user()?;
    let target = find(&registry, options)?;
    if !target.alive {
        // Whoever served it was killed; what is left is a name and perhaps a dead mount.
        registry.claim(&target.name, clean_up_after_death)?.release();
        return Ok(());
    }
    control::ask(&target.room.control_socket(), Request::Detach, None).map(drop)
}

/// A name, unless it can only be a path.
fn find(registry: &Registry, options: &Detach) -> Result<Registered, Failure> {
    if let Some(name) = options.target.to_str().filter(|target| !target.contains('/'))
        && let Some(found) = registry.find(name)
    {
        return Ok(found);
    }
    registry.find_volume(&options.target)?.ok_or_else(|| {
        Failure::device(format_args!("{} is not attached; see `sealdisk list`", options.target.display()))
    })
}
