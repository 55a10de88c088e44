//! What a disk must hold: its bytes, which copies share until one of them is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that copies share together.
const CHUNK: u64 = 64 << 10;

/// The bytes of a disk. A copy costs little.
#[derive(Clone)]
pub struct Content {
    size: u64,
    /// By number; what is not here is zeros.
    chunks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    /// Zeros.
    pub fn new(size: u64) -> Self {
        Self { size, chunks: BTreeMap::new() }
    }

    /// How many bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What is cut off is forgotten, and what is added is zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size..self.size);
        }
        self.size = size;
    }

    /// The bytes of a range.
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        for (number, inside, outside) in self.pieces(range) {
            if let Some(chunk) = self.chunks.get(&number) {
                bytes[outside].copy_from_slice(&chunk[inside]);
            }
        }
        bytes
    }

    /// Puts bytes at an offset.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, inside, outside) in self.pieces(offset..offset + bytes.len() as u64) {
            self.chunk(number)[inside].copy_from_slice(&bytes[outside]);
        }
    }

    /// Makes a range zeros.
    pub fn zero(&mut self, range: Range<u64>) {
        for (number, inside, _) in self.pieces(range) {
            if inside.len() as u64 == CHUNK {
                self.chunks.remove(&number);
            } else {
                self.chunk(number)[inside].fill(0);
            }
        }
    }

    fn chunk(&mut self, number: u64) -> &mut Vec<u8> {
        Arc::make_mut(self.chunks.entry(number).or_insert_with(|| Arc::new(vec![0; CHUNK as usize])))
    }

    /// The parts of a range: the chunk's number, where in the chunk, and where in the range.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> + use<> {
        assert!(range.end <= self.size, "{range:?} of {}", self.size);
        let first = range.start / CHUNK;
        (first..range.end.div_ceil(CHUNK)).map(move |number| {
            let (start, end) = (range.start.max(number * CHUNK), range.end.min((number + 1) * CHUNK));
            let within = |origin: u64| (start - origin) as usize..(end - origin) as usize;
            (number, within(number * CHUNK), within(range.start))
        })
    }
}
