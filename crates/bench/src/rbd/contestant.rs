//! A subject's disk on the cluster: made and filled once, served by a new process in each round.

use std::path::PathBuf;
use std::process::Command;

use sealdisk_cipher::VolumeKey;
use sealdisk_rados::Credentials;
use sealdisk_store::OpenMode;
use sealdisk_units::OBJECT_SIZE;
use sealdisk_volume::Volume;

use super::ceph::{luks2, missing_driver, qemu};
use super::image::{OwnImage, Place};
use super::subject::{Kind, Subject};
use super::volume::{self, VolumeKind};
use crate::disk::{EXPORT, ServedDisk};
use crate::fio::Content;
use crate::places::Places;
use crate::programs::run;
use crate::{BenchError, Interrupt};

/// Bytes that librbd's LUKS2 header takes in front of the data.
const LUKS2_HEADER: u64 = 16 << 20;

/// What everyone's disk is made with.
pub(super) struct Means<'a> {
    pub(super) sealdisk: PathBuf,
    pub(super) credentials: &'a Credentials,
    pub(super) place: Place,
    pub(super) places: &'a Places,
    /// Of the volumes; librbd's has a passphrase.
    pub(super) key: VolumeKey,
    pub(super) size: u64,
    pub(super) memory: u64,
    pub(super) random: PathBuf,
    /// Once somebody wants them.
    pub(super) pages: Option<PathBuf>,
}

/// A subject that takes part. What serves its disk ends before the image goes.
pub(super) struct Contestant {
    pub(super) subject: Subject,
    pub(super) commands: Vec<String>,
    pub(super) remarks: Vec<String>,
    pub(super) peak_memory: u64,
    content: PathBuf,
    disk: Option<ServedDisk>,
    image: OwnImage,
}

impl Means<'_> {
    fn key_file(&self) -> PathBuf {
        self.places.run(VOLUME_KEY)
    }
}

/// The name of the file with the volumes' key.
pub(super) const VOLUME_KEY: &str = "volume-key";

impl Contestant {
    /// Makes a subject's disk, and writes all of it once with `content`.
    pub(super) fn make(
        subject: Subject,
        content: PathBuf,
        means: &Means<'_>,
        interrupt: &Interrupt,
    ) -> Result<Self, BenchError> {
        let (room, object_size) = match subject.kind {
            Kind::Volume(kind) => {
                let payload = kind.payload();
                (Volume::object_store_size(&payload, means.size), payload.object_size())
            }
            Kind::Librbd { luks2: true } => (means.size + LUKS2_HEADER, OBJECT_SIZE),
            Kind::Librbd { luks2: false } => (means.size, OBJECT_SIZE),
        };
        let image = means.place.create(&subject.name, room, object_size)?;
        let (commands, remarks) = (Vec::new(), Vec::new());
        let mut made = Self { subject, commands, remarks, peak_memory: 0, content, disk: None, image };
        match made.subject.kind {
            Kind::Volume(kind) => {
                let store = means.place.open(&made.image, OpenMode::ReadWrite)?;
                volume::format(&store, kind, &means.key, means.size)?;
            }
            Kind::Librbd { luks2: true } => {
                let mut command = luks2(made.image.name(), means.credentials, means.places)?;
                made.commands.push(means.places.shown(&command));
                run(&mut command, interrupt)?;
            }
            Kind::Librbd { luks2: false } => {}
        }
        made.commands.push(means.places.shown(&made.server(means)?));
        made.serve(means, interrupt)?;
        made.disk().fill(made.content(), means.places, interrupt)?;
        made.stop()?;
        made.note_folding("once it is full", means)?;
        Ok(made)
    }

    /// Notes how much of a disk that nobody serves is folded.
    pub(super) fn note_folding(&mut self, when: &str, means: &Means<'_>) -> Result<(), BenchError> {
        let Kind::Volume(kind @ VolumeKind { fold: true, .. }) = self.subject.kind else { return Ok(()) };
        let store = means.place.open(&self.image, OpenMode::ReadOnly)?;
        let share = volume::folded_share(&store, kind)?;
        self.remarks.extend(share.map(|share| format!("{:.1} % of the sectors are folded {when}", share * 100.0)));
        Ok(())
    }

    /// What is written to it.
    pub(super) fn content(&self) -> Content<'_> {
        Content::File(&self.content)
    }

    fn socket(&self, means: &Means<'_>) -> PathBuf {
        means.places.run(&format!("{}.socket", self.subject.name))
    }

    /// The command that serves the disk.
    fn server(&self, means: &Means<'_>) -> Result<Command, BenchError> {
        let socket = self.socket(means);
        match self.subject.kind {
            Kind::Volume(kind) => Ok(self.volume_server(kind, means)),
            Kind::Librbd { luks2 } => {
                let mut command = qemu(self.image.name(), luks2, means.credentials, means.places)?;
                command.arg("--nbd-server").arg(format!("addr.type=unix,addr.path={}", socket.display()));
                command.arg("--export").arg(format!("type=nbd,id=export,node-name=disk,name={EXPORT},writable=on"));
                Ok(command)
            }
        }
    }

    fn volume_server(&self, kind: VolumeKind, means: &Means<'_>) -> Command {
        let name = self.image.name();
        let mut command = Command::new(&means.sealdisk);
        command.args(["bench", "image", "--pool", &name.pool, "--image", &name.image]);
        command.args(["--cipher", kind.cipher.as_str(), "--layout", kind.layout.as_str()]);
        if kind.fold {
            command.arg("--fold");
        }
        command.args(["--memory", &means.memory.to_string()]);
        command.arg("--key-file").arg(means.key_file()).arg("--socket").arg(self.socket(means));
        let Credentials { conf, id, keyring } = means.credentials;
        for (option, path) in [("--conf", conf), ("--keyring", keyring)] {
            path.iter().for_each(|path| {
                command.arg(option).arg(path);
            });
        }
        id.iter().for_each(|id| {
            command.args(["--id", id]);
        });
        command
    }

    /// Serves the disk, and waits until it can be reached.
    pub(super) fn serve(&mut self, means: &Means<'_>, interrupt: &Interrupt) -> Result<(), BenchError> {
        let (mut server, socket) = (self.server(means)?, self.socket(means));
        let started = ServedDisk::start(&mut server, &self.subject.name, &socket, means.places, interrupt);
        self.disk = Some(started.map_err(missing_driver)?);
        Ok(())
    }

    /// The disk that is being served.
    pub(super) fn disk(&self) -> &ServedDisk {
        self.disk.as_ref().expect("served in each round")
    }

    /// Ends what serves the disk.
    pub(super) fn stop(&mut self) -> Result<(), BenchError> {
        let Some(disk) = self.disk.take() else { return Ok(()) };
        self.peak_memory = self.peak_memory.max(disk.peak_memory());
        disk.stop()
    }

    /// Removes the image.
    pub(super) fn remove(self) -> Result<(), BenchError> {
        self.image.remove()
    }
}
