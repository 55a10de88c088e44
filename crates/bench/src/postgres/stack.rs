//! A file system for the database, and everything below it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cluster::give_to_postgres;
use crate::local::setup::{format_volume, luks1, qemu};
use crate::places::{Places, sparse_file};
use crate::programs::{GOCRYPTFS, LOSETUP, MKFS, MOUNT, UMOUNT, run};
use crate::server::Server;
use crate::{BenchError, Interrupt};

/// A stack by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Short and unique.
    pub(super) name: &'static str,
    /// For people.
    what: &'static str,
    below: Below,
}

/// What lies below the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    /// A sealed and folding volume, FUSE, a loop device.
    Sealed,
    /// The same without encryption.
    PassThrough,
    /// A loop device.
    Nothing,
    /// QEMU's LUKS, its FUSE export, a loop device.
    QemuLuks,
    /// gocryptfs, which is a file system itself.
    Gocryptfs,
}

/// Every stack, in the order of a round.
pub(super) const STACKS: [Kind; 5] = [
    Kind { name: "sealed-fold", what: "Sealdisk, aegis-256, packed, folding; FUSE, loop, ext4", below: Below::Sealed },
    Kind {
        name: "pass-through",
        what: "Sealdisk's path without encryption, seals or journal; FUSE, loop, ext4",
        below: Below::PassThrough,
    },
    Kind { name: "plain-loop", what: "no encryption and no Sealdisk; loop, ext4", below: Below::Nothing },
    Kind { name: "qemu-luks", what: "qemu-storage-daemon's LUKS; its FUSE export, loop, ext4", below: Below::QemuLuks },
    Kind { name: "gocryptfs", what: "gocryptfs on the file system below", below: Below::Gocryptfs },
];

/// A stack that has been made.
pub(super) struct Stack {
    kind: Kind,
    sealdisk: PathBuf,
    /// The file below it all; gocryptfs has a folder.
    store: PathBuf,
    commands: Vec<String>,
    has_file_system: bool,
}

/// A stack with its file system mounted. Dropping it takes it down.
pub(super) struct Up {
    mount_point: PathBuf,
    /// In the order in which it was built.
    layers: Vec<Layer>,
}

enum Layer {
    Process(Server),
    Loop(PathBuf),
    Mount(PathBuf),
}

impl Stack {
    /// Makes what is made once.
    pub(super) fn make(
        kind: Kind,
        sealdisk: &Path,
        size: u64,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<Self, BenchError> {
        let store = places.data(&format!("{}.store", kind.name));
        let mut commands = Vec::new();
        let mut prepare = |mut command: Command| {
            commands.push(places.shown(&command));
            run(&mut command, interrupt)
        };
        match kind.below {
            Below::Sealed => {
                prepare(format_volume(sealdisk, &store, size, "aegis-256", true, places))?;
            }
            Below::PassThrough | Below::Nothing => sparse_file(&store, size)?,
            Below::QemuLuks => {
                qemu(&store, true, places)?;
                sparse_file(&store, size)?;
                prepare(luks1(&store, places)?)?;
            }
            Below::Gocryptfs => {
                let mut init = GOCRYPTFS.command()?;
                fs::create_dir(&store).map_err(BenchError::path(&store))?;
                init.args(["-init", "-quiet", "-scryptn", "10", "-passfile"]).arg(places.key()).arg(&store);
                prepare(init)?;
            }
        }
        Ok(Self { kind, sealdisk: sealdisk.to_owned(), store, commands, has_file_system: false })
    }

    pub(super) fn name(&self) -> &'static str {
        self.kind.name
    }

