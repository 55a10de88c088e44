//! NBD: the disk for any client of the Network Block Device protocol, over a unix socket or TCP.
//!
//! Source: "The NBD protocol", `doc/proto.md` of the NetworkBlockDevice project. Served are fixed newstyle negotiation,
//! structured replies, `base:allocation`, and all commands but resize; TLS is not.
//!
//! ```text
//! address      the listening socket           server       accepts, limits, stops
//! handshake    negotiation, pure              connection   one client: negotiates, then leader and followers
//! transmission requests, pure                 inbox -> batch -> reply: from the socket to the disk and back
//! ```
//!
//! # Memory
//! A worker holds one batch of 1 MiB, a connection has an inbox of 64 KiB and one worker, and there are at most
//! [`NbdOptions::max_clients`] connections: 17 MiB with the default of 16. Further workers, up to 4 a connection, and short
//! reads share [`NbdOptions::memory`]. A client that has not finished negotiating
//! holds at most 128 KiB, and there are at most 64 of those. Longer requests are served in pieces.
//!
//! Of a disk that [is far](crate::Disk::is_far) each request has a worker, of 64 KiB, 32 of them beside the first of every
//! connection. Requests that are longer are lent up to 4 MiB each, all together [`NbdOptions::memory`] with the
//! [copies](crate::Disk::copies) of them on their way.

mod address;
mod batch;
mod connection;
pub mod handshake;
mod inbox;
mod loans;
mod memory;
mod pace;
mod protocol;
mod reply;
mod server;
mod short_reads;
mod socket;
pub mod transmission;
mod wire;

pub use address::{BadListenAddress, ListenAddress};
pub use protocol::{MAX_PAYLOAD, NbdError};
pub use server::{NbdExport, NbdOptions};
