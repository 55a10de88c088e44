//! A private Ceph cluster of Debian's packages: one monitor, one manager and three OSDs with BlueStore on sparse files.
//!
//! Everything of it lies in a folder of its own, nothing in `/etc/ceph` or `/var/lib/ceph`, and it listens on a loopback
//! address of its own. Its daemons are children of the test. It starts in some 10 seconds, and by hand with
//! `cargo run --package sealdisk-tests --example cluster`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sealdisk_rados::{Cluster as Connection, Credentials};
use serde_json::Value;

use crate::programs::{daemon, eventually, succeed, tool};
use crate::scratch::Scratch;
use crate::server::Server;

const CONF: &str = include_str!("ceph/ceph.conf");

/// How many OSDs there are.
pub const OSDS: u32 = 3;

/// How long a daemon may take to end when it was asked to. One that is paused, or misses its monitor, is killed then.
const PATIENCE: Duration = Duration::from_secs(3);

/// One of the cluster's servers. They are in the order in which they end: an OSD wants to tell the monitor that it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// The OSD of this number.
    Osd(u32),
    /// The only manager.
    Manager,
    /// The only monitor.
    Monitor,
}

impl Daemon {
    fn all() -> impl Iterator<Item = Self> {
        (0..OSDS).map(Self::Osd).chain([Self::Manager, Self::Monitor])
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Osd(_) => "osd",
            Self::Manager => "mgr",
            Self::Monitor => "mon",
        }
    }

    fn id(self) -> String {
        match self {
            Self::Osd(number) => number.to_string(),
            Self::Manager | Self::Monitor => "a".to_owned(),
        }
    }

    /// As Ceph calls it: `osd.0`.
    fn name(self) -> String {
        format!("{}.{}", self.kind(), self.id())
    }
}

/// How a pool keeps its data.
#[derive(Debug, Clone, Copy)]
pub enum Pool {
    /// So many copies of everything.
    Replicated(u32),
    /// Two parts and one of parity, with overwrites: for the data of images whose header is in a replicated pool.
    ErasureCoded,
}

/// A running cluster. Whatever a test does, nothing of it is left when this is dropped, or when the test is killed.
pub struct Cluster {
    servers: BTreeMap<Daemon, Server>,
    address: Ipv4Addr,
    folder: Scratch,
}

impl Cluster {
    /// Starts one.
    pub fn start() -> Self {
        let folder = Scratch::new("sealdisk-ceph-");
        let mut cluster = Self { servers: BTreeMap::new(), address: unused_address(), folder };
        cluster.write_files();
        succeed(cluster.daemon(Daemon::Monitor).arg("--mkfs").arg("--keyring").arg(cluster.path("keyring")));
        cluster.restart(Daemon::Monitor);
        // Takes some seconds, during which the others start.
        let making: Vec<_> = (0..OSDS).map(|number| (number, cluster.make_osd(number))).collect();
        cluster.restart(Daemon::Manager);
        for (number, (id, made)) in making {
            cluster.run(&format!("ceph osd new {id} {number}"));
            made.finish();
            cluster.restart(Daemon::Osd(number));
        }
        cluster.wait_until("there is a manager", |status| status["mgrmap"]["available"] == true);
        // It misses the modules.
        cluster.run("ceph health mute MGR_MODULE_ERROR --sticky");
        cluster.wait_until_healthy();
        cluster
    }