    pub(super) fn what(&self) -> &'static str {
        self.kind.what
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self.kind.below, Below::Sealed | Below::PassThrough)
    }

    /// What set the stack up the first time.
    pub(super) fn commands(&self) -> &[String] {
        &self.commands
    }

    /// Builds the stack up to its mounted file system, which is made the first time.
    pub(super) fn up(&mut self, places: &Places, interrupt: &Interrupt) -> Result<Up, BenchError> {
        let mount_point = places.run("mount");
        fs::create_dir_all(&mount_point).map_err(BenchError::path(&mount_point))?;
        let mut up = Up { mount_point: mount_point.clone(), layers: Vec::new() };
        let mut noted = Vec::new();
        if self.kind.below == Below::Gocryptfs {
            let mut command = GOCRYPTFS.command()?;
            // The database is another user.
            command.args(["-fg", "-quiet", "-allow_other", "-passfile"]).arg(places.key());
            command.arg(&self.store).arg(&mount_point);
            noted.push(places.shown(&command));
            let mut process = Server::start(&mut command, places.run_folder(), self.kind.name)?;
            process.wait_for(interrupt, || is_mount_point(&mount_point).then_some(()))?;
            // It unmounts when it is asked to end.
            up.layers.push(Layer::Process(process));
        } else {
            let disk = self.disk(&mut up, &mut noted, places, interrupt)?;
            if !self.has_file_system {
                let mut command = MKFS.command()?;
                // Nothing is left for the kernel to do while the first rounds run.
                command.args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&disk);
                noted.push(places.shown(&command));
                run(&mut command, interrupt)?;
            }
            let mut command = MOUNT.command()?;
            command.arg(&disk).arg(&mount_point);
            noted.push(places.shown(&command));
            run(&mut command, interrupt)?;
            up.layers.push(Layer::Mount(mount_point.clone()));
        }
        if !self.has_file_system {
            give_to_postgres(&mount_point)?;
            self.commands.extend(noted);
            self.has_file_system = true;
        }
        Ok(up)
    }

    /// Builds everything below the file system, and returns the disk that it lies on.
    fn disk(
        &self,
        up: &mut Up,
        noted: &mut Vec<String>,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<PathBuf, BenchError> {
        let folder = places.run("fuse");
        fs::create_dir_all(&folder).map_err(BenchError::path(&folder))?;
        let mut start = |command: &mut Command| {
            noted.push(places.shown(command));
            Server::start(command, places.run_folder(), self.kind.name)
        };
        match self.kind.below {
            Below::Sealed | Below::PassThrough => {
                let mut command = Command::new(&self.sealdisk);
                if self.kind.below == Below::Sealed {
                    command.arg("attach").arg(&self.store).args(["--foreground", "--as", "fuse", "--name"]);
                    // Names in /dev/sealdisk are everybody's.
                    command.arg(format!("bench-{}", std::process::id())).arg("--key-file").arg(places.key());
                    command.env("SEALDISK_RUNTIME_DIR", places.run("registry"));
                } else {
                    command.args(["bench", "pass-through"]).arg(&self.store).arg("--mount").arg(&folder);
                }
                let mut process = start(&mut command)?;
                let disk = process.first_line(interrupt);
                up.layers.push(Layer::Process(process));
                Ok(PathBuf::from(disk?))
            }
            Below::QemuLuks => {
                // Its FUSE export covers a file.
                let file = folder.join("disk");
                File::create(&file).map_err(BenchError::path(&file))?;
                let mut command = qemu(&self.store, true, places)?;
                let export = format!("type=fuse,id=export,node-name=disk,mountpoint={},writable=on", file.display());
                let mut process = start(command.arg("--export").arg(export))?;
                let covered =
                    process.wait_for(interrupt, || fs::metadata(&file).ok().filter(|m| m.len() > 0).map(drop));
                up.layers.push(Layer::Process(process));
                covered?;
                up.attach_loop(&file, noted, places, interrupt)
            }
            Below::Nothing => up.attach_loop(&self.store, noted, places, interrupt),
            Below::Gocryptfs => unreachable!("gocryptfs has no disk"),
        }
    }
}

impl Up {
    fn attach_loop(
        &mut self,
        file: &Path,
        noted: &mut Vec<String>,
        places: &Places,
        interrupt: &Interrupt,
    ) -> Result<PathBuf, BenchError> {
        let mut command = LOSETUP.command()?;
        command.args(["--find", "--show", "--direct-io=on", "--sector-size", "4096"]).arg(file);
        noted.push(places.shown(&command));
        let device = PathBuf::from(run(&mut command, interrupt)?.trim());
        self.layers.push(Layer::Loop(device.clone()));
        Ok(device)
    }

    /// Where the file system is mounted.
    pub(super) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    fn process(&self) -> Option<&Server> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Process(process) => Some(process),
            _ => None,
        })
    }

    /// The most memory that the serving process has had so far, in bytes; 0 where there is none.
    pub(super) fn peak_memory(&self) -> u64 {
        self.process().map_or(0, Server::peak_memory)
    }

    /// The processor time that the serving process has used so far.
    pub(super) fn processor_time(&self) -> Duration {
        self.process().map_or(Duration::ZERO, Server::processor_time)
    }

    /// Takes everything down in order.
    pub(super) fn down(mut self, interrupt: &Interrupt) -> Result<(), BenchError> {
        interrupt.check()?;
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), BenchError> {
        // What is going down goes down all the way, interrupted or not.
        let regardless = Interrupt::default();
        while let Some(layer) = self.layers.pop() {
            match layer {
                Layer::Mount(place) => drop(run(UMOUNT.command()?.arg(place), &regardless)?),
                Layer::Loop(device) => drop(run(LOSETUP.command()?.arg("--detach").arg(device), &regardless)?),
                Layer::Process(process) => process.stop()?,
            }
        }
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Whatever fails, the layers below are still to be taken down.
        while !self.layers.is_empty() {
            if let Err(error) = self.take_down() {
                eprintln!("sealdisk: warning: {error}");
            }
        }
    }
}

/// Whether something is mounted there: it lies on another device than its parent.
fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    let parent = path.parent().unwrap_or(path);
    matches!((device(path), device(parent)), (Some(here), Some(above)) if here != above)
}
