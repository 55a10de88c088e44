//! Archives of the "new ASCII" format, as the kernel unpacks them at start.
//!
//! The format is described in the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`: a header of 110
//! bytes in ASCII, the name with a closing zero, padding to a multiple of 4, the content, padding to a multiple of 4.
//! Several archives may follow each other.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// An archive that is being written.
pub struct Cpio<W> {
    output: W,
    written: usize,
    /// The number of the next entry: no two are links to the same file.
    inode: u32,
}

impl<W: Write> Cpio<W> {
    pub fn new(output: W) -> Self {
        Self { output, written: 0, inode: 1 }
    }

    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name.as_bytes(), DIRECTORY | 0o755, &[])
    }

    /// A file that its owner may run.
    pub fn program(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name.as_bytes(), REGULAR | 0o755, content)
    }

    /// A file.
    pub fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.entry(name.as_bytes(), REGULAR | 0o644, content)
    }

    /// Everything below `folder`, each with its path from there.
    pub fn tree(&mut self, folder: &Path) -> io::Result<()> {
        self.below(folder, folder)
    }

    fn below(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            let name = path.strip_prefix(root).expect("it was found below the root").as_os_str().as_bytes();
            let metadata = path.symlink_metadata()?;
            let permissions = metadata.permissions().mode() & 0o7777;
            if metadata.is_symlink() {
                self.entry(name, SYMLINK | 0o777, path.read_link()?.as_os_str().as_bytes())?;
            } else if metadata.is_dir() {
                self.entry(name, DIRECTORY | permissions, &[])?;
                self.below(root, &path)?;
            } else if metadata.is_file() {
                self.entry(name, REGULAR | permissions, &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// Writes the entry that ends an archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn entry(&mut self, name: &[u8], mode: u32, content: &[u8]) -> io::Result<()> {
        let (inode, size, name_size) = (self.inode, content.len(), name.len() + 1);
        self.inode += 1;
        // magic, inode, mode, uid, gid, links, mtime, size, device (2), device of a device (2), size of name, checksum
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        self.put(header.as_bytes())?;
        self.put(name)?;
        self.put(&[0])?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.output.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let short = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 3][..short])
    }
}
