//! Talking to the process that serves a volume: one request and one answer, each a line of JSON, over a unix socket in
//! the registry that only its user can reach.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind};
use crate::patience::UNREMARKABLE;

/// Longest line that is accepted, in bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// How long the server waits for a client that has connected.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// How the volume does.
    Status,
    /// To flush it and stop.
    Detach,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How the volume does.
    Status(Health),
    /// It is flushed, and no longer offered.
    Detached,
    /// It was not done.
    Failed {
        /// The exit code for whoever asked.
        code: u8,
        /// Why.
        message: String,
    },
}

/// The state of a volume that takes no writes since a flush failed.
pub const FAILED: &str = "failed";

/// The state of a volume whose store does not answer. Nothing is lost, and it ends when the store answers.
pub const WAITING: &str = "waiting for Ceph";

/// How an attached volume does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `healthy`, `read-only`, `ending`, `failed` or [`WAITING`].
    pub state: String,
    /// Seconds since 1970 when the operation began that has waited for Ceph for so long that somebody should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<u64>,
    /// Why it failed, or why it has not ended yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is known to be missing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Which implementation of the cipher runs.
    pub implementation: String,
    /// Counters of the volume, by name.
    #[serde(flatten)]
    pub counters: std::collections::BTreeMap<String, u64>,
}

impl Health {
    /// The same, if an operation has waited since then.
    #[must_use]
    pub fn with_wait(mut self, since: Option<Instant>) -> Self {
        let Some(long) = since.map(|since| since.elapsed()).filter(|long| *long >= UNREMARKABLE) else { return self };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.waiting_since = Some(now.saturating_sub(long).as_secs());
        if self.state != FAILED {
            self.state = WAITING.to_owned();
        }
        self
    }
}

/// Where requests arrive.
pub struct ControlSocket {
    listener: UnixListener,
}

/// A request that waits for its answer.
pub struct Pending {
    /// What was asked.
    pub request: Request,
    stream: UnixStream,
}

impl ControlSocket {
    /// Listens at `path`.
    pub fn listen(path: &Path) -> Result<Self, Failure> {
        let listener = UnixListener::bind(path).map_err(|e| Failure::path(path, &e))?;
        listener.set_nonblocking(true).map_err(|e| Failure::path(path, &e))?;
        Ok(Self { listener })
    }

    /// The next request, if one has arrived. A client that sends nothing in time, or nonsense, is dropped.
    pub fn accept(&self) -> Option<Pending> {
        let (stream, _) = self.listener.accept().ok()?;
        // Accepted sockets do not inherit O_NONBLOCK on Linux; the timeouts bound both directions.
        stream.set_read_timeout(Some(CLIENT_PATIENCE)).ok()?;
        stream.set_write_timeout(Some(CLIENT_PATIENCE)).ok()?;
        let request = receive(&stream).ok()?;
        Some(Pending { request, stream })
    }
}

impl std::os::fd::AsFd for ControlSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Pending {
    /// Sends the answer. A client that has gone away does not get it.
    pub fn answer(self, answer: &Answer) {
        let _ = send(&self.stream, answer);
    }
}

/// Sends `request` to the process that listens at `socket` and waits for the answer, at most `patience`.
pub fn ask(socket: &Path, request: Request, patience: Duration) -> Result<Answer, Failure> {
    understand((|| {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        send(&stream, &request)?;
        receive(&stream)
    })())
}

/// Sends `request` and waits for the answer as long as the process lives. `late` is called once if it takes long.
pub fn ask_patiently(socket: &Path, request: Request, late: impl FnOnce()) -> Result<Answer, Failure> {
    understand((|| {
        let stream = UnixStream::connect(socket)?;
        send(&stream, &request)?;
        let limit = Timespec { tv_sec: UNREMARKABLE.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&limit))? == 0 {
            late();
        }
        receive(&stream)
    })())
}

fn understand(answer: io::Result<Answer>) -> Result<Answer, Failure> {
    match answer {
        Ok(Answer::Failed { code, message }) => {
            Err(Failure::new(Kind::from_code(code).unwrap_or(Kind::WrongParameters), message))
        }
        Ok(answer) => Ok(answer),
        Err(e) => Err(Failure::io("the process that serves the volume does not answer", &e)),
    }
}

fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_LINE)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve_one(
        socket: ControlSocket,
        answer: impl FnOnce(Request) -> Answer + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            loop {
                let mut fds = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut fds, None).unwrap();
                if let Some(pending) = socket.accept() {
                    let reply = answer(pending.request);
                    return pending.answer(&reply);
                }
            }
        })
    }

    #[test]
    fn a_request_gets_its_answer_and_a_failure_its_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let server = serve_one(ControlSocket::listen(&path).unwrap(), |request| {
            assert_eq!(request, Request::Detach);
            Answer::Failed { code: 5, message: "mounted".into() }
        });
        let failure = ask_patiently(&path, Request::Detach, || ()).unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (Kind::Busy, "mounted"));
        server.join().unwrap();
    }

    #[test]
    fn nonsense_and_silence_do_not_stop_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        let server = serve_one(ControlSocket::listen(&path).unwrap(), |_| Answer::Detached);
        UnixStream::connect(&path).unwrap().write_all(b"{]\n").unwrap();
        UnixStream::connect(&path).unwrap().write_all(&[b'x'; 100_000]).ok();
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(ask_patiently(&path, Request::Detach, || ()).unwrap(), Answer::Detached);
        server.join().unwrap();
    }

    #[test]
    fn nobody_listening_is_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            ask(&dir.path().join("none"), Request::Status, CLIENT_PATIENCE).unwrap_err().kind,
            Kind::WrongDevice
        );
    }
}
