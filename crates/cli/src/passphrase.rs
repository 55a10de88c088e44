//! Where a passphrase comes from: a terminal, standard input or a key file. Byte for byte as cryptsetup(8) reads them, so
//! that either program opens what the other made.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use sealdisk_header::Passphrase;
use zeroize::Zeroizing;

use crate::failure::{Failure, Kind};
use crate::terminal::Terminal;

/// Longest passphrase that is typed or piped in, in bytes. cryptsetup's limit; a longer one could not be typed there.
const LONGEST_PASSPHRASE: usize = 512;
/// Longest key file in bytes, cryptsetup's compiled-in limit.
const LONGEST_KEY_FILE: usize = 8 << 20;

/// What a passphrase is for, which decides how it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To open what exists.
    Open,
    /// To protect something from now on: asked for twice.
    Create,
}

/// How a passphrase came in: only at a terminal does asking again make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Typed.
    Terminal,
    /// Read from a file or a pipe.
    Stream,
}

/// Where [`read`] will take a passphrase from.
pub fn origin(key_file: Option<&Path>) -> Origin {
    match key_file {
        None if io::stdin().is_terminal() => Origin::Terminal,
        _ => Origin::Stream,
    }
}

/// Reads a passphrase: all of the key file if there is one (`-` is standard input); otherwise a line typed at the
/// terminal after `prompt`, or the first line of standard input where that is no terminal.
pub fn read(key_file: Option<&Path>, prompt: &str, purpose: Purpose) -> Result<Passphrase, Failure> {
    let bytes = match key_file {
        Some(path) if path.as_os_str() == "-" => {
            read_key_file(&mut io::stdin().lock()).map_err(|e| explain("standard input", e))?
        }
        Some(path) => {
            let mut file =
                File::open(path).map_err(|e| Failure::io(format_args!("key file {}", path.display()), &e))?;
            read_key_file(&mut file).map_err(|e| explain(&format!("key file {}", path.display()), e))?
        }
        None if io::stdin().is_terminal() => ask(prompt, purpose)?,
        None => read_line(&mut io::stdin().lock()).map_err(|e| explain("standard input", e))?,
    };
    Ok(Passphrase::new(bytes))
}

/// Two passphrases cannot both be all of standard input.
pub fn refuse_two_on_stdin(first: Option<&Path>, second: Option<&Path>) -> Result<(), Failure> {
    let is_stdin = |path: Option<&Path>| path.is_some_and(|path| path.as_os_str() == "-");
    if is_stdin(first) && is_stdin(second) {
        return Err(Failure::usage("only one of --key-file and --new-key-file can be standard input"));
    }
    Ok(())
}

fn ask(prompt: &str, purpose: Purpose) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let terminal = Terminal::open().map_err(|e| Failure::io("opening the terminal", &e))?;
    let ask_once = |prompt: &str| -> Result<Zeroizing<Vec<u8>>, Failure> {
        let line = terminal.ask_secret(prompt, LONGEST_PASSPHRASE).map_err(|e| explain("the passphrase", e))?;
        line.ok_or_else(|| Failure::usage("no passphrase was given"))
    };
    let first = ask_once(&format!("{prompt}: "))?;
    if purpose == Purpose::Create {
        if first.is_empty() {
            return Err(Failure::usage("an empty passphrase protects nothing"));
        }
        let second = ask_once(&format!("{prompt}, again: "))?;
        if *first != *second {
            return Err(Failure::new(Kind::NoPermission, "the passphrases do not match"));
        }
    }
    Ok(first)
}

/// Everything there is, without interpreting any of it.
fn read_key_file(input: &mut dyn Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    // Grown by hand: `read_to_end` would leave unwiped copies behind as it grows the vector.
    let mut capacity = 4096;
    loop {
        let filled = bytes.len();
        let mut larger = Zeroizing::new(vec![0; capacity]);
        larger[..filled].copy_from_slice(&bytes);
        let end = filled + read_fully(input, &mut larger[filled..])?;
        larger.truncate(end);
        bytes = larger;
        if end < capacity {
            break;
        }
        if capacity > LONGEST_KEY_FILE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 8 MiB, the limit for key files"));
        }
        // One byte more than the limit tells a file of exactly that length from a longer one.
        capacity = (capacity * 2).min(LONGEST_KEY_FILE + 1);
    }
    match bytes.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "empty")),
        false => Ok(bytes),
    }
}

/// Bytes up to the first newline, which is not part of them, or the end. Reads byte by byte so as to leave what follows
/// to whoever reads next.
fn read_line(input: &mut dyn Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(LONGEST_PASSPHRASE));
    let mut byte = Zeroizing::new([0]);
    loop {
        if read_fully(input, &mut byte[..])? == 0 {
            break match line.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "empty")),
                false => Ok(line),
            };
        }
        match byte[0] {
            b'\n' => break Ok(line),
            _ if line.len() == LONGEST_PASSPHRASE => {
                break Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 512 bytes; use --key-file"));
            }
            other => line.push(other),
        }
    }
}

/// Reads until the buffer is full or the input ends; returns how much was read.
fn read_fully(input: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match input.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn explain(what: &str, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::usage(format_args!("{what} is empty: no key was given")),
        io::ErrorKind::FileTooLarge => Failure::usage(format_args!("{what} is {error}")),
        _ => Failure::io(what, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(bytes: &[u8]) -> io::Result<Vec<u8>> {
        read_key_file(&mut &bytes[..]).map(|key| key.to_vec())
    }

    fn line(bytes: &[u8]) -> io::Result<Vec<u8>> {
        read_line(&mut &bytes[..]).map(|key| key.to_vec())
    }

    #[test]
    fn a_key_file_is_taken_byte_for_byte() {
        for bytes in [&b"secret"[..], b"secret\n", b"\n", b"\0", b"a\0b\nc\r\n", b"\xff\xfe"] {
            assert_eq!(key_file(bytes).unwrap(), bytes);
        }
        for len in [4095, 4096, 4097, 1 << 20, LONGEST_KEY_FILE] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            assert!(key_file(&bytes).unwrap() == bytes, "{len} bytes");
        }
    }

    #[test]
    fn an_empty_key_file_and_one_beyond_the_limit_are_refused() {
        assert_eq!(key_file(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(key_file(&vec![1; LONGEST_KEY_FILE + 1]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_piped_passphrase_ends_at_the_newline() {
        assert_eq!(line(b"secret\nmore\n").unwrap(), b"secret");
        assert_eq!(line(b"secret").unwrap(), b"secret");
        assert_eq!(line(b"a\0b\r\n").unwrap(), b"a\0b\r");
        assert_eq!(line(b"\n").unwrap(), b"");
        assert_eq!(line(b"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(line(&[b'x'; 512]).unwrap().len(), 512);
        assert_eq!(line(&[b'x'; 513]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_follows_the_line_is_left_for_the_next_reader() {
        let mut input = &b"old\nnew\n"[..];
        assert_eq!(&**read_line(&mut input).unwrap(), b"old");
        assert_eq!(&**read_line(&mut input).unwrap(), b"new");
    }
}
