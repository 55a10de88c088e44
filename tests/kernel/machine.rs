//! A virtual machine with a real kernel: runs a script of the shell and returns what it printed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use support::programs::{succeed, tool};

use crate::cpio::Cpio;

/// When to give a machine up that neither ends nor dies. No measurement: a machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);

const FETCH: &str = include_str!("fetch.sh");
const INIT: &str = include_str!("init");

/// Where a machine's programs and its kernel come from. The kernel is a 6.12 with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Debian {
    /// Debian 12, with cryptsetup 2.6.
    Bookworm,
    /// Debian 13, with cryptsetup 2.7.
    Trixie,
}

impl Debian {
    pub const ALL: [Self; 2] = [Self::Bookworm, Self::Trixie];

    fn codename(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// What a machine starts from.
struct Parts {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Parts {
    /// The parts, fetched if this is the first run in this target folder.
    fn of(debian: Debian) -> &'static Self {
        static PARTS: [OnceLock<Parts>; 2] = [const { OnceLock::new() }; 2];
        PARTS[debian as usize].get_or_init(|| {
            // What is there was made by these files as they are now, or it has another name.
            let made_by = &crate::sum(format!("{FETCH}{INIT}").as_bytes())[..16];
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{made_by}", debian.codename()));
            if !folder.join("vmlinuz").exists() {
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel/fetch.sh");
                succeed(Command::new(script).arg(&folder).arg(debian.codename()));
            }
            let parts = Self { kernel: folder.join("vmlinuz"), initramfs: folder.join("initramfs") };
            if !parts.initramfs.exists() {
                parts.pack(&folder.join("root")).expect("there is room for the initramfs");
            }
            parts
        })
    }

    /// Packs the file system `root` and the first process.
    fn pack(&self, root: &Path) -> io::Result<()> {
        let packed = tempfile::NamedTempFile::new_in(root.with_file_name(""))?;
        let mut archive = Cpio::new(io::BufWriter::new(packed));
        archive.tree(root)?;
        archive.program("init", INIT.as_bytes())?;
        archive.finish()?.into_inner()?.persist(&self.initramfs)?;
        Ok(())
    }
}

/// A machine that is being put together.
pub struct Machine {
    parts: &'static Parts,
    /// Where its console and its report go, and what it starts from.
    folder: tempfile::TempDir,
    command: Command,
    files: Cpio<Vec<u8>>,
}

impl Machine {
    pub fn new(debian: Debian) -> Self {
        let parts = Parts::of(debian);
        let folder = tempfile::tempdir().unwrap();
        let mut command = tool("qemu-system-x86_64", "qemu-system-x86");
        command.args(["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none"]);
        // Emulated by QEMU 7.2, CMPXCHG16B now and then leaves nonsense in the flags, of which the kernel dies.
        command.args(["-machine", "q35,accel=tcg", "-cpu", "max,-cx16", "-m", "512"]);
        command.args(["-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off"]);
        for line in ["console", "report"] {
            command.arg("-serial").arg(format!("file:{}", folder.path().join(line).display()));
        }
        let mut files = Cpio::new(Vec::new());
        files.directory("test").unwrap();
        Self { parts, folder, command, files }
    }

    /// Gives it the file `path` as the disk `/disks/NAME`. A name has at most 20 bytes.
    pub fn disk(mut self, name: &str, path: &Path) -> Self {
        assert!(name.len() <= 20, "virtio has room for 20 bytes, not for {name}");
        // In QEMU's options a comma is written twice.
        let path = path.to_str().unwrap().replace(',', ",,");
        self.command.arg("-drive").arg(format!("file={path},format=raw,if=none,id={name},discard=unmap"));
        self.command.arg("-device").arg(format!("virtio-blk-pci,drive={name},serial={name}"));
        self
    }

    /// Gives it the file `/test/NAME`.
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.file(&format!("test/{name}"), content).unwrap();
        self
    }

    /// Gives it a network card `eth0` behind which this machine's loopback addresses are found at 10.0.2.2.
    pub fn network(mut self) -> Self {
        self.command.args(["-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile="]);
        self
    }

    /// Runs `script`, which must succeed, in the folder `/test`.
    pub fn run(mut self, script: &str) -> Report {
        self.files.file("test/script", script.as_bytes()).unwrap();
        let initramfs = self.folder.path().join("initramfs");
        fs::copy(&self.parts.initramfs, &initramfs).unwrap();
        File::options().append(true).open(&initramfs).unwrap().write_all(&self.files.finish().unwrap()).unwrap();

        self.command.arg("-kernel").arg(&self.parts.kernel).arg("-initrd").arg(initramfs);
        let mut machine = self.command.stdout(Stdio::inherit()).stderr(Stdio::inherit()).spawn().unwrap();
        let begun = Instant::now();
        let ended = loop {
            match machine.try_wait().unwrap() {
                Some(status) => break status.success(),
                None if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
                None => {
                    machine.kill().unwrap();
                    machine.wait().unwrap();
                    break false;
                }
            }
        };
        let read = |line: &str| fs::read(self.folder.path().join(line)).unwrap_or_default();
        let (console, report) = (read("console"), read("report"));
        let (console, report) = (String::from_utf8_lossy(&console), String::from_utf8_lossy(&report));
        match report.strip_suffix("status 0\n") {
            Some(report) if ended => Report(report.to_owned()),
            _ => panic!("the machine failed\n--- console:\n{console}\n--- report:\n{report}"),
        }
    }
}

/// What a script printed: lines of the form `name: value`.
#[derive(Debug)]
pub struct Report(String);

impl Report {
    /// The only value of this name.
    #[track_caller]
    pub fn value(&self, name: &str) -> &str {
        let mut values = self.0.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        match (values.next(), values.next()) {
            (Some(value), None) => value,
            found => panic!("{name} is {found:?} in\n{}", self.0),
        }
    }
}
