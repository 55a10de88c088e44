//! Serves memory over NBD, so that the export can be measured without a volume below it:
//!
//! ```text
//! nbd_memory unix:/path|HOST:PORT [MEBIBYTES]
//! ```
//!
//! It serves until its standard input ends.

#[allow(dead_code, clippy::unwrap_used, reason = "made for tests, which use all of it")]
#[path = "../tests/common/ram_disk.rs"]
mod ram_disk;

use std::error::Error;
use std::sync::Arc;

use sealdisk_export::Export;
use sealdisk_export::nbd::{NbdExport, NbdOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: nbd_memory unix:/path|HOST:PORT [MEBIBYTES]")?.parse()?;
    let mebibytes: u64 = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let disk = Arc::new(ram_disk::RamDisk::new(mebibytes << 20));
    let export = NbdExport::start(disk, &address, NbdOptions::default())?;
    println!("{}", export.address());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(Box::new(export).stop()?)
}
