//! A scenario's disk: made once, served by a new process each round.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::scenario::{Kind, Scenario};
use crate::disk::ServedDisk;
use crate::places::{Places, sparse_file};
use crate::programs::{CRYPTSETUP, NBDKIT, QEMU, run};
use crate::{BenchError, Interrupt};

/// Bytes that a LUKS1 header takes before the data, with room to spare.
const LUKS1_HEADER: u64 = 4 << 20;

/// A disk that can be served.
pub(super) struct Setup {
    scenario: Scenario,
    sealdisk: PathBuf,
    file: PathBuf,
    commands: Vec<String>,
}

impl Setup {
    /// Makes the disk.
    pub(super) fn make(
        scenario: &Scenario,
        sealdisk: &Path,
        size: u64,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<Self, BenchError> {
        let file = places.data(&format!("{}.disk", scenario.name));
        let mut setup = Self { scenario: *scenario, sealdisk: sealdisk.to_owned(), file, commands: Vec::new() };
        match scenario.kind {
            Kind::Volume { cipher, fold } => {
                setup.run(places, interrupt, format_volume(sealdisk, &setup.file, size, cipher, fold, places))?;
            }
            Kind::Qemu { luks: true } | Kind::Nbdkit { luks: true } => {
                sparse_file(&setup.file, size + LUKS1_HEADER)?;
                setup.run(places, interrupt, luks1(&setup.file, places)?)?;
            }
            _ => sparse_file(&setup.file, size)?,
        }
        setup.commands.push(places.shown(&setup.server(places)?));
        Ok(setup)
    }

    fn run(&mut self, places: &Places, interrupt: &Interrupt, mut command: Command) -> Result<(), BenchError> {
        self.commands.push(places.shown(&command));
        run(&mut command, interrupt).map(drop)
    }

    /// What set the disk up, and what serves it.
    pub(super) fn commands(&self) -> &[String] {
        &self.commands
    }

    fn socket(&self, places: &Places) -> PathBuf {
        places.run(&format!("{}.socket", self.scenario.name))
    }

    /// The command that serves the disk.
    fn server(&self, places: &Places) -> Result<Command, BenchError> {
        let socket = self.socket(places);
        match self.scenario.kind {
            Kind::Volume { .. } => {
                let mut command = Command::new(&self.sealdisk);
                command.arg("attach").arg(&self.file).args(["--foreground", "--name", "disk", "--listen"]);
                command.arg(format!("unix:{}", socket.display())).arg("--key-file").arg(places.key());
                command.env("SEALDISK_RUNTIME_DIR", places.run("registry"));
                Ok(command)
            }
            Kind::PassThrough => {
                let mut command = Command::new(&self.sealdisk);
                command.args(["bench", "pass-through"]).arg(&self.file).arg("--socket").arg(socket);
                Ok(command)
            }
            Kind::Qemu { luks } => qemu_nbd(&self.file, &socket, luks, places),
            Kind::Nbdkit { luks } => {
                let mut command = NBDKIT.command()?;
                command.arg("--foreground").arg("--unix").arg(socket);
                if luks {
                    command.arg("--filter=luks");
                }
                command.arg("file").arg(&self.file).args(["cache=none", "fadvise=random"]);
                if luks {
                    command.arg(format!("passphrase=+{}", places.key().display()));
                }
                Ok(command)
            }
        }
    }

    /// Serves the disk, and waits until it can be reached.
    pub(super) fn serve(&self, places: &Places, interrupt: &Interrupt) -> Result<ServedDisk, BenchError> {
        ServedDisk::start(&mut self.server(places)?, self.scenario.name, &self.socket(places), places, interrupt)
    }

    /// What else there is to say of the disk once it is full.
    pub(super) fn remarks(&self, interrupt: &Interrupt) -> Result<Vec<String>, BenchError> {
        let Kind::Volume { fold: true, .. } = self.scenario.kind else { return Ok(Vec::new()) };
        let mut info = Command::new(&self.sealdisk);
        let info = run(info.arg("info").arg(&self.file).arg("--json"), interrupt)?;
        Ok(folded_share(&info)
            .map(|share| format!("{:.1} % of the sectors are folded", share * 100.0))
            .into_iter()
            .collect())
    }
}

/// `sealdisk format`, with a key derivation that takes no time: it is not what is measured.
pub(crate) fn format_volume(
    sealdisk: &Path,
    file: &Path,
    size: u64,
    cipher: &str,
    fold: bool,
    places: &Places,
) -> Command {
    let mut command = Command::new(sealdisk);
    command.arg("format").arg(file).args(["--size", &size.to_string(), "--cipher", cipher]);
    if fold {
        command.arg("--fold");
    }
    command.arg("--key-file").arg(places.key());
    command.args(["--pbkdf-force-iterations", "4", "--pbkdf-memory", "32", "--pbkdf-parallel", "1"]);
    command
}

/// A LUKS1 header, which both qemu and nbdkit read. qemu-img could make one, too, but measures the speed of key
/// derivation for it, which fails on some virtual machines.
pub(crate) fn luks1(file: &Path, places: &Places) -> Result<Command, BenchError> {
    let mut command = CRYPTSETUP.command()?;
    command.args(["luksFormat", "--batch-mode", "--type", "luks1", "--cipher", "aes-xts-plain64", "--key-size", "512"]);
    command.args(["--pbkdf-force-iterations", "1000", "--key-file"]).arg(places.key()).arg(file);
    Ok(command)
}

/// qemu-storage-daemon with a file's disk as its node `disk`.
pub(crate) fn qemu(file: &Path, luks: bool, places: &Places) -> Result<Command, BenchError> {
    let mut command = QEMU.command()?;
    let below = if luks { "file" } else { "disk" };
    command.arg("--blockdev").arg(format!(
        "driver=file,node-name={below},filename={},cache.direct=on,aio=io_uring,discard=unmap",
        file.display()
    ));
    if luks {
        command.arg("--object").arg(format!("secret,id=key,file={}", places.key().display()));
        command.args(["--blockdev", "driver=luks,node-name=disk,file=file,key-secret=key,discard=unmap"]);
    }
    Ok(command)
}

fn qemu_nbd(file: &Path, socket: &Path, luks: bool, places: &Places) -> Result<Command, BenchError> {
    let mut command = qemu(file, luks, places)?;
    command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", socket.display()));
    command.args(["--export", "type=nbd,id=export,node-name=disk,name=disk,writable=on"]);
    Ok(command)
}

/// The share of folded sectors among those that are not zero, from `sealdisk info --json`.
fn folded_share(info: &str) -> Option<f64> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    let [folded, plain] = ["folded", "plain"].map(|form| info["sectors"][form].as_f64());
    let (folded, plain) = (folded?, plain?);
    (folded + plain > 0.0).then(|| folded / (folded + plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folded_share_leaves_out_zeros() {
        let share = folded_share(r#"{"sectors": {"folded": 3, "plain": 1, "zero": 96}}"#);
        assert_eq!(share, Some(0.75));
        assert_eq!(folded_share(r#"{"sectors": null}"#), None);
        assert_eq!(folded_share(r#"{"sectors": {"folded": 0, "plain": 0}}"#), None);
    }
}
