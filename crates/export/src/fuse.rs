//! FUSE: a disk as one file in a directory, for clients that know files, and for a loop device that makes it a disk of
//! the kernel's on machines that have neither NBD nor ublk.
//!
//! The protocol is spoken here and not through a library, for one reason: a FUSE library hands out one request at a
//! time and then sleeps, and a disk wants batches. See [`worker`].

mod device;
mod disk_file;
mod mount;
mod stale;
mod wire;
mod worker;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use self::device::Device;
use self::disk_file::DiskFile;
use self::worker::Worker;
use crate::{Disk, Export, ExportError, Helper, LoopDevice, LoopOptions};

pub use stale::cleanup_stale;

/// How a disk is mounted.
#[derive(Debug, Clone)]
pub struct FuseOptions {
    /// What the file is called. Not empty, no `/`.
    pub file_name: OsString,
    /// Threads that serve. Each may have a batch of 32 requests in progress, and takes up to 4 MiB of memory.
    pub threads: NonZeroUsize,
}

impl FuseOptions {
    /// Four threads: a flush occupies one for as long as it takes, and the others take on more at a time meanwhile. The
    /// kernel wakes the thread that has slept longest, so a lone request costs the more the more threads there are.
    const THREADS: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");
}

impl Default for FuseOptions {
    fn default() -> Self {
        Self { file_name: "disk".into(), threads: Self::THREADS }
    }
}

/// A disk that is mounted as a file, perhaps with a loop device on it.
///
/// The file belongs to the user who mounted it and no other user can reach it. It is opened for direct I/O whatever the
/// client asks, so what one client wrote the next one reads, and no plaintext stays in the page cache; shared writable
/// mappings are refused (ENODEV). Its size and name cannot be changed.
///
/// Dropping it takes everything down as [`release`](Export::release) does; what is in use at that time stays, served
/// until the process ends.
pub struct FuseExport {
    mountpoint: PathBuf,
    file: PathBuf,
    /// Before the loop device is detached for good, nothing else may be taken down.
    loop_device: Option<HelpedDevice>,
    mounted: bool,
    read_only: bool,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// A loop device, and who can take it down.
struct HelpedDevice {
    device: LoopDevice,
    helper: Helper,
}

impl FuseExport {
    /// Mounts `disk` at the directory `mountpoint`, which must exist, and serves it. What a killed server left there is
    /// removed first, see [`cleanup_stale`].
    pub fn mount(disk: Arc<dyn Disk>, mountpoint: &Path, options: &FuseOptions) -> Result<Self, ExportError> {
        let mounting = |error| ExportError::new(format!("mounting at {}", mountpoint.display()), error);
        if Path::new(&options.file_name).file_name() != Some(&options.file_name) {
            return Err(mounting(io::Error::new(io::ErrorKind::InvalidInput, "the file's name is not one")));
        }
        cleanup_stale(mountpoint)?;
        let mountpoint = mountpoint.canonicalize().map_err(mounting)?;
        let read_only = disk.is_read_only();
        let file = Arc::new(DiskFile::new(disk, options.file_name.clone()));
        let fd = mount::mount(&mountpoint, read_only).map_err(mounting)?;
        let mut export = Self {
            file: mountpoint.join(&options.file_name),
            mountpoint: mountpoint.clone(),
            loop_device: None,
            mounted: true,
            read_only,
            threads: Vec::new(),
        };
        // From here on an error drops `export`, which unmounts.
        let device = Arc::new(Device::connect(fd).map_err(mounting)?);
        for index in 0..options.threads.get() {
            let worker = Worker::new(Arc::clone(&device), Arc::clone(&file));
            let thread = std::thread::Builder::new().name(format!("fuse-{index}")).spawn(move || worker.run());
            export.threads.push(thread.map_err(mounting)?);
        }
        Ok(export)
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Puts a loop device on the file, as `/dev/sealdisk/NAME` where `options` name it. A read-only disk gets a
    /// read-only device. This process must not touch the file itself, so `helper` does, now and when the device is taken
    /// down.
    pub fn attach_loop(&mut self, options: &LoopOptions, helper: &Helper) -> Result<&LoopDevice, ExportError> {
        if self.loop_device.is_some() {
            let what = format!("{} has a loop device already", self.file.display());
            return Err(ExportError::new(what, io::ErrorKind::AlreadyExists));
        }
        let options = LoopOptions { read_only: options.read_only || self.read_only, ..options.clone() };
        let device = helper.attach_loop(&self.file, &options)?;
        Ok(&self.loop_device.insert(HelpedDevice { device, helper: helper.clone() }).device)
    }

    /// Whether the disk is still being served: someone else may have unmounted it.
    pub fn is_serving(&self) -> bool {
        self.mounted && self.threads.iter().any(|thread| !thread.is_finished())
    }

    fn unmount(&mut self) -> Result<(), ExportError> {
        match mount::unmount(&self.mountpoint) {
            // EINVAL: it is no mount point any more, since someone else unmounted it.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                let mountpoint = self.mountpoint.display();
                let what = match error.kind() {
                    io::ErrorKind::ResourceBusy => {
                        format!("{mountpoint} is in use; close what is open there and try again")
                    }
                    _ => format!("unmounting {mountpoint}"),
                };
                Err(ExportError::new(what, error))
            }
            _ => {
                self.mounted = false;
                Ok(())
            }
        }
    }
}

impl Export for FuseExport {
    fn address(&self) -> String {
        let path = self.loop_device.as_ref().map_or(&*self.file, |helped| helped.device.path());
        path.display().to_string()
    }

    fn release(&mut self) -> Result<(), ExportError> {
        if let Some(HelpedDevice { device, helper }) = &self.loop_device {
            helper.detach_loop(device)?;
            self.loop_device = None;
        }
        if self.mounted {
            self.unmount()?;
        }
        Ok(())
    }

    fn stop(mut self: Box<Self>) -> Result<(), ExportError> {
        self.release()?;
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            ended.map_err(|error| ExportError::new(format!("serving {}", self.mountpoint.display()), error))?;
        }
        Ok(())
    }
}

impl Drop for FuseExport {
    fn drop(&mut self) {
        // Nobody is left to be told; what is in use stays usable.
        let _ = self.release();
    }
}
