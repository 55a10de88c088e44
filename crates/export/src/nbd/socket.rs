//! A connected stream socket, unix or TCP.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

/// Bytes of replies that the kernel may hold for a slow client, where it allows that many: one full batch, so that a
/// worker hands its replies over in one call and goes on.
const SEND_BUFFER: usize = 1 << 20;

/// The server's end of a connection.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Takes over an accepted connection.
    pub(super) fn new(fd: OwnedFd, is_tcp: bool) -> Self {
        // Each of these only makes things better; a socket without them still works.
        let _ = sockopt::set_socket_send_buffer_size(&fd, SEND_BUFFER);
        if is_tcp {
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            let _ = sockopt::set_socket_keepalive(&fd, true);
        }
        Self(fd)
    }

    /// The descriptor, to wait for.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Waits for bytes; 0 is the end of the stream.
    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::net::recv(&self.0, &mut *buf, RecvFlags::empty()))?.0)
    }

    /// Takes what is there without waiting; `None` if nothing is.
    pub(super) fn recv_ready(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match retry_on_intr(|| rustix::net::recv(&self.0, &mut *buf, RecvFlags::DONTWAIT)) {
            Ok((len, _)) => Ok(Some(len)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fills the buffer, or fails with `UnexpectedEof`.
    pub(super) fn recv_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            match retry_on_intr(|| rustix::net::recv(&self.0, &mut *rest, RecvFlags::WAITALL))?.0 {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => filled += len,
            }
        }
        Ok(())
    }

    /// [`recv_exact`](Self::recv_exact), but no later than `deadline`.
    pub(super) fn recv_exact_by(&self, buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            self.set_timeout(Timeout::Recv, deadline)?;
            match self.recv(&mut buf[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => filled += len,
            }
        }
        Ok(())
    }

    /// Sends everything.
    pub(super) fn send_all(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        // The system takes at most this many parts in one call (UIO_MAXIOV).
        const MAX_PARTS: usize = 1024;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = &parts[..parts.len().min(MAX_PARTS)];
            let sent = retry_on_intr(|| {
                rustix::net::sendmsg(&self.0, some, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
            })?;
            IoSlice::advance_slices(&mut parts, sent);
        }
        Ok(())
    }

    /// [`send_all`](Self::send_all), but no later than `deadline`.
    pub(super) fn send_all_by(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.set_timeout(Timeout::Send, deadline)?;
        self.send_all(&mut [IoSlice::new(bytes)])
    }

    /// Takes back the deadlines of the `_by` methods.
    pub(super) fn clear_deadline(&self) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.0, Timeout::Recv, None)?;
        Ok(sockopt::set_socket_timeout(&self.0, Timeout::Send, None)?)
    }

    /// Lets no more requests in: whoever waits for one sees the end of the stream.
    pub(super) fn close_inward(&self) {
        // Fails only if the client has gone, which is as good.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Read);
    }

    /// Ends the connection in both directions: whoever waits on it wakes up.
    pub(super) fn close(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    fn set_timeout(&self, which: Timeout, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The system rounds down to microseconds, and zero would mean "for ever".
        Ok(sockopt::set_socket_timeout(&self.0, which, Some(left.max(Duration::from_millis(1))))?)
    }
}
