//! A person at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A command that runs at a terminal of its own.
pub struct Typist {
    terminal: File,
    child: Child,
    /// Everything that stood on the screen so far.
    screen: String,
    /// Up to where the screen has been looked at.
    seen: usize,
}

impl Typist {
    /// Starts `command` with a new terminal as its input, output and controlling terminal.
    pub fn start(mut command: Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs: OwnedFd = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        let copy = || Stdio::from(theirs.try_clone().unwrap());
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                // Whoever runs the tests in the background may have had them ignored, and that is inherited.
                for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        let child = command.spawn().unwrap();
        // With the last copy of the terminal's other end here, its hanging up can be seen.
        drop((command, theirs));
        Self { terminal: ours.into(), child, screen: String::new(), seen: 0 }
    }

    /// Waits until the screen shows `text` behind what was waited for before.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        while !self.screen[self.seen..].contains(text) {
            assert!(self.read(), "the command ended without saying {text:?}; the screen shows {:?}", self.screen);
        }
        let found = self.screen[self.seen..].find(text).unwrap();
        self.seen += found + text.len();
    }

    /// Types, without a newline.
    pub fn types(&mut self, text: &[u8]) {
        self.terminal.write_all(text).unwrap();
    }

    /// What the screen has shown in the end, and how the command ended.
    pub fn ends(mut self) -> (String, ExitStatus) {
        while self.read() {}
        (std::mem::take(&mut self.screen), self.child.wait().unwrap())
    }

    /// Reads what is there; `false` once nobody has the terminal open any more (EIO, see pty(7)).
    fn read(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
        let hang = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_ne!(poll(&mut fds, Some(&hang)).unwrap(), 0, "the command hangs; the screen shows {:?}", self.screen);
        let mut buf = [0; 4096];
        match self.terminal.read(&mut buf) {
            Ok(0) | Err(_) => false,
            Ok(n) => {
                self.screen.push_str(&String::from_utf8_lossy(&buf[..n]));
                true
            }
        }
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        // Ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
