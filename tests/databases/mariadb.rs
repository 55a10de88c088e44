//! MariaDB with InnoDB.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use support::Server;
use support::programs::{find, succeed, tool, tool_as};

use crate::database::{Database, folder_of};
use crate::disk::SealedDisk;
use crate::history::{Client, Transaction};
use crate::sql::{self, SqlClient};

const USER: &str = "mysql";
const PACKAGE: &str = "mariadb-server";

/// A server's files.
pub struct MariaDb {
    data: PathBuf,
    socket: PathBuf,
    /// A server that starts removes every temporary table it finds, so no two may share the folder.
    temporary: PathBuf,
    log: PathBuf,
}

impl MariaDb {
    /// A client program.
    fn client(&self, name: &str) -> Command {
        let mut command = tool(name, "mariadb-client");
        command.arg("--no-defaults").arg(format!("--socket={}", self.socket.display())).arg("--user=root");
        command
    }

    fn shell(&self) -> Command {
        let mut shell = self.client("mariadb");
        shell.args(["--batch", "--skip-column-names", "--unbuffered"]);
        shell
    }

    fn query(&self, sql: &str) -> String {
        succeed(self.shell().args(["bank", "-e", sql]))
    }
}

impl Database for MariaDb {
    fn create(disk: &SealedDisk) -> Self {
        let data = folder_of(USER, &disk.mount_point(), "mariadb");
        let socket = folder_of(USER, &disk.path(""), "socket").join("mariadb");
        let temporary = folder_of(USER, &disk.path(""), "temporary");
        let mut install = tool_as(USER, find("mariadb-install-db", PACKAGE), PACKAGE);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(format!("--tmpdir={}", temporary.display()));
        succeed(install.arg(format!("--datadir={}", data.display())));
        Self { data, socket, temporary, log: disk.path("log") }
    }

    fn start(&self) -> Server {
        let mut command = tool_as(USER, find("mariadbd", PACKAGE), PACKAGE);
        command.args(["--no-defaults", "--skip-networking", "--skip-log-bin"]);
        // A small log, so that checkpoints come in the middle of the load.
        command.args([
            "--innodb-log-file-size=8M",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=1",
        ]);
        command.arg(format!("--datadir={}", self.data.display()));
        command.arg(format!("--tmpdir={}", self.temporary.display()));
        command.arg(format!("--socket={}", self.socket.display()));
        command.arg(format!("--pid-file={}.pid", self.socket.display()));
        let mut server = Server::start(command, &self.log);
        server
            .wait_until(|| self.client("mariadb-admin").args(["--silent", "ping"]).output().unwrap().status.success());
        server
    }

    fn prepare(&self) {
        succeed(self.shell().args(["-e", "create database bank"]));
        self.query(&sql::schema());
    }

    fn connect(&self) -> Box<dyn Client> {
        Box::new(SqlClient::start(self.shell().arg("bank")))
    }

    fn transactions(&self) -> Vec<(Transaction, String)> {
        sql::parse_transfers(&self.query(sql::TRANSFERS))
    }

    fn check(&self) {
        assert_eq!(self.query(sql::WRONG_BALANCES), "0\n");
        let report = succeed(self.client("mariadb-check").args(["--check", "--extended", "--databases", "bank"]));
        // It exits with 0 whatever it finds.
        assert!(report.lines().count() == 2 && report.lines().all(|line| line.ends_with("OK")), "{report}");
    }

    fn stop(&self, server: Server) {
        server.stop(Signal::TERM);
    }
}
