//! What every database must survive.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::Server;
use support::programs::{succeed, tool};

use crate::disk::{Kind, SealedDisk};
use crate::history::{Client, History, Load, Transaction};

/// Clients at a time.
const CLIENTS: u32 = 4;

/// A database whose files lie on the disk.
pub trait Database: Sized {
    /// Makes its files.
    fn create(disk: &SealedDisk) -> Self;
    /// Starts it, and returns when it answers.
    fn start(&self) -> Server;
    /// Makes what the clients need.
    fn prepare(&self);
    /// Connects a client.
    fn connect(&self) -> Box<dyn Client>;
    /// More work beside the clients, until the database is gone.
    fn background_load(&self) -> Option<Command> {
        None
    }
    /// Everything that clients stored.
    fn transactions(&self) -> Vec<(Transaction, String)>;
    /// Holds the running database against its own checker.
    fn check(&self);
    /// Ends it in good order, and holds its files against its own checker.
    fn stop(&self, server: Server);
}

/// Who dies first.
#[derive(Clone, Copy)]
enum First {
    /// The disk fails under a running database: what the kernel had not yet written is lost, as when power fails.
    Disk,
    /// The database goes and leaves what it wrote to the kernel.
    Database,
}

/// Loads the database, kills it and the disk's server in the middle of that, and brings both back, several times. What
/// clients were told is committed must be there each time, and in the end no checker may have anything to say.
pub fn survives_kills<D: Database>(kind: Kind) {
    let disk = SealedDisk::new(kind);
    let database = D::create(&disk);
    let mut history = History::default();
    let mut server = database.start();
    database.prepare();
    for (first, acknowledgements) in [(First::Disk, 100), (First::Database, 400), (First::Disk, 700)] {
        let load = Load::start(&history, CLIENTS, || database.connect());
        let background = database
            .background_load()
            .map(|mut command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        load.wait_for(acknowledgements);
        match first {
            First::Disk => {
                disk.kill_server();
                server.kill();
            }
            First::Database => {
                server.kill();
                disk.kill_server();
            }
        }
        load.end(&mut history);
        background.into_iter().for_each(|mut process| assert!(!process.wait().unwrap().success()));
        disk.come_back();
        server = database.start();
        history.verify(database.transactions());
        database.check();
    }
    database.stop(server);
    disk.check();
}

/// Makes a folder that belongs to a user.
pub fn folder_of(user: &str, parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    succeed(tool("install", "coreutils").args(["-d", "-m", "0700", "-o", user, "-g", user]).arg(&folder));
    folder
}
