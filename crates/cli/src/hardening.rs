//! Keeping keys out of core dumps, swap and other processes' reach.

use rustix::mm::{MlockAllFlags, mlock, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// No core dumps, and no attaching by debuggers of the same user. Before the first secret is read.
pub fn forbid_dumps() {
    // Neither can fail with these arguments; if a seccomp filter objects, the command is still worth running.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Keeps all of this process's memory out of swap where that is allowed: it also keeps a disk that swap lies on from
/// waiting for itself.
///
/// Only with CAP_IPC_LOCK: without it, locked memory counts against a small limit, and allocations would fail beyond it.
/// Pages are locked as they are touched, so that thread stacks do not count in full.
pub fn keep_memory_out_of_swap() -> bool {
    let may_lock = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    may_lock && mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).is_ok()
}

/// Keeps these bytes out of swap where the limit on locked memory allows it.
pub fn keep_out_of_swap(secret: &[u8]) -> bool {
    // SAFETY: locking does not change what the memory holds.
    unsafe { mlock(secret.as_ptr().cast_mut().cast(), secret.len()) }.is_ok()
}
