//! Asking at the terminal.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::signals::HeldSignals;

/// What would end or stop the process and leave the terminal hiding its input. Held back while a question is open; once
/// the terminal is restored they have their usual effect.
const DISTURBING: [libc::c_int; 5] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP];

/// The terminal that controls this process, whatever standard output is connected to.
pub struct Terminal {
    tty: File,
}

impl Terminal {
    /// Opens it.
    pub fn open() -> io::Result<Self> {
        Ok(Self { tty: File::options().read(true).write(true).open("/dev/tty")? })
    }

    /// Prints `prompt` and reads one line of at most `longest` bytes that is not shown. `None` at the end of input.
    pub fn ask_secret(&self, prompt: &str, longest: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        // Declared before what hides the input, and so dropped after it.
        let signals = HeldSignals::hold(&DISTURBING)?;
        // The prompt comes when the terminal is ready: nothing typed after it is shown or thrown away.
        let _hidden = HiddenInput::begin(&self.tty)?;
        (&self.tty).write_all(prompt.as_bytes())?;
        wait_for_input(&self.tty, &signals)?;
        self.read_line(longest)
    }

    /// Prints `prompt` and reads one line. `None` at the end of input.
    pub fn ask(&self, prompt: &str) -> io::Result<Option<String>> {
        (&self.tty).write_all(prompt.as_bytes())?;
        let line = self.read_line(512)?;
        Ok(line.map(|line| String::from_utf8_lossy(&line).into_owned()))
    }

    /// In canonical mode the terminal hands over a line at a time.
    fn read_line(&self, longest: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        // Canonical mode keeps at most 4096 bytes of a line (termios(3)).
        let mut buf = Zeroizing::new([0_u8; 4096]);
        let len = (&self.tty).read(&mut buf[..])?;
        let line = match buf[..len].split_last() {
            None => return Ok(None),
            Some((b'\n', line)) => line,
            Some(_) => &buf[..len],
        };
        if line.len() > longest {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {longest} bytes")));
        }
        Ok(Some(Zeroizing::new(line.to_vec())))
    }
}

fn wait_for_input(tty: &File, signals: &HeldSignals) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(tty, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
            Ok(_) if !fds[1].revents().is_empty() => {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "interrupted"));
            }
            Ok(_) => return Ok(()),
        }
    }
}

/// The terminal does not show what is typed until this is dropped.
struct HiddenInput<'a> {
    tty: &'a File,
    before: Termios,
}

impl<'a> HiddenInput<'a> {
    fn begin(tty: &'a File) -> io::Result<Self> {
        let before = tcgetattr(tty)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The newline is shown, so that what is printed next begins on a line of its own.
        hidden.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
        // FLUSH: what was typed before the prompt was shown is not meant as the passphrase.
        tcsetattr(tty, OptionalActions::Flush, &hidden)?;
        Ok(Self { tty, before })
    }
}

impl Drop for HiddenInput<'_> {
    fn drop(&mut self) {
        // A terminal that has gone away cannot be restored, and nothing else makes this fail.
        let _ = tcsetattr(self.tty, OptionalActions::Flush, &self.before);
    }
}
