//! Snapshots of an image, and what a clone was made of.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::{Image, text_of};
use crate::RadosError;
use crate::cluster::c_string;
use crate::error::check;
use crate::library::{ImageHandle, LinkedImage, LinkedSnapshot, SnapshotInfo};
use crate::pool::SnapshotContext;

/// A snapshot of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSnapshot {
    /// Its number, by which objects know it.
    pub id: u64,
    /// Size of the image then, in bytes.
    pub size: u64,
    /// Its name.
    pub name: String,
}

/// What a clone was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The pool's number.
    pub pool: i64,
    /// The namespace in it.
    pub namespace: String,
    /// The image's id, which stays when it is renamed.
    pub image_id: String,
    /// The snapshot's number.
    pub snapshot: u64,
    /// How many bytes, from the start, the clone still shares with it.
    pub overlap: u64,
}

impl Image {
    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<ImageSnapshot>, RadosError> {
        let mut most: c_int = 16;
        loop {
            let mut infos = vec![SnapshotInfo { id: 0, size: 0, name: ptr::null() }; most as usize];
            // SAFETY: the handle is this value's, and `most` is how many there is room for.
            let count = unsafe { (self.librbd.rbd_snap_list)(self.handle, infos.as_mut_ptr(), &mut most) };
            if count == -libc::ERANGE {
                continue; // `most` says now how many there are
            }
            let count = self.check(count, "listing the snapshots of")? as usize;
            let found = infos[..count].iter().map(|info| {
                // SAFETY: a string of librbd's, until the list is ended below.
                let name = unsafe { CStr::from_ptr(info.name) }.to_string_lossy().into_owned();
                ImageSnapshot { id: info.id, size: info.size, name }
            });
            let found = found.collect();
            if count > 0 {
                // SAFETY: frees the names, once.
                unsafe { (self.librbd.rbd_snap_list_end)(infos.as_mut_ptr()) };
            }
            return Ok(found);
        }
    }

    /// What writes must leave untouched now, from the image's header itself: the list of snapshots does not tell that one
    /// was removed.
    pub fn snapshot_context(&self) -> Result<SnapshotContext, RadosError> {
        /// Room for so many snapshots; an image has 510 at most.
        const MOST: usize = 4096;
        let header = format!("rbd_header.{}", self.id()?);
        let answer = self.pool.execute(&header, "rbd", "get_snapcontext", &[], 12 + 8 * MOST)?;
        parse_snapshot_context(&answer).ok_or_else(|| {
            let error = std::io::Error::from(std::io::ErrorKind::InvalidData);
            RadosError::new(format!("understanding the snapshots of image {}", self.name), error)
        })
    }

    /// Makes a snapshot. Watchers are asked to be quiet first: not from the thread that answers them.
    pub fn create_snapshot(&self, name: &str) -> Result<(), RadosError> {
        self.of_snapshot(self.librbd.rbd_snap_create, name, "making")
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&self, name: &str) -> Result<(), RadosError> {
        self.of_snapshot(self.librbd.rbd_snap_remove, name, "removing")
    }

    /// Makes the image what it was at a snapshot.
    pub fn roll_back(&self, name: &str) -> Result<(), RadosError> {
        self.of_snapshot(self.librbd.rbd_snap_rollback, name, "rolling back to")
    }

    /// As [`roll_back`](Self::roll_back); `progress` is told how much of how much is done, in objects.
    pub fn roll_back_with(
        &self,
        name: &str,
        mut progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> Result<(), RadosError> {
        let c_name = c_string(name.as_bytes(), "the snapshot's name")?;
        let argument = (&raw mut progress).cast();
        // SAFETY: the handle is this value's; name and callback outlive the call, which calls back one at a time.
        let result = unsafe {
            (self.librbd.rbd_snap_rollback_with_progress)(self.handle, c_name.as_ptr(), tell_progress, argument)
        };
        check(result, || format!("rolling back to snapshot {name} of image {}", self.name)).map(drop)
    }

    fn of_snapshot(
        &self,
        act: unsafe extern "C" fn(ImageHandle, *const c_char) -> c_int,
        name: &str,
        doing: &str,
    ) -> Result<(), RadosError> {
        let c_name = c_string(name.as_bytes(), "the snapshot's name")?;
        let _wait = self.begin_wait();
        // SAFETY: the handle is this value's, and the name outlives the call.
        let result = unsafe { act(self.handle, c_name.as_ptr()) };
        check(result, || format!("{doing} snapshot {name} of image {}", self.name)).map(drop)
    }

    /// Goes to the snapshot of this number, also if it is in the trash. Only where the image is open read-only.
    pub(crate) fn go_to_snapshot(&self, id: u64) -> Result<(), RadosError> {
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_snap_set_by_id)(self.handle, id) };
        check(result, || format!("opening snapshot {id} of image {}", self.name)).map(drop)
    }

    /// What it is a clone of, if it is one: now, or as of the snapshot that was opened.
    pub fn parent(&self) -> Result<Option<Parent>, RadosError> {
        // SAFETY: both are plain numbers and pointers, for which zeros are values.
        let (mut image, mut snapshot): (LinkedImage, LinkedSnapshot) = unsafe { std::mem::zeroed() };
        // SAFETY: the handle is this value's.
        let result = unsafe { (self.librbd.rbd_get_parent)(self.handle, &mut image, &mut snapshot) };
        match self.check(result, "looking for the parent of") {
            Err(error) if error.is_absent() => return Ok(None),
            other => other?,
        };
        // SAFETY: on success both are filled with strings of librbd's.
        let [namespace, image_id] = unsafe { [image.namespace, image.image_id].map(|text| text_of(text)) };
        let mut overlap = 0;
        // SAFETY: the handle is this value's; the structures are cleaned up once.
        let result = unsafe {
            (self.librbd.rbd_linked_image_spec_cleanup)(&mut image);
            (self.librbd.rbd_snap_spec_cleanup)(&mut snapshot);
            (self.librbd.rbd_get_overlap)(self.handle, &mut overlap)
        };
        self.check(result, "looking at")?;
        Ok(Some(Parent { pool: image.pool_id, namespace, image_id, snapshot: snapshot.id, overlap }))
    }
}

unsafe extern "C" fn tell_progress(done: u64, all: u64, progress: *mut c_void) -> c_int {
    // SAFETY: the pointer that was handed over, to a function that nobody else calls meanwhile.
    let progress = unsafe { &mut *progress.cast::<&mut (dyn FnMut(u64, u64) + Send)>() };
    progress(done, all);
    0
}

/// Sequence, count and ids, as Ceph encodes them.
fn parse_snapshot_context(bytes: &[u8]) -> Option<SnapshotContext> {
    let (sequence, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (ids, []) = rest.as_chunks() else { return None };
    let snapshots: Vec<u64> = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
    (u32::from_le_bytes(*count) as usize == snapshots.len())
        .then(|| SnapshotContext { sequence: u64::from_le_bytes(*sequence), snapshots })
}
