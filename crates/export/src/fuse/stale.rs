//! What a server that was killed leaves behind: a mount that answers nothing, and a loop device that gives errors.

use std::io;
use std::path::Path;

use super::mount::{self, Mounted};
use crate::loop_device;
use crate::{ExportError, LoopDevice};

/// Removes what a killed server left at `mountpoint`: the loop device, its link, and the dead mount. Says whether there
/// was anything to remove.
///
/// Fails with `ResourceBusy` if the disk there is being served, or if a file system on the dead loop device is still
/// mounted: that must be unmounted first, for it holds what was never written.
pub fn cleanup_stale(mountpoint: &Path) -> Result<bool, ExportError> {
    let looking = |error| ExportError::new(format!("looking for a disk at {}", mountpoint.display()), error);
    match mount::look(mountpoint).map_err(looking)? {
        Mounted::Nothing => return Ok(false),
        Mounted::Alive => {
            let what = format!("{} is in use by a disk that is being served", mountpoint.display());
            return Err(ExportError::new(what, io::ErrorKind::ResourceBusy));
        }
        Mounted::Dead => {}
    }
    let mountpoint = mount::absolute(mountpoint).map_err(looking)?;
    for number in loop_device::backed_by_files_in(&mountpoint).map_err(looking)? {
        LoopDevice::numbered(number).detach()?;
    }
    mount::unmount_dead(&mountpoint)
        .map_err(|error| ExportError::new(format!("unmounting the dead {}", mountpoint.display()), error))?;
    Ok(true)
}
