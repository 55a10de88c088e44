//! What a client is told: errno, as Linux spells it. Both NBD's error numbers and FUSE's are these.

use sealdisk_volume::{VolumeError, VolumeErrorKind};

/// The errno for an error of the volume.
pub(crate) fn errno(error: &VolumeError) -> i32 {
    match error.kind() {
        VolumeErrorKind::NotAuthentic | VolumeErrorKind::Store | VolumeErrorKind::Failed => libc::EIO,
        VolumeErrorKind::NoSpace => libc::ENOSPC,
        VolumeErrorKind::ReadOnly => libc::EROFS,
    }
}
