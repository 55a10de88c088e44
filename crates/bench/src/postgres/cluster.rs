//! A PostgreSQL cluster that belongs to the benchmark.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::places::Places;
use crate::programs::{INITDB, PGBENCH, POSTGRES, PSQL, Program, SETPRIV, run};
use crate::server::Server;
use crate::{BenchError, Interrupt};

/// PostgreSQL does not run as root; its package has this user.
const USER: &str = "postgres";

/// A server setting, as `name=value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting(pub(crate) &'static str);

impl Setting {
    /// For a cluster that need not be fast.
    pub(crate) const SMALL: Self = Self("shared_buffers=32MB");
}

/// A cluster.
pub(crate) struct Cluster {
    data: PathBuf,
    socket: PathBuf,
    logs: PathBuf,
}

impl Cluster {
    /// Makes one in `folder`, which must not exist, as the user postgres if this is root.
    pub(crate) fn create(folder: &Path, places: &Places, interrupt: &Interrupt) -> Result<Self, BenchError> {
        fs::create_dir(folder).map_err(BenchError::path(folder))?;
        give_to_postgres(folder)?;
        let cluster = Self::at(folder, places)?;
        let mut initdb = as_postgres(INITDB)?;
        initdb.args(["--auth=trust", "--no-locale", "--encoding=UTF8", "--username", USER, "--no-sync", "-D"]);
        run(initdb.arg(folder), interrupt)?;
        Ok(cluster)
    }

    /// The one in `folder`.
    pub(crate) fn at(folder: &Path, places: &Places) -> Result<Self, BenchError> {
        let socket = places.run("pg");
        fs::create_dir_all(&socket).map_err(BenchError::path(&socket))?;
        give_to_postgres(&socket)?;
        Ok(Self { data: folder.to_owned(), socket, logs: places.run_folder().to_owned() })
    }

    /// Where its files lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.data
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn start(&self, settings: &[Setting], interrupt: &Interrupt) -> Result<Server, BenchError> {
        let mut command = as_postgres(POSTGRES)?;
        command.arg("-D").arg(&self.data).args(["-c", "listen_addresses="]);
        command.arg("-c").arg(format!("unix_socket_directories={}", self.socket.display()));
        for Setting(setting) in settings {
            command.args(["-c", setting]);
        }
        let mut server = Server::start(&mut command, &self.logs, "postgres")?;
        // The socket appears before the server answers; only an answer will do.
        server.wait_for(interrupt, || self.query("select 1", interrupt).ok())?;
        Ok(server)
    }

    /// Stops the server.
    pub(crate) fn stop(&self, server: Server) -> Result<(), BenchError> {
        server.stop()
    }

    fn client(&self, program: Program) -> Result<Command, BenchError> {
        let mut command = program.command()?;
        command.env("PGHOST", &self.socket).env("PGUSER", USER).env("PGDATABASE", USER);
        Ok(command)
    }

    /// What a statement returns, a line a row.
    pub(crate) fn query(&self, statement: &str, interrupt: &Interrupt) -> Result<String, BenchError> {
        let mut psql = self.client(PSQL)?;
        run(psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement]), interrupt)
    }

    /// Runs pgbench(1), and returns its report.
    pub(crate) fn pgbench(&self, arguments: &[&str], interrupt: &Interrupt) -> Result<String, BenchError> {
        run(self.client(PGBENCH)?.args(arguments), interrupt)
    }

    /// Removes its files.
    pub(crate) fn remove(self) -> Result<(), BenchError> {
        fs::remove_dir_all(&self.data).map_err(BenchError::path(&self.data))
    }
}

/// A command of PostgreSQL's that must not run as root.
fn as_postgres(program: Program) -> Result<Command, BenchError> {
    let path = program.find()?;
    if !rustix::process::geteuid().is_root() {
        return Ok(Command::new(path));
    }
    // setpriv ends in an exec: the process that is started is the program's own.
    let mut command = SETPRIV.command()?;
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(path).current_dir("/");
    Ok(command)
}

/// Makes a folder the database's own.
pub(crate) fn give_to_postgres(folder: &Path) -> Result<(), BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let (user, group) =
        ids(&users, USER).ok_or(BenchError::Missing { program: "the user postgres", package: POSTGRES.package })?;
    chown(folder, Some(user), Some(group)).map_err(BenchError::path(folder))
}

/// A user's number and group, from passwd(5).
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields.first() == Some(&name))?;
    Some((entry.get(2)?.parse().ok()?, entry.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_number_and_a_group() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres:x:104:111:PostgreSQL:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(ids(users, "postgres"), Some((104, 111)));
        assert_eq!(ids(users, "post"), None);
    }
}
