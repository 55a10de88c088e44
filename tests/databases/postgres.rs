//! PostgreSQL, with `pgbench` beside the transfers.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use support::Server;
use support::programs::{find, succeed, tool, tool_as};

use crate::database::{Database, folder_of};
use crate::disk::SealedDisk;
use crate::history::{Client, Transaction};
use crate::sql::{self, SqlClient};

const USER: &str = "postgres";
const PACKAGE: &str = "postgresql";

/// A cluster.
pub struct Postgres {
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Postgres {
    fn program(name: &str) -> Command {
        tool_as(USER, find(name, PACKAGE), PACKAGE)
    }

    /// A client program.
    fn client(&self, name: &str) -> Command {
        let mut command = tool(name, PACKAGE);
        command.env("PGHOST", &self.socket).env("PGUSER", USER).env("PGDATABASE", USER);
        command
    }

    fn psql(&self) -> Command {
        let mut psql = self.client("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql
    }

    fn query(&self, sql: &str) -> String {
        succeed(self.psql().args(["-c", sql]))
    }
}

impl Database for Postgres {
    fn create(disk: &SealedDisk) -> Self {
        let data = folder_of(USER, &disk.mount_point(), "postgres");
        let socket = folder_of(USER, &disk.path(""), "socket");
        // Small segments and little log, so that checkpoints come in the middle of the load.
        let options = ["--auth=trust", "--data-checksums", "--wal-segsize=4", "--no-locale", "--encoding=UTF8"];
        succeed(Self::program("initdb").args(options).arg("-D").arg(&data));
        Self { data, socket, log: disk.path("log") }
    }

    fn start(&self) -> Server {
        let mut command = Self::program("postgres");
        command.arg("-D").arg(&self.data);
        let socket = format!("unix_socket_directories={}", self.socket.display());
        let options = [&socket, "listen_addresses=", "shared_buffers=32MB", "max_wal_size=16MB", "min_wal_size=8MB"];
        for option in options {
            command.args(["-c", option]);
        }
        let mut server = Server::start(command, &self.log);
        server.wait_until(|| self.client("pg_isready").arg("-q").status().unwrap().success());
        server
    }

    fn prepare(&self) {
        self.query(&sql::schema());
        succeed(self.client("pgbench").args(["-i", "-q", "-s", "2"]));
    }

    fn connect(&self) -> Box<dyn Client> {
        Box::new(SqlClient::start(&mut self.psql()))
    }

    fn background_load(&self) -> Option<Command> {
        let mut pgbench = self.client("pgbench");
        pgbench.args(["-n", "-c", "2", "-T", "600"]);
        Some(pgbench)
    }

    fn transactions(&self) -> Vec<(Transaction, String)> {
        sql::parse_transfers(&self.query(sql::TRANSFERS))
    }

    fn check(&self) {
        assert_eq!(self.query(sql::WRONG_BALANCES), "0\n");
        let sums = "select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)
            and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)
            and (select sum(bbalance) from pgbench_branches) = (select coalesce(sum(delta), 0) from pgbench_history)";
        assert_eq!(self.query(sums), "t\n");
        succeed(self.client("pg_amcheck").args(["--install-missing", "--heapallindexed"]));
    }

    fn stop(&self, server: Server) {
        server.stop(Signal::INT);
        succeed(Self::program("pg_checksums").arg("--check").arg("-D").arg(&self.data));
    }
}
