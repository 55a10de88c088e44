//! What a process must be that serves the disk its own machine writes back to.

use std::io;

/// Tells the kernel that this thread, and every thread it starts from now on, is part of a path on which dirty pages are
/// written back (`PR_SET_IO_FLUSHER`, Linux 5.6).
///
/// A file system on a loop device above this process may need this process to free memory: the kernel writes a dirty
/// page to the loop device, which asks us. If serving that request allocates memory, the kernel may want to write back
/// a dirty page first, to the same loop device, and wait for us for ever. As a flusher we are given memory without
/// waiting for writeback, and are not slowed down for pages that we write on behalf of others.
///
/// Call it at the start of a daemon, before any thread that a volume starts; the threads that serve a FUSE mount call
/// it themselves. It fails with `PermissionDenied` without CAP_SYS_RESOURCE, which root has on a machine but often not
/// in a container. Serving goes on without it, with that danger when memory is very short.
pub fn become_io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}
