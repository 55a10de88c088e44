//! Signals as something to wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals by which users and service managers end a program.
pub const ENDING: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Signals that are held back, and a descriptor that becomes readable when one arrives. When this is dropped, a signal
/// that arrived and was not taken does what it always does. Threads started meanwhile inherit the holding back.
pub struct HeldSignals {
    arrived: OwnedFd,
    before: libc::sigset_t,
}

impl HeldSignals {
    /// Holds back `signals` in this thread.
    pub fn hold(signals: &[libc::c_int]) -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises `set` before anything reads it; `pthread_sigmask` initialises `before` when it
        // returns 0; `signalfd` returns a descriptor that nothing else owns.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
            let before = before.assume_init();
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = io::Error::last_os_error();
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                return Err(error);
            }
            Ok(Self { arrived: OwnedFd::from_raw_fd(fd), before })
        }
    }

    /// Takes a signal that has arrived, if one has; it then has no further effect.
    pub fn take(&self) -> Option<libc::c_int> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the kernel writes at most `size` bytes to `info`, and all of them when it returns `size`.
        unsafe {
            let n = libc::read(self.arrived.as_raw_fd(), info.as_mut_ptr().cast(), size);
            (n == size as isize).then(|| info.assume_init().ssi_signo as libc::c_int)
        }
    }
}

impl AsFd for HeldSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by `pthread_sigmask`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_signal_can_be_waited_for_and_taken() {
        let held = HeldSignals::hold(&[libc::SIGUSR1]).unwrap();
        assert_eq!(held.take(), None);
        // SAFETY: sends a signal to this thread, which holds it back.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
        assert_eq!(held.take(), Some(libc::SIGUSR1));
        assert_eq!(held.take(), None);
    }
}