    /// One for all tests of a program that only use pools of their own. It can't be had by `&mut`: its daemons are nobody's.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Cluster> = LazyLock::new(Cluster::start);
        &SHARED
    }

    /// A path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The configuration with which everybody is a client of this cluster, and an administrator unless told otherwise.
    pub fn conf(&self) -> PathBuf {
        self.path("ceph.conf")
    }

    /// A connection of our own to this cluster, as an administrator.
    pub fn connect(&self) -> Arc<Connection> {
        Connection::connect(&Credentials { conf: Some(self.conf()), ..Credentials::default() }).unwrap()
    }

    /// Where all daemons listen.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A client program of Debian's: `ceph`, `rados`, `rbd`.
    pub fn program(&self, name: &str) -> Command {
        self.in_cluster(tool(name, "ceph-common"))
    }

    /// Runs a command line, whose words have no spaces in them, and returns what it printed.
    #[track_caller]
    pub fn run(&self, command_line: &str) -> String {
        let mut words = command_line.split_whitespace();
        succeed(self.program(words.next().unwrap()).args(words))
    }

    /// Runs a command line that can print JSON.
    #[track_caller]
    pub fn ask(&self, command_line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{command_line} --format json"))).unwrap()
    }

    /// Makes a pool that images and their data may be in.
    pub fn create_pool(&self, name: &str, pool: Pool) {
        match pool {
            Pool::Replicated(size) => {
                self.run(&format!("ceph osd pool create {name} replicated --size {size}"));
            }
            Pool::ErasureCoded => {
                self.run(&format!("ceph osd pool create {name} erasure"));
                self.run(&format!("ceph osd pool set {name} allow_ec_overwrites true"));
            }
        }
        self.run(&format!("ceph osd pool application enable {name} rbd"));
    }

    /// Makes a user `client.NAME` with capabilities such as `("osd", "profile rbd pool=p")`. Returns the keyring, which
    /// clients of this cluster find by themselves when they are told `--id NAME`.
    pub fn create_user(&self, name: &str, capabilities: &[(&str, &str)]) -> PathBuf {
        let keyring = self.path(&format!("client.{name}.keyring"));
        let mut create = self.program("ceph");
        create.args(["auth", "get-or-create", &format!("client.{name}")]);
        capabilities.iter().for_each(|(daemons, allowed)| {
            create.args([daemons, allowed]);
        });
        succeed(create.arg("-o").arg(&keyring));
        keyring
    }

    /// Declares the pool full: its quota is less than what is in it, if anything is. Who writes to it waits.
    pub fn declare_full(&self, pool: &str) {
        self.run(&format!("ceph osd pool set-quota {pool} max_bytes 1"));
        eventually("the pool is full", || self.has_flag(pool, "full_quota"));
    }

    /// Lets a full pool have room again.
    pub fn make_room(&self, pool: &str) {
        self.run(&format!("ceph osd pool set-quota {pool} max_bytes 0"));
        eventually("the pool has room", || !self.has_flag(pool, "full_quota"));
    }

    fn has_flag(&self, pool: &str, flag: &str) -> bool {
        let pools = self.ask("ceph osd pool ls detail");
        let pool =
            pools.as_array().unwrap().iter().find(|found| found["pool_name"] == pool).expect("there is the pool");
        pool["flags_names"].as_str().unwrap().split(',').any(|found| found == flag)
    }

    /// Shuts out the client of this address, as whoever breaks its lock does.
    pub fn block(&self, client: &str) {
        self.run(&format!("ceph osd blocklist add {client}"));
    }

    /// One of the daemons, to kill or to pause it.
    pub fn server(&mut self, daemon: Daemon) -> &mut Server {
        self.servers.get_mut(&daemon).unwrap()
    }

    /// Starts a daemon, after it was killed if it still runs.
    pub fn restart(&mut self, daemon: Daemon) {
        self.servers.remove(&daemon);
        let command = self.daemon(daemon);
        self.servers.insert(daemon, Server::start(command, &self.log(daemon)));
        if daemon == Daemon::Monitor {
            // Who comes too early waits for seconds before it tries again.
            let address = (self.address, 3300);
            self.server(daemon).wait_until(|| TcpStream::connect(address).is_ok());
        }
    }

    /// Waits until every OSD takes part, and everything has all its copies and can be written.
    #[track_caller]
    pub fn wait_until_healthy(&mut self) {
        self.wait_until("all OSDs are up and in", |status| {
            let osds = &status["osdmap"];
            [&osds["num_up_osds"], &osds["num_in_osds"]].iter().all(|count| count.as_u64() == Some(OSDS.into()))
        });
        // What the monitor knows of placement groups may be from before a change. OSDs number their reports.
        for number in 0..OSDS {
            // A monitor that has just begun may say that an OSD is up which is not there any more, and is somewhere else soon.
            let mut reported: Option<u64> = None;
            eventually("the OSD that is said to be up answers", || {
                let tell = ["tell", &format!("osd.{number}"), "flush_pg_stats"];
                let output = self.program("ceph").args(tell).output().unwrap();
                reported = String::from_utf8(output.stdout).unwrap().trim().parse().ok();
                reported.is_some()
            });
            eventually("the OSD's report has arrived", || {
                let last: u64 = self.run(&format!("ceph osd last-stat-seq osd.{number}")).trim().parse().unwrap();
                reported.is_some_and(|reported| last >= reported)
            });
        }
        self.wait_until("all placement groups are active and clean", |status| {
            let states = status["pgmap"]["pgs_by_state"].as_array().unwrap();
            states.iter().all(|state| state["state_name"] == "active+clean")
        });
    }

    /// Waits until the others know that an OSD is gone.
    #[track_caller]
    pub fn wait_until_down(&self, number: u32) {
        eventually("the OSD is down", || {
            let map = self.ask("ceph osd dump");
            map["osds"].as_array().unwrap().iter().any(|osd| osd["osd"] == number && osd["up"] == 0)
        });
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) {
        eventually(what, || {
            self.servers.values_mut().for_each(Server::assert_runs);
            holds(&self.ask("ceph status"))
        });
    }

    fn write_files(&self) {
        let folder = self.folder.path().to_str().unwrap();
        let conf = CONF.replace("{folder}", folder).replace("{address}", &self.address.to_string());
        fs::write(self.conf(), conf.replace("{fsid}", &uuid())).unwrap();
        for name in Daemon::all().map(Daemon::name).chain(["crash".to_owned(), "modules".to_owned()]) {
            fs::create_dir(self.path(&name)).unwrap();
        }

        // The monitor's first act is to take over the keys in this file.
        let keyring = self.path("keyring");
        fs::write(&keyring, "").unwrap();
        let all = ["mon", "allow *", "osd", "allow *", "mgr", "allow *"];
        let add = |name: &str, capabilities: &[&str]| {
            let mut add = self.program("ceph-authtool");
            add.arg(&keyring).args(["--gen-key", "--name", name]);
            capabilities.chunks(2).for_each(|pair| {
                add.arg("--cap").args(pair);
            });
            succeed(&mut add);
        };
        add("mon.", &all[..2]);
        add("client.admin", &all);
        for daemon in Daemon::all() {
            match daemon {
                Daemon::Osd(_) => {
                    add(&daemon.name(), &["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"])
                }
                Daemon::Manager => add(&daemon.name(), &["mon", "allow profile mgr", "osd", "allow *"]),
                Daemon::Monitor => {} // It is mon.
            }
        }
    }

    /// Begins to make an OSD's files. Returns its identity, too.
    fn make_osd(&self, number: u32) -> (String, Server) {
        let id = uuid();
        let mut command = self.daemon(Daemon::Osd(number));
        command.args(["--mkfs", "--no-mon-config", "--osd-uuid", &id]);
        (id, Server::start(command, &self.log(Daemon::Osd(number))))
    }

    /// A daemon in the foreground, which says everything on its standard error.
    fn daemon(&self, which: Daemon) -> Command {
        let program = format!("ceph-{}", which.kind());
        let mut command = self.in_cluster(daemon(&program, &program));
        command.args(["-d", "--id", &which.id()]);
        command
    }

    fn log(&self, daemon: Daemon) -> PathBuf {
        self.path(&format!("{}.log", daemon.name()))
    }

    fn in_cluster(&self, mut command: Command) -> Command {
        command.env("CEPH_CONF", self.conf()).env_remove("CEPH_ARGS").env_remove("CEPH_KEYRING");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let (osds, others): (Vec<_>, Vec<_>) =
            self.servers.iter_mut().partition(|(daemon, _)| matches!(daemon, Daemon::Osd(_)));
        for servers in [osds, others] {
            Server::end_all(servers.into_iter().map(|(_, server)| server), PATIENCE);
        }
    }
}

/// A loopback address that nobody else uses, unless 1 of 16 million happens.
fn unused_address() -> Ipv4Addr {
    let mut bytes = [0; 3];
    getrandom::fill(&mut bytes).unwrap();
    let [a, b, c] = bytes;
    // Neither in 127.0.0.0/24, where everybody is, nor an address that ends in 0 or 255.
    Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254))
}

fn uuid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_owned()
}
