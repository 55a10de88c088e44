//! What a process must be that serves the disk its own machine writes back to.

/// Tells the kernel that this thread, and every thread it starts from now on, is part of a path on which dirty pages are
/// written back (`PR_SET_IO_FLUSHER`, Linux 5.6).
///
/// A file system on a loop device above this process may need this process to free memory: the kernel writes a dirty
/// page to the loop device, which asks us. If serving that request allocates memory, the kernel may want to write back
/// a dirty page first, to the same loop device, and wait for us for ever. As a flusher we are given memory without
/// waiting for writeback, and are not slowed down for pages that we write on behalf of others.
///
/// Call it at the start of a daemon, before any thread that a volume starts. It needs CAP_SYS_RESOURCE, which whoever
/// may set up a loop device has as a rule; without it nothing changes, and nothing can hang, since without a loop
/// device nothing above us is written back.
pub fn become_io_flusher() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}
