//! The journal as a ring: where the next frame goes, and which frames recovery still needs.

use std::collections::VecDeque;

use sealdisk_layout::JournalTail;

/// A frame that recovery would read.
#[derive(Debug, Clone, Copy)]
struct Live {
    start: JournalTail,
    /// Bytes from the frame's start to the next frame's, wrapped space included.
    len: u64,
}

/// Positions in the journal. A frame lies in one piece: where too little is left before the end, it begins at 0.
pub(crate) struct Ring {
    len: u64,
    /// What the next frame will be. Its position may still wrap to 0.
    head: JournalTail,
    live: VecDeque<Live>,
    used: u64,
}

/// Where a frame would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) position: u64,
    /// Bytes left unused before the end of the ring, because the frame did not fit there.
    skipped: u64,
}

impl Ring {
    /// An empty journal of `len` bytes whose next frame is `head`.
    pub(crate) fn new(len: u64, head: JournalTail) -> Self {
        Self { len, head, live: VecDeque::new(), used: 0 }
    }

    /// What the next frame continues.
    pub(crate) fn head(&self) -> JournalTail {
        self.head
    }

    /// Bytes that hold frames which recovery needs.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where a frame of `frame_len` bytes goes; `None` where there is no room until the tail moves.
    pub(crate) fn place(&self, frame_len: u64) -> Option<Slot> {
        let to_end = self.len - self.head.position;
        let slot = if frame_len <= to_end {
            Slot { position: self.head.position, skipped: 0 }
        } else {
            Slot { position: 0, skipped: to_end }
        };
        (self.used + slot.skipped + frame_len <= self.len).then_some(slot)
    }

    /// The frame was made durable there.
    pub(crate) fn append(&mut self, slot: Slot, frame_len: u64, tag: [u8; 16]) {
        let len = slot.skipped + frame_len;
        self.live.push_back(Live { start: JournalTail { position: slot.position, ..self.head }, len });
        self.used += len;
        self.head = JournalTail {
            sequence: self.head.sequence + 1,
            position: slot.position + frame_len,
            previous_tag: tag,
            previous_position: slot.position,
        };
    }

    /// Where the tail may move when `oldest` is the oldest frame that recovery needs (`None`: it needs no frame).
    pub(crate) fn tail_for(&self, oldest: Option<u64>) -> JournalTail {
        let needed = oldest.and_then(|oldest| self.live.iter().find(|frame| frame.start.sequence >= oldest));
        needed.map_or(self.head, |frame| frame.start)
    }

    /// The superblock on the store says so now.
    pub(crate) fn tail_recorded(&mut self, tail: JournalTail) {
        while let Some(frame) = self.live.front()
            && frame.start.sequence < tail.sequence
        {
            self.used -= frame.len;
            self.live.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> JournalTail {
        JournalTail { sequence: 1, position: 0, previous_tag: [0; 16], previous_position: 0 }
    }

    #[test]
    fn a_frame_that_does_not_fit_before_the_end_begins_at_the_start() {
        let mut ring = Ring::new(10 * 4096, start());
        for n in 1..=3 {
            let slot = ring.place(3 * 4096).unwrap();
            assert_eq!(slot, Slot { position: (n - 1) * 3 * 4096, skipped: 0 });
            ring.append(slot, 3 * 4096, [n as u8; 16]);
        }
        // One page is left, and the start is in use.
        assert_eq!(ring.place(2 * 4096), None);
        assert!(ring.place(4096).is_some());
        ring.tail_recorded(ring.tail_for(Some(2)));
        let slot = ring.place(2 * 4096).unwrap();
        assert_eq!((slot.position, slot.skipped), (0, 4096));
        ring.append(slot, 2 * 4096, [4; 16]);
        assert_eq!(ring.used(), (3 + 3 + 1 + 2) * 4096);
        assert_eq!(ring.head().sequence, 5);
        ring.tail_recorded(ring.tail_for(None));
        assert_eq!(ring.used(), 0);
    }
}
