//! Many transfers at once on one file, through io_uring.

use std::io;
use std::sync::{Mutex, PoisonError};

use io_uring::{IoUring, opcode, squeue, types};

use crate::transfer::{Direction, Transfer};

/// Transfers in flight at once on one ring.
const DEPTH: u32 = 128;

fn entry(transfer: &Transfer, index: usize) -> squeue::Entry {
    let (fd, offset, memory) = (types::Fd(transfer.fd()), transfer.position(), transfer.memory());
    let entry = match (transfer.direction(), memory) {
        (Direction::Read, [one]) => {
            opcode::Read::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(offset).build()
        }
        (Direction::Write, [one]) => {
            opcode::Write::new(fd, one.iov_base.cast(), one.iov_len as u32).offset(offset).build()
        }
        (Direction::Read, many) => opcode::Readv::new(fd, many.as_ptr(), many.len() as u32).offset(offset).build(),
        (Direction::Write, many) => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32).offset(offset).build(),
    };
    entry.user_data(index as u64)
}

/// The kernel may still be writing to memory that the caller is about to free: there is no way back.
pub(crate) fn give_up(error: &io::Error) -> ! {
    eprintln!("sealdisk: io_uring stopped answering ({error}); giving up to keep memory safe");
    std::process::abort();
}

/// Rings that are lent out one per call, so that threads do not wait for one another.
#[derive(Default)]
pub(crate) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl Rings {
    /// A ring, or the kernel's reason why there is none (a container may forbid io_uring).
    pub(crate) fn lend(&self) -> io::Result<Lent<'_>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let ring = match idle {
            Some(ring) => ring,
            None => IoUring::builder().dontfork().build(DEPTH)?,
        };
        Ok(Lent { ring: Some(ring), rings: self })
    }
}

/// A borrowed ring; goes back when dropped.
pub(crate) struct Lent<'a> {
    ring: Option<IoUring>,
    rings: &'a Rings,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take() {
            self.rings.idle.lock().unwrap_or_else(PoisonError::into_inner).push(ring);
        }
    }
}

impl Lent<'_> {
    /// Carries out all transfers, in any order; short ones are continued. Returns the first error with its transfer's
    /// index once nothing is in flight any more.
    ///
    /// # Safety
    ///
    /// The memory of every transfer is valid for its length, and nothing else touches it during the call.
    pub(crate) unsafe fn transfer(mut self, transfers: &mut [Transfer]) -> Result<(), (usize, io::Error)> {
        let ring = self.ring.as_mut().expect("a ring is lent until it is dropped");
        let mut pending: Vec<usize> = (0..transfers.len()).rev().collect();
        let mut in_flight = 0;
        let mut first_error = None;
        while in_flight > 0 || (!pending.is_empty() && first_error.is_none()) {
            if first_error.is_none() {
                let mut queue = ring.submission();
                while in_flight < DEPTH as usize
                    && let Some(index) = pending.pop()
                {
                    // SAFETY: the caller vouches for the memory, and this call does not return while it is in flight.
                    if unsafe { queue.push(&entry(&transfers[index], index)) }.is_err() {
                        pending.push(index);
                        break;
                    }
                    in_flight += 1;
                }
            }
            // Few wake-ups: wait for all that is in flight unless more is to be submitted.
            let want = if pending.is_empty() { in_flight } else { 1 };
            match ring.submit_and_wait(want) {
                Ok(_) => {}
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(e) => give_up(&e),
            }
            for completion in ring.completion() {
                in_flight -= 1;
                let index = completion.user_data() as usize;
                let transfer = &mut transfers[index];
                match completion.result() {
                    0 => {
                        first_error.get_or_insert((index, io::ErrorKind::UnexpectedEof.into()));
                    }
                    n if n > 0 => {
                        transfer.advance(n as usize);
                        if !transfer.is_done() {
                            pending.push(index);
                        }
                    }
                    error if matches!(-error, libc::EINTR | libc::EAGAIN) => pending.push(index),
                    error => {
                        first_error.get_or_insert((index, io::Error::from_raw_os_error(-error)));
                    }
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}
