//! A client of the disk that writes until the server is gone.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;

use sealdisk_store::Choices;
use sealdisk_units::{OBJECT_SIZE, SECTOR_SIZE};
use support::Random;
use support::raw_client::{CMD_FLUSH, CMD_READ, CMD_WRITE, CMD_WRITE_ZEROES, RawClient, request};

use super::sectors::Sectors;

/// Requests in flight.
const DEPTH: usize = 12;
/// Requests from one flush to the next, on average.
const BETWEEN_FLUSHES: u64 = 30;
/// Bytes that are read at once.
const STEP: usize = 1 << 20;

/// A connection. Requests are told apart by their cookies.
pub struct Client {
    stream: UnixStream,
    cookie: u64,
    /// The sectors that requests touch which are not answered yet.
    in_flight: BTreeMap<u64, Range<usize>>,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        Self { stream: RawClient::ready(socket).0, cookie: 0, in_flight: BTreeMap::new() }
    }

    /// The first `size` bytes of the disk, of which every sector must be authentic.
    pub fn read(&mut self, size: u64) -> Vec<u8> {
        let mut disk = vec![0; size as usize];
        for (number, part) in disk.chunks_mut(STEP).enumerate() {
            self.send(CMD_READ, (number * STEP) as u64, part.len(), &[]).unwrap();
            self.take_reply().unwrap();
            self.stream.read_exact(part).unwrap();
        }
        disk
    }

    /// Writes, and flushes now and then, until the server is gone. Returns how many requests it has not answered.
    pub fn write_until_killed(mut self, sectors: &mut Sectors, random: &mut Random) -> usize {
        loop {
            match self.write(sectors, random) {
                Ok(()) => {}
                Err(error) if is_end(&error) => return self.in_flight.len(),
                Err(error) => panic!("the disk fails: {error}"),
            }
        }
    }

    fn write(&mut self, sectors: &mut Sectors, random: &mut Random) -> io::Result<()> {
        if random.one_in(BETWEEN_FLUSHES) {
            while !self.in_flight.is_empty() {
                self.take_reply()?;
            }
            self.send(CMD_FLUSH, 0, 0, &[])?;
            self.take_reply()?;
            sectors.flushed();
        }
        let (command, offset, bytes) = change(sectors.size(), random);
        let touched = Sectors::touched(offset, bytes.len());
        // Of two changes at once to one sector nobody could say which is the newer one.
        let meets = |other: &Range<usize>| touched.start < other.end && other.start < touched.end;
        while self.in_flight.len() >= DEPTH || self.in_flight.values().any(meets) {
            self.take_reply()?;
        }
        sectors.write(offset, &bytes);
        self.send(command, offset, bytes.len(), if command == CMD_WRITE { &bytes } else { &[] })
    }

    fn send(&mut self, command: u16, offset: u64, len: usize, payload: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        self.in_flight.insert(self.cookie, Sectors::touched(offset, len));
        self.stream.write_all(&[&request(0, command, self.cookie, offset, len as u32), payload].concat())
    }

    fn take_reply(&mut self) -> io::Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let (head, cookie) = reply.split_at(8);
        let touched = self.in_flight.remove(&u64::from_be_bytes(cookie.try_into().unwrap())).expect("it was asked");
        // An error of the disk is one in every case: sectors that are not authentic, too.
        assert_eq!(head, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "sectors {touched:?}");
        Ok(())
    }
}

/// What a client may do next: a command, where, and what will be there.
fn change(size: u64, random: &mut Random) -> (u16, u64, Vec<u8>) {
    let place = |random: &mut Random, unit: u64, most: u64| {
        let offset = random.below(size / unit) * unit;
        (offset, (unit * (1 + random.below(most / unit))).min(size - offset))
    };
    let sector = SECTOR_SIZE as u64;
    match random.below(16) {
        // A whole object may cease to exist.
        0 => {
            let (offset, len) = place(random, OBJECT_SIZE, OBJECT_SIZE);
            (CMD_WRITE_ZEROES, offset, vec![0; len as usize])
        }
        1 => {
            let (offset, len) = place(random, sector, 64 * sector);
            (CMD_WRITE_ZEROES, offset, vec![0; len as usize])
        }
        2..=5 => {
            let (offset, len) = place(random, 1, 3 * sector);
            (CMD_WRITE, offset, content(len as usize, random))
        }
        _ => {
            let (offset, len) = place(random, sector, 24 * sector);
            (CMD_WRITE, offset, content(len as usize, random))
        }
    }
}

/// Bytes that were never written before. About half of the sectors can be folded.
fn content(len: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for sector in bytes.chunks_mut(SECTOR_SIZE) {
        let filled = if random.one_in(2) { sector.len() } else { sector.len().min(500) };
        random.fill(&mut sector[..filled]);
    }
    bytes
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
