//! The server: accepts clients, keeps them within limits, and stops.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::SocketFlags;

use crate::{Disk, Export, ExportError};

use super::address::{ListenAddress, Listener};
use super::connection::{Connection, negotiate};
use super::handshake::Offer;
use super::memory::Memory;
use super::protocol::MAX_STRING;
use super::socket::Socket;

/// Most clients in negotiation. One more takes the place of the one that has been at it for longest, so that a flood of
/// connections that say nothing keeps nobody out.
const MAX_NEGOTIATIONS: usize = 64;
/// How long to pause when the system has no file descriptor for a new client.
const ACCEPT_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long a client may take to receive its last replies after [`NbdExport::stop`].
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How a disk is offered.
#[derive(Debug, Clone)]
pub struct NbdOptions {
    /// The export's name, at most 4096 bytes. Clients that give no name reach it too.
    pub name: String,
    /// What people are told about the export, at most 4096 bytes.
    pub description: String,
    /// Most clients at a time; each takes 1.1 MiB.
    pub max_clients: usize,
    /// Bytes for requests in progress beside that, for all clients together.
    pub memory: usize,
    /// How long a client may take to negotiate.
    pub negotiation_time: Duration,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            max_clients: 16,
            memory: 32 << 20,
            negotiation_time: Duration::from_secs(10),
        }
    }
}

/// A disk offered over NBD.
pub struct NbdExport {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    uri: String,
    warning: Option<String>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    memory: Arc<Memory>,
    offer: Offer,
    options: NbdOptions,
    clients: Mutex<Clients>,
    /// Signalled when a client goes.
    gone: Condvar,
    /// Readable once the export is to stop.
    stop: OwnedFd,
}

/// Everyone who is connected.
#[derive(Default)]
struct Clients {
    stopping: bool,
    next_id: u64,
    /// Oldest first.
    negotiating: VecDeque<(u64, Arc<Socket>)>,
    served: BTreeMap<u64, Served>,
}

struct Served {
    socket: Arc<Socket>,
    connection: Weak<Connection<Place>>,
}

/// A client's place among [`Clients`]; given back when dropped.
struct Place {
    shared: Arc<Shared>,
    id: u64,
}

impl NbdExport {
    /// Offers `disk` at `address`.
    pub fn start(disk: Arc<dyn Disk>, address: &ListenAddress, options: NbdOptions) -> Result<Self, ExportError> {
        if options.name.len().max(options.description.len()) > MAX_STRING {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(ExportError::new(format!("an export's name has at most {MAX_STRING} bytes"), error));
        }
        let offer = Offer {
            name: options.name.clone(),
            description: options.description.clone(),
            size: disk.size(),
            read_only: disk.is_read_only(),
        };
        let listener = Listener::bind(address)?;
        let failed = |error: io::Error| ExportError::new(format!("cannot serve {address}"), error);
        let uri = listener.uri(&options.name).map_err(failed)?;
        let warning = listener.warning();
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared {
            memory: Memory::new(options.memory, &*disk),
            disk,
            offer,
            options,
            clients: Mutex::default(),
            gone: Condvar::new(),
            stop,
        });
        let acceptor = std::thread::Builder::new()
            .name("nbd-accept".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.accept_all(&listener)
            })
            .map_err(failed)?;
        Ok(Self { shared, acceptor: Some(acceptor), uri, warning })
    }

    /// What whoever attaches the disk should be told about its address.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        // An eventfd refuses only a count that would overflow.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        let _ = acceptor.join();
        self.shared.end_clients();
    }
}

impl Export for NbdExport {
    fn address(&self) -> String {
        self.uri.clone()
    }

    fn stop(mut self: Box<Self>) -> Result<(), ExportError> {
        self.shut_down();
        Ok(())
    }
}

impl Drop for NbdExport {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Shared {
    fn accept_all(self: &Arc<Self>, listener: &Listener) {
        loop {
            let mut events =
                [PollFd::new(&self.stop, PollFlags::IN), PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            let polled = rustix::io::retry_on_intr(|| poll(&mut events, None));
            if polled.is_err() || !events[0].revents().is_empty() {
                return;
            }
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(fd) => self.welcome(Socket::new(fd, listener.is_tcp())),
                // The client may have gone again; or the system is short of something, and may have it later.
                Err(_) => {
                    let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
                    let _ = poll(&mut stop, Some(&ACCEPT_PAUSE));
                }
            }
        }
    }

    /// Starts a thread for a new client.
    fn welcome(self: &Arc<Self>, socket: Socket) {
        let socket = Arc::new(socket);
        let place = {
            let mut clients = self.clients();
            if clients.negotiating.len() >= MAX_NEGOTIATIONS
                && let Some((_, oldest)) = clients.negotiating.pop_front()
            {
                oldest.close();
            }
            let id = clients.next_id;
            clients.next_id += 1;
            clients.negotiating.push_back((id, Arc::clone(&socket)));
            Place { shared: Arc::clone(self), id }
        };
        // Without a thread the client's place and socket are dropped here, which tells it enough.
        let _ = std::thread::Builder::new().name("nbd-worker".into()).spawn(move || place.attend(socket));
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets requests in progress end, and waits until everyone has gone.
    fn end_clients(&self) {
        let connections: Vec<_> = {
            let mut clients = self.clients();
            clients.stopping = true;
            clients.negotiating.iter().for_each(|(_, socket)| socket.close());
            clients.served.values().for_each(|served| served.socket.close_inward());
            clients.served.values().filter_map(|served| served.connection.upgrade()).collect()
        };
        // Outside the lock: whoever drops a connection last needs it.
        connections.iter().for_each(|connection| connection.close_inward());
        drop(connections);
        let clients = self.clients();
        let patience = self.gone.wait_timeout_while(clients, STOP_PATIENCE, |clients| !clients.is_empty());
        let (clients, _) = patience.unwrap_or_else(PoisonError::into_inner);
        // Whoever is left does not take its replies.
        clients.served.values().for_each(|served| served.socket.close());
        let everyone_gone = self.gone.wait_while(clients, |clients| !clients.is_empty());
        drop(everyone_gone);
    }
}

impl Clients {
    fn is_empty(&self) -> bool {
        self.negotiating.is_empty() && self.served.is_empty()
    }
}

impl Place {
    fn attend(self, socket: Arc<Socket>) {
        let deadline = Instant::now() + self.shared.options.negotiation_time;
        let Ok(Some(agreed)) = negotiate(&socket, &self.shared.offer, deadline, || self.admit(&socket)) else {
            socket.close();
            return;
        };
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        let connection = Connection::new(socket, Arc::clone(&shared.disk), Arc::clone(&shared.memory), agreed, self);
        {
            let mut clients = shared.clients();
            let stopping = clients.stopping;
            if let Some(served) = clients.served.get_mut(&id) {
                served.connection = Arc::downgrade(&connection);
            }
            if stopping {
                return;
            }
        }
        connection.work();
    }

    /// Moves the client from those who negotiate to those who are served, if there is room.
    fn admit(&self, socket: &Arc<Socket>) -> bool {
        let mut clients = self.shared.clients();
        if clients.stopping || clients.served.len() >= self.shared.options.max_clients {
            return false;
        }
        // A client that was closed to make room finds out when it next uses its socket.
        clients.negotiating.retain(|(id, _)| *id != self.id);
        clients.served.insert(self.id, Served { socket: Arc::clone(socket), connection: Weak::new() });
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.shared.clients();
        clients.negotiating.retain(|(id, _)| *id != self.id);
        clients.served.remove(&self.id);
        drop(clients);
        self.shared.gone.notify_all();
    }
}
