//! Where an export listens: a unix socket or a TCP port.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::ExportError;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket of this path, for its owner only.
    Unix(PathBuf),
    /// `HOST:PORT`; port 0 lets the system choose.
    Tcp(String),
}

/// What is neither `unix:PATH` nor `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither unix:PATH nor HOST:PORT")]
pub struct BadListenAddress(String);

impl FromStr for ListenAddress {
    type Err = BadListenAddress;

    fn from_str(text: &str) -> Result<Self, BadListenAddress> {
        let bad = || BadListenAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_and_port) => f.write_str(host_and_port),
        }
    }
}

/// A listening socket. A unix socket's path is removed when this is dropped.
pub(super) enum Listener {
    Unix { fd: OwnedFd, path: PathBuf, inode: (u64, u64) },
    Tcp(TcpListener),
}

impl Listener {
    /// Begins to listen. A unix socket that a dead server has left behind is replaced.
    pub(super) fn bind(address: &ListenAddress) -> Result<Self, ExportError> {
        match address {
            ListenAddress::Unix(path) => {
                bind_unix(path).map_err(|error| ExportError::new(format!("cannot listen at {}", path.display()), error))
            }
            ListenAddress::Tcp(host_and_port) => TcpListener::bind(host_and_port)
                .map(Self::Tcp)
                .map_err(|error| ExportError::new(format!("cannot listen at {host_and_port}"), error)),
        }
    }

    /// The URI under which clients find the export `name`, as the "NBD URI specification" of the NetworkBlockDevice
    /// project writes it.
    pub(super) fn uri(&self, name: &str) -> io::Result<String> {
        let name = percent_encoded(name.as_bytes());
        Ok(match self {
            Self::Unix { path, .. } => {
                use std::os::unix::ffi::OsStrExt;
                let path = std::path::absolute(path)?;
                format!("nbd+unix:///{name}?socket={}", percent_encoded(path.as_os_str().as_bytes()))
            }
            Self::Tcp(listener) => format!("nbd://{}/{name}", listener.local_addr()?),
        })
    }

    /// What whoever attached the disk should know about the address.
    pub(super) fn warning(&self) -> Option<String> {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) if address.ip().is_loopback() => None,
                Ok(address) => Some(format!(
                    "{address} can be reached over the network, and NBD there is neither encrypted nor authenticated: \
                     whoever reaches it can read and change the disk"
                )),
                Err(_) => None,
            },
            Self::Unix { .. } => None,
        }
    }

    /// Whether connections are TCP.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix { fd, .. } => fd.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { path, inode, .. } = self
            && inode_of(path).is_ok_and(|found| found == *inode)
        {
            // The path stays behind if the directory has become read-only; the next server replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    // Two servers that find the same dead socket must not remove each other's new one.
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;

    remove_dead_socket(path)?;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the path the mode of the socket, less the umask: it never exists with a wider one.
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(Listener::Unix { fd, path: path.to_owned(), inode: inode_of(path)? })
}

fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
    }
}

fn inode_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The text as it may stand in any part of a URI (RFC 3986, section 2.3), slashes left alone.
fn percent_encoded(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!("unix:/run/x".parse(), Ok(ListenAddress::Unix("/run/x".into())));
        assert_eq!("localhost:10809".parse(), Ok(ListenAddress::Tcp("localhost:10809".into())));
        assert_eq!("[::1]:0".parse(), Ok(ListenAddress::Tcp("[::1]:0".into())));
        for bad in ["", "unix:", "localhost", ":10809", "localhost:", "localhost:99999", "/run/x"] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_and_paths_are_encoded_for_a_uri() {
        assert_eq!(percent_encoded("a b/ü?".as_bytes()), "a%20b/%C3%BC%3F");
    }

    #[test]
    fn only_addresses_beyond_this_machine_are_warned_of() {
        let warning = |text: &str| Listener::bind(&text.parse().unwrap()).unwrap().warning();
        assert_eq!(warning("127.0.0.1:0"), None);
        assert!(warning("0.0.0.0:0").unwrap().contains("neither encrypted nor authenticated"));
    }
}
