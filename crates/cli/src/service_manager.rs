//! Telling systemd that a service is ready (`Type=notify`), for `attach --foreground` in a unit.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1` to the socket that the service manager named, if there is one (sd_notify(3)).
pub fn notify_ready() -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) => send(&socket, b"READY=1"),
        None => Ok(()),
    }
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // An abstract socket is written with @ for its leading zero byte (unix(7)).
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_and_an_abstract_socket_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let abstract_name = format!("sealdisk-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (server, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{abstract_name}").into()),
        ] {
            send(&name, b"READY=1").unwrap();
            let mut buf = [0; 64];
            let len = server.recv(&mut buf).unwrap();
            assert_eq!(&buf[..len], b"READY=1");
        }
        assert!(send(OsStr::new("/nonexistent/socket"), b"").is_err());
    }
}
