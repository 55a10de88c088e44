//! What a server and its helper say to each other: a task in arguments, and a failure in what is printed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::ExportError;
use crate::loop_device::{self, LoopOptions};

/// What a helper is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    /// Put a loop device on a file, and print its number.
    AttachLoop { file: PathBuf, options: LoopOptions },
    /// Take a loop device down.
    DetachLoop { number: u32 },
    /// Write back whatever the kernel has cached.
    Sync,
}

const ATTACH: &str = "attach-loop";
const DETACH: &str = "detach-loop";
const SYNC: &str = "sync";

const READ_ONLY: &str = "read-only";
const WRITABLE: &str = "writable";
const DIRECT: &str = "direct";
const CACHED: &str = "cached";

impl Task {
    /// The task as arguments.
    pub fn to_arguments(&self) -> Vec<OsString> {
        match self {
            Self::AttachLoop { file, options } => {
                let LoopOptions { read_only, direct_io, block_size, name } = options;
                let access = if *read_only { READ_ONLY } else { WRITABLE };
                let caching = if *direct_io { DIRECT } else { CACHED };
                let fixed = [ATTACH.into(), file.into(), access.into(), caching.into(), block_size.to_string().into()];
                fixed.into_iter().chain(name.as_ref().map(OsString::from)).collect()
            }
            Self::DetachLoop { number } => vec![DETACH.into(), number.to_string().into()],
            Self::Sync => vec![SYNC.into()],
        }
    }

    /// The task that arguments say.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let (verb, rest) = arguments.split_first()?;
        let text = |word: &OsStr| word.to_str().map(str::to_owned);
        match (verb.to_str()?, rest) {
            (ATTACH, [file, access, caching, block_size, name @ ..]) => {
                let name = match name {
                    [] => None,
                    [name] => Some(text(name)?),
                    _ => return None,
                };
                let options = LoopOptions {
                    read_only: either(access, READ_ONLY, WRITABLE)?,
                    direct_io: either(caching, DIRECT, CACHED)?,
                    block_size: text(block_size)?.parse().ok()?,
                    name,
                };
                Some(Self::AttachLoop { file: file.into(), options })
            }
            (DETACH, [number]) => Some(Self::DetachLoop { number: text(number)?.parse().ok()? }),
            (SYNC, []) => Some(Self::Sync),
            _ => None,
        }
    }
}

/// Which of two words it is.
fn either(word: &OsStr, yes: &str, no: &str) -> Option<bool> {
    if word == yes { Some(true) } else { (word == no).then_some(false) }
}

/// What is being done, for a failure's story.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AttachLoop { file, .. } => write!(f, "putting a loop device on {}", file.display()),
            Self::DetachLoop { number } => write!(f, "detaching {}", loop_device::path(*number).display()),
            Self::Sync => write!(f, "writing back what is cached"),
        }
    }
}

/// A failure as text, from which the server makes its own: callers match on kinds and numbers, people read the rest.
pub(super) fn encode_failure(error: &ExportError) -> String {
    let (errno, said) = match error.source.raw_os_error() {
        Some(errno) => (errno, String::new()),
        None => (errno_of(error.source.kind()), error.source.to_string()),
    };
    format!("{errno}\0{said}\0{}", error.what)
}

/// The failure that a text tells, if it is one.
pub(super) fn decode_failure(text: &str) -> Option<ExportError> {
    let (errno, rest) = text.split_once('\0')?;
    let (said, what) = rest.split_once('\0')?;
    let source = io::Error::from_raw_os_error(errno.parse().ok()?);
    Some(ExportError::new(what, if said.is_empty() { source } else { io::Error::new(source.kind(), said) }))
}

/// A number of this kind.
fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::Unsupported => libc::ENOSYS,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn tasks_arrive_as_they_were_sent() {
        let file = PathBuf::from(OsString::from_vec(b"/run/my \n\xff disk".to_vec()));
        let named = LoopOptions { read_only: true, direct_io: false, block_size: 512, name: Some("-a b".into()) };
        for task in [
            Task::AttachLoop { file: file.clone(), options: LoopOptions::default() },
            Task::AttachLoop { file, options: named },
            Task::DetachLoop { number: 17 },
            Task::Sync,
        ] {
            assert_eq!(Task::parse(task.to_arguments()).as_ref(), Some(&task));
            let mut more = task.to_arguments();
            more.extend(["one".into(), "too many".into()]);
            assert_eq!(Task::parse(more), None);
        }
        for nonsense in [&[][..], &["detach-loop"], &["detach-loop", "-1"], &["attach-loop", "a", "b", "direct", "512"]]
        {
            assert_eq!(Task::parse(nonsense.iter().map(OsString::from)), None, "{nonsense:?}");
        }
    }

    #[test]
    fn failures_arrive_with_their_kind_their_number_and_their_words() {
        for source in [
            io::Error::from_raw_os_error(libc::ENXIO),
            io::Error::from_raw_os_error(libc::EACCES),
            ErrorKind::ResourceBusy.into(),
            io::Error::new(ErrorKind::InvalidInput, "too odd\n"),
            io::Error::new(ErrorKind::Unsupported, "too new"),
        ] {
            let sent = ExportError::new("detaching\n\0it", source);
            let arrived = decode_failure(&encode_failure(&sent)).unwrap();
            assert_eq!(arrived.to_string(), sent.to_string());
            assert_eq!(arrived.source.kind(), sent.source.kind());
            assert_eq!(arrived.source.raw_os_error(), sent.source.raw_os_error());
        }
        for nonsense in ["", "5", "5\0", "\0\0", "five\0\0what"] {
            assert!(decode_failure(nonsense).is_none(), "{nonsense:?}");
        }
    }
}
