//! What happens to an image while it is open.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Image;
use crate::RadosError;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageEvent {
    /// Somebody is about to make a snapshot, and waits until [`Watch::is_quiet`] says that no write is in flight.
    Quiesce,
    /// The snapshot has been made, or not: writes may go on, with the snapshot context of now.
    Unquiesce,
    /// Something of the image has changed: its size, features, snapshots, parent, or who has the lock.
    Changed,
}

/// What has happened to an image and nobody has asked for yet.
///
/// librbd calls back on threads of its own, on which it must not be called itself: it would wait for itself. So its calls
/// are noted, and answered by whoever asks.
pub struct Watch {
    image: Arc<Image>,
    events: Box<Events>,
    changes: Option<u64>,
    quiesces: Option<u64>,
}

#[derive(Default)]
struct Events {
    waiting: Mutex<VecDeque<ImageEvent>>,
    came: Condvar,
}

impl Events {
    fn note(&self, event: ImageEvent) {
        let mut waiting = self.lock();
        // One change not yet looked at stands for many.
        if waiting.back() != Some(&ImageEvent::Changed) || event != ImageEvent::Changed {
            waiting.push_back(event);
        }
        self.came.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<ImageEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn quiesce(events: *mut c_void) {
    // SAFETY: the pointer that was registered, to events that live until after the watch has ended.
    unsafe { &*events.cast::<Events>() }.note(ImageEvent::Quiesce);
}

unsafe extern "C" fn unquiesce(events: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*events.cast::<Events>() }.note(ImageEvent::Unquiesce);
}

unsafe extern "C" fn changed(events: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*events.cast::<Events>() }.note(ImageEvent::Changed);
}

impl Watch {
    /// Begins to watch an image that is open for writing. (One that is open read-only is told of nothing.)
    pub fn new(image: &Arc<Image>) -> Result<Self, RadosError> {
        let librbd = image.librbd;
        let mut watch = Self { image: Arc::clone(image), events: Box::default(), changes: None, quiesces: None };
        let mut handle = 0;
        let events = std::ptr::from_ref(&*watch.events).cast_mut().cast::<c_void>();
        // SAFETY: the handle lives as long as the watch, and the events until the watch has ended, see `drop`.
        let result = unsafe { (librbd.rbd_update_watch)(image.handle, &mut handle, changed, events) };
        image.check(result, "watching")?;
        watch.changes = Some(handle);
        // SAFETY: as above.
        let result = unsafe { (librbd.rbd_quiesce_watch)(image.handle, quiesce, unquiesce, events, &mut handle) };
        image.check(result, "watching")?;
        watch.quiesces = Some(handle);
        Ok(watch)
    }

    /// Waits for something to happen, so long at most.
    pub fn next(&self, patience: Duration) -> Option<ImageEvent> {
        let waiting = self.events.lock();
        let waited = self.events.came.wait_timeout_while(waiting, patience, |waiting| waiting.is_empty());
        waited.unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }

    /// Answers [`ImageEvent::Quiesce`]: no write is in flight, and none will be until [`ImageEvent::Unquiesce`].
    pub fn is_quiet(&self) {
        let Some(handle) = self.quiesces else { return };
        // SAFETY: the image's handle lives as long as the watch.
        unsafe { (self.image.librbd.rbd_quiesce_complete)(self.image.handle, handle, 0) };
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let librbd = self.image.librbd;
        if let Some(handle) = self.quiesces {
            // SAFETY: ends the watch once; librbd waits for calls in progress, so the events may go afterwards.
            unsafe { (librbd.rbd_quiesce_unwatch)(self.image.handle, handle) };
        }
        if let Some(handle) = self.changes {
            // SAFETY: as above.
            unsafe { (librbd.rbd_update_unwatch)(self.image.handle, handle) };
        }
    }
}
