//! Stores of objects that change as a whole.

use crate::{ReadExtent, Store, StoreError, WriteExtent};

/// What is to be read of one object at one moment.
pub struct ObjectRead<'a> {
    /// The object's number: counted from the store's first byte on, [`Store::object_size`] bytes each.
    pub object: u64,
    /// Bytes of the object; offsets count from its start. What was never written is zeros.
    pub extents: Vec<ReadExtent<'a>>,
    /// Keys whose values are wanted.
    pub keys: Vec<u32>,
    /// The values of those that are there, in any order.
    pub values: Vec<(u32, Vec<u8>)>,
    /// How it went; set by the store.
    pub result: Result<(), StoreError>,
}

impl ObjectRead<'_> {
    /// Nothing yet, of this object.
    pub fn new(object: u64) -> Self {
        Self { object, extents: Vec::new(), keys: Vec::new(), values: Vec::new(), result: Ok(()) }
    }
}

/// One part of a change, carried out in order.
#[derive(Clone)]
pub enum Step<'a> {
    /// The object begins anew, with no bytes. (Keys may be left.)
    Clear,
    /// Bytes of the object; offsets count from its start.
    Write(WriteExtent<'a>),
    /// These bytes become zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// A key has this value.
    Set {
        /// The key.
        key: u32,
        /// The value.
        value: &'a [u8],
    },
    /// The object exists no longer.
    Remove,
}

/// A change of one object, which happens as a whole or not at all.
pub struct ObjectWrite<'a> {
    /// The object's number.
    pub object: u64,
    /// What to do, in this order.
    pub steps: Vec<Step<'a>>,
    /// How it went; set by the store. `Ok`: it is durable.
    pub result: Result<(), StoreError>,
}

impl<'a> ObjectWrite<'a> {
    /// This change of this object.
    pub fn new(object: u64, steps: Vec<Step<'a>>) -> Self {
        Self { object, steps, result: Ok(()) }
    }
}

/// A store whose objects change as a whole.
///
/// Obligations beyond those of [`Store`]:
///
/// * A read sees an object as it is between two changes, never in the midst of one.
/// * When a change is `Ok` it is durable. One that failed has not happened, unless the error
///   [is final](StoreError::is_final).
/// * Changes of different objects in one call are all in flight at once: a crash leaves any subset of them.
/// * What the methods of [`Store`] write is durable when they return, and of one object it happens as a whole.
pub trait ObjectStore: Store {
    /// Reads objects, as many as possible at once. An object that does not exist has zeros and no keys.
    fn read_objects(&self, reads: &mut [ObjectRead<'_>]);

    /// Changes objects, as many as possible at once; no object twice in one call.
    fn write_objects(&self, writes: &mut [ObjectWrite<'_>]);

    /// Whether objects can have keys. Asked before keys are relied upon, of a store that may be written.
    fn has_keys(&self) -> Result<bool, StoreError>;

    /// Whether some objects are another store's until they are changed here. Of those, only what lies in their share of the
    /// store's bytes can be relied upon.
    fn shares_objects(&self) -> bool {
        false
    }
}
