//! How the memory that an attached volume may take is divided.

use sealdisk_layout::Payload;

use crate::failure::Failure;
use crate::size::ByteSize;
use crate::volume_name::VolumeName;

/// What an export may take at most: NBD 17 MiB for 16 clients and 32 MiB for their requests, FUSE less. The rest is the
/// program itself.
const OF_EXPORT: u64 = 64 << 20;
/// For requests of NBD's clients.
const OF_REQUESTS: usize = 32 << 20;
/// The same of a volume on Ceph, with what Ceph's library copies of them.
const OF_FAR_REQUESTS: usize = 48 << 20;
/// What Ceph's libraries take beside that: their code and threads, and what lies free between their blocks.
const OF_CEPH: u64 = 112 << 20;
/// What a volume needs to work at all.
const LEAST: u64 = 32 << 20;

/// Blocks of so many bytes are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LONG_BLOCK: libc::c_int = 2 << 20;
/// The same in a process with Ceph's library, which copies what is written: up to 4 MiB at a time, of new memory each time,
/// and to get it from the system took a quarter of the processor time of long writes.
#[cfg(target_env = "gnu")]
const LONG_BLOCK_OF_CEPH: libc::c_int = 8 << 20;
/// So much may lie free at the end of an arena before it is given back.
#[cfg(target_env = "gnu")]
const FREE_OF_CEPH: libc::c_int = 16 << 20;

/// Where a volume lies, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a file, or on a device.
    Local,
    /// On Ceph.
    Ceph,
}

impl From<&VolumeName> for Place {
    fn from(name: &VolumeName) -> Self {
        match name {
            VolumeName::Path(_) => Self::Local,
            VolumeName::Image(_) => Self::Ceph,
        }
    }
}

/// Who may take how much, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The volume.
    pub volume: usize,
    /// Requests of NBD's clients.
    pub requests: usize,
}

impl Shares {
    /// Divides what a volume in this place may take.
    pub fn of(limit: ByteSize, place: Place) -> Result<Self, Failure> {
        let (set_aside, requests) = match place {
            Place::Local => (OF_EXPORT, OF_REQUESTS),
            Place::Ceph => (OF_EXPORT + OF_CEPH, OF_FAR_REQUESTS),
        };
        let rest = limit.0.saturating_sub(set_aside);
        if rest < LEAST {
            let least = ByteSize(set_aside + LEAST);
            return Err(Failure::usage(format_args!("--memory {limit} is too little; {least} is the least")));
        }
        let volume = usize::try_from(rest)
            .map_err(|_| Failure::usage(format_args!("--memory {limit} is more than this machine can address")))?;
        Ok(Self { volume, requests })
    }

    /// The same, once it is known what kind of volume it is: on Ceph, one without seals leaves to requests half of what they
    /// would take.
    pub fn of_kind(self, place: Place, payload: &Payload) -> Self {
        match (place, payload) {
            (Place::Ceph, Payload::Plain(_)) => Self { requests: self.requests + self.volume / 4, ..self },
            _ => self,
        }
    }
}

/// Keeps what is free from piling up. glibc gives every thread an arena of its own, up to eight for each processor, and what
/// is free in one is of no use to the others: sixteen clients took half as much memory again. And once a long block was freed,
/// it takes blocks of that length from the arenas too, where they leave holes. To be called before
/// the first thread.
pub fn bound_allocator(place: Place) {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls change parameters of the allocator and nothing else.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 4);
        match place {
            Place::Local => libc::mallopt(libc::M_MMAP_THRESHOLD, LONG_BLOCK),
            Place::Ceph => {
                libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_OF_CEPH);
                libc::mallopt(libc::M_MMAP_THRESHOLD, LONG_BLOCK_OF_CEPH)
            }
        };
    }
}
