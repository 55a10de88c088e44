//! Mounting and unmounting without libfuse: the system call where we may, `fusermount3` where we may not.

use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use rustix::process::{getegid, geteuid};

use super::device::Device;

/// What `/proc/self/mountinfo` calls our mounts.
const TYPE: &str = "fuse.sealdisk";
const SOURCE: &str = "sealdisk";

/// How often, and how long apart, an unmount is tried: whoever closed the file last may not have finished.
const UNMOUNT_TRIES: u32 = 10;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// Mounts at the directory `mountpoint` and returns the server's end.
pub(super) fn mount(mountpoint: &Path, read_only: bool) -> io::Result<OwnedFd> {
    if geteuid().is_root() { mount_directly(mountpoint, read_only) } else { mount_by_helper(mountpoint, read_only) }
}

fn mount_directly(mountpoint: &Path, read_only: bool) -> io::Result<OwnedFd> {
    let device = OwnedFd::from(Device::open()?);
    let (fd, uid, gid) = (device.as_raw_fd(), geteuid().as_raw(), getegid().as_raw());
    let data = CString::new(format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions"))?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, read_only);
    rustix::mount::mount(SOURCE, mountpoint, TYPE, flags, data.as_c_str())?;
    Ok(device)
}

/// `fusermount3` is set-uid root: it mounts for us and sends the device over the socket named in `_FUSE_COMMFD`.
fn mount_by_helper(mountpoint: &Path, read_only: bool) -> io::Result<OwnedFd> {
    let (ours, helpers) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fcntl_setfd(&helpers, FdFlags::empty())?;
    let access = if read_only { "ro" } else { "rw" };
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(format!("{access},nosuid,nodev,noexec,noatime,default_permissions,fsname={SOURCE},subtype=sealdisk"))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", helpers.as_raw_fd().to_string())
        .output()
        .map_err(helper_missing)?;
    drop(helpers);
    if !output.status.success() {
        return Err(helper_refused(&output.stderr));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&ours, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(io::Error::other("fusermount3 mounted but sent no device"))
}

fn helper_missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            "mounting without root needs fusermount3 from the Debian package fuse3",
        ),
        _ => error,
    }
}

fn helper_refused(stderr: &[u8]) -> io::Error {
    let said = String::from_utf8_lossy(stderr);
    let kind = if said.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
    io::Error::new(kind, said.trim().to_owned())
}

/// Unmounts what is mounted at `mountpoint`. Fails with `ResourceBusy` while anything there is open, and leaves it
/// mounted.
pub(super) fn unmount(mountpoint: &Path) -> io::Result<()> {
    let mut tries = 1;
    loop {
        match unmount_once(mountpoint) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < UNMOUNT_TRIES => tries += 1,
            other => return other,
        }
        std::thread::sleep(UNMOUNT_PAUSE);
    }
}

/// Not a task for a [`Helper`](crate::Helper): the kernel waits for no answer. It refuses while a file is open, and has
/// nothing to ask when none is.
fn unmount_once(mountpoint: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW)?);
    }
    run_unmount_helper(mountpoint, &["-u", "--"])
}

/// Takes a mount out of the tree at once, although something there is still open. For mounts whose server is dead:
/// whoever has something open gets errors until he closes it.
pub(super) fn unmount_dead(mountpoint: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?);
    }
    run_unmount_helper(mountpoint, &["-u", "-z", "--"])
}

fn run_unmount_helper(mountpoint: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("fusermount3").args(arguments).arg(mountpoint).output().map_err(helper_missing)?;
    if output.status.success() { Ok(()) } else { Err(helper_refused(&output.stderr)) }
}

/// What is mounted at a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    /// Nothing of ours.
    Nothing,
    /// A disk that is being served.
    Alive,
    /// A disk whose server died.
    Dead,
}

/// Finds out what is mounted at `mountpoint`.
pub(super) fn look(mountpoint: &Path) -> io::Result<Mounted> {
    let mountinfo = std::fs::read("/proc/self/mountinfo")?;
    let mountpoint = absolute(mountpoint)?;
    if !ours(&mountinfo).any(|path| path == mountpoint) {
        return Ok(Mounted::Nothing);
    }
    // Attributes may be answered from the kernel's cache; the state of the file system is always asked of the server.
    match rustix::fs::statfs(&mountpoint) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(Mounted::Dead),
        Err(Errno::ACCESS) => Ok(Mounted::Alive), // another user's
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Mounted::Alive),
    }
}

/// The path as the mount table has it. On a dead mount the last component cannot be looked at, only what leads there.
pub(super) fn absolute(mountpoint: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(mountpoint)?;
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(_), Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        (found, ..) => found,
    }
}

/// Where our file systems are mounted, by a mount table in the format of proc(5).
fn ours(mountinfo: &[u8]) -> impl Iterator<Item = PathBuf> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let path = fields.nth(4)?;
        fields.find(|field| *field == b"-")?;
        (fields.next()? == TYPE.as_bytes()).then(|| PathBuf::from(OsString::from_vec(unescape(path))))
    })
}

/// Undoes the mount table's `\040` for a space, and so on.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let code = (first == b'\\')
            .then(|| behind.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_in_the_mount_table() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            40 22 0:45 / /run/my\\040disk\\134x rw,nosuid shared:5 - fuse.sealdisk sealdisk rw\n\
            41 22 0:46 / /mnt rw - fuse.sshfs sealdisk rw\n\
            short line\n";
        let found: Vec<_> = ours(table).collect();
        assert_eq!(found, [Path::new("/run/my disk\\x")]);
    }
}
