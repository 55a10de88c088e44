//! How the memory that an attached volume may take is divided.

use crate::failure::Failure;
use crate::size::ByteSize;

/// What an export may take at most: NBD 17 MiB for 16 clients and 32 MiB for their requests, FUSE less. The rest is the
/// program itself.
const OF_EXPORT: u64 = 64 << 20;
/// Blocks of so many bytes are given back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LONG_BLOCK: libc::c_int = 2 << 20;
/// What a volume needs to work at all.
const LEAST: u64 = 32 << 20;

/// How much of the limit is left for the volume, when what its store takes is `of_store`.
pub fn of_volume(limit: ByteSize, of_store: u64) -> Result<usize, Failure> {
    let rest = limit.0.saturating_sub(OF_EXPORT + of_store);
    if rest < LEAST {
        let least = ByteSize(OF_EXPORT + of_store + LEAST);
        return Err(Failure::usage(format_args!("--memory {limit} is too little; {least} is the least")));
    }
    usize::try_from(rest)
        .map_err(|_| Failure::usage(format_args!("--memory {limit} is more than this machine can address")))
}

/// Keeps what is free from piling up. glibc gives every thread an arena of its own, up to eight for each processor, and what
/// is free in one is of no use to the others: sixteen clients took half as much memory again. And once a long block was freed,
/// it takes blocks of that length from the arenas too, where they leave holes. To be called before
/// the first thread.
pub fn bound_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls change parameters of the allocator and nothing else.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 4);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LONG_BLOCK);
    }
}
