//! The kernel's interface to loop devices: Linux `include/uapi/linux/loop.h`, and what sysfs shows of them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// `LOOP_CTL_GET_FREE`, on `/dev/loop-control`: the number of a free device.
const GET_FREE: libc::Ioctl = 0x4c82;
/// `LOOP_CONFIGURE` (Linux 5.8): backing file and everything else in one step, so that no half-made device is seen.
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// `LOOP_CLR_FD`: detach.
const CLEAR: libc::Ioctl = 0x4c01;
/// `LOOP_SET_STATUS64` and `LOOP_GET_STATUS64`.
const SET_STATUS: libc::Ioctl = 0x4c04;
const GET_STATUS: libc::Ioctl = 0x4c05;

/// How often a free device is looked for when others are taking them, too.
const ATTACH_TRIES: u32 = 64;

/// `LO_FLAGS_*`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags(u32);

impl Flags {
    pub const READ_ONLY: Self = Self(1);
    /// The device goes when its last user closes it.
    const AUTOCLEAR: Self = Self(4);
    pub const DIRECT_IO: Self = Self(16);

    pub fn empty() -> Self {
        Self(0)
    }

    pub fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    status: Status,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Status>() == 232 && size_of::<Config>() == 304);

impl Status {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// The device's node. devtmpfs makes it when the kernel makes the device.
pub(crate) fn path(number: u32) -> PathBuf {
    format!("/dev/loop{number}").into()
}

fn sysfs(number: u32, attribute: &str) -> PathBuf {
    format!("/sys/block/loop{number}/loop/{attribute}").into()
}

/// Attaches `backing`, known as `name`, to a free device and returns its number.
pub(super) fn attach_to_free(backing: &File, name: &Path, flags: Flags, block_size: u32) -> io::Result<u32> {
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    let mut status = Status { flags: flags.0, ..Status::EMPTY };
    // What `losetup` shows on old systems, cut to what fits beside the final NUL.
    for (byte, from) in status.file_name.iter_mut().take(63).zip(name.as_os_str().as_bytes()) {
        *byte = *from;
    }
    let config = Config { fd: backing.as_raw_fd() as u32, block_size, status, reserved: [0; 8] };
    let mut tries = 1;
    loop {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument.
        let number = result(unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) })?.cast_unsigned();
        let device = File::options().read(true).write(true).open(path(number))?;
        // SAFETY: LOOP_CONFIGURE reads a `struct loop_config`, which `Config` is, during the call.
        match result(unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) }) {
            Ok(_) => return Ok(number),
            // Someone else took it between the two calls.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < ATTACH_TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Detaches, when the last user closes it.
pub(super) fn clear(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    match result(unsafe { libc::ioctl(device.as_raw_fd(), CLEAR) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()), // it is gone already
        other => other.map(|_| ()),
    }
}

/// Takes back [`clear`] on a device that is still in use.
pub(super) fn keep(device: &Path) -> io::Result<()> {
    let device = File::options().read(true).open(device)?;
    let mut status = Status::EMPTY;
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, which `Status` is, during the call.
    result(unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS, &raw mut status) })?;
    let mut flags = Flags(status.flags);
    flags.set(Flags::AUTOCLEAR, false);
    status.flags = flags.0;
    // SAFETY: LOOP_SET_STATUS64 reads a `struct loop_info64`, which `Status` is, during the call.
    result(unsafe { libc::ioctl(device.as_raw_fd(), SET_STATUS, &raw const status) })?;
    Ok(())
}

/// Whether the device has a backing file.
pub(super) fn is_attached(number: u32) -> bool {
    sysfs(number, "backing_file").exists()
}

/// Whether requests go to the backing file directly.
pub(super) fn has_direct_io(number: u32) -> io::Result<bool> {
    Ok(fs::read(sysfs(number, "dio"))?.starts_with(b"1"))
}

/// The loop devices whose backing files lie in `directory`. Asks sysfs, which answers even when the file system that
/// the files are in does not.
pub(crate) fn backed_by_files_in(directory: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("loop")).and_then(|number| number.parse().ok());
        let Some(number) = number else { continue };
        let mut backing = match fs::read(sysfs(number, "backing_file")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        backing.pop_if(|last| *last == b'\n');
        if Path::new(&std::ffi::OsString::from_vec(backing)).parent() == Some(directory) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

fn result(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
