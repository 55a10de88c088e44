//! Redis with its append-only file, synced before every answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use support::Server;
use support::programs::{find, succeed, tool, tool_as};

use crate::database::{Database, folder_of};
use crate::disk::SealedDisk;
use crate::history::{Client, Transaction};

const USER: &str = "redis";
const PACKAGE: &str = "redis-server";

/// A server's files.
pub struct Redis {
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Redis {
    fn client(&self) -> Command {
        let mut command = tool("redis-cli", "redis-tools");
        command.arg("-s").arg(&self.socket).args(["-e", "--raw"]);
        command
    }
}

impl Database for Redis {
    fn create(disk: &SealedDisk) -> Self {
        let data = folder_of(USER, &disk.mount_point(), "redis");
        let socket = folder_of(USER, &disk.path(""), "socket").join("redis");
        Self { data, socket, log: disk.path("log") }
    }

    fn start(&self) -> Server {
        let mut command = tool_as(USER, find("redis-server", PACKAGE), PACKAGE);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--port", "0"]);
        // The file is written anew in the middle of the load.
        command.args(["--auto-aof-rewrite-min-size", "256kb"]);
        command.arg("--dir").arg(&self.data).arg("--unixsocket").arg(&self.socket);
        let mut server = Server::start(command, &self.log);
        server.wait_until(|| self.client().arg("ping").output().unwrap().stdout == b"PONG\n");
        server
    }

    fn prepare(&self) {}

    fn connect(&self) -> Box<dyn Client> {
        let commands = UnixStream::connect(&self.socket).unwrap();
        let answers = BufReader::new(commands.try_clone().unwrap());
        Box::new(Connection { commands, answers })
    }

    fn transactions(&self) -> Vec<(Transaction, String)> {
        let list = "local all = {}
            for i, key in ipairs(redis.call('keys', '*')) do all[i] = key .. ' ' .. redis.call('get', key) end
            return all";
        let parse = |line: &str| {
            let (key, text) = line.split_once(' ')?;
            let (client, number) = key.split_once(':')?;
            Some((Transaction { client: client.parse().ok()?, number: number.parse().ok()? }, text.to_owned()))
        };
        let lines = succeed(self.client().args(["eval", list, "0"]));
        let lines = lines.lines().filter(|line| !line.is_empty());
        lines.map(|line| parse(line).unwrap_or_else(|| panic!("not what was written: {line}"))).collect()
    }

    fn check(&self) {}

    fn stop(&self, server: Server) {
        server.stop(Signal::TERM);
        let manifest = self.data.join("appendonlydir/appendonly.aof.manifest");
        succeed(tool("redis-check-aof", "redis-tools").arg(manifest));
    }
}

/// A connection that speaks the protocol's inline commands.
struct Connection {
    commands: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client for Connection {
    fn commit(&mut self, transaction: Transaction) -> bool {
        let Transaction { client, number } = transaction;
        let mut answer = String::new();
        let asked = write!(self.commands, "set {client}:{number} {}\r\n", transaction.text());
        asked.and_then(|()| self.answers.read_line(&mut answer)).is_ok() && answer == "+OK\r\n"
    }
}
