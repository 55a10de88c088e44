//! A store of objects in memory, which remembers what was done to it: for tests, and for the states that a crash can leave.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use sealdisk_units::{OBJECT_SIZE, StoreRange};

use crate::{
    Choices, Image, ObjectRead, ObjectStore, ObjectWrite, Operation, ReadExtent, Step, Store, StoreError, WriteExtent,
};

/// Room in an object of any store.
const MOST: u64 = 2 * OBJECT_SIZE;

/// All objects at one moment. Copies share what is the same.
#[derive(Clone, Default)]
pub struct ObjectImage {
    objects: BTreeMap<u64, Object>,
}

#[derive(Clone)]
struct Object {
    bytes: Image,
    keys: BTreeMap<u32, Vec<u8>>,
}

impl Default for Object {
    fn default() -> Self {
        Self { bytes: Image::new(MOST), keys: BTreeMap::new() }
    }
}

/// A step that owns its bytes.
#[derive(Clone)]
enum Done {
    Clear,
    Write(u64, Vec<u8>),
    Zero(u64, u64),
    Set(u32, Vec<u8>),
    Remove,
}

impl Done {
    fn of(step: &Step<'_>) -> Self {
        match step {
            Step::Clear => Self::Clear,
            Step::Write(extent) => Self::Write(extent.offset, extent.buf.to_vec()),
            Step::Zero { offset, len } => Self::Zero(*offset, *len),
            Step::Set { key, value } => Self::Set(*key, value.to_vec()),
            Step::Remove => Self::Remove,
        }
    }
}

/// What one call did: a change for each object.
type Call = Vec<(u64, Vec<Done>)>;

/// Decides whether a change of an object fails.
type Fault = Box<dyn Fn(u64) -> Option<io::ErrorKind> + Send + Sync>;

/// The store.
pub struct MemoryObjects {
    size: AtomicU64,
    now: RwLock<ObjectImage>,
    start: ObjectImage,
    calls: Mutex<Vec<Call>>,
    object_size: u64,
    keys: bool,
    fault: RwLock<Option<Fault>>,
    read_fault: RwLock<Option<Fault>>,
}

impl ObjectImage {
    fn apply(&mut self, object: u64, steps: &[Done]) {
        for step in steps {
            if matches!(step, Done::Remove) {
                self.objects.remove(&object);
                continue;
            }
            let is = self.objects.entry(object).or_default();
            match step {
                // A real store may keep the keys, and whoever cannot bear that must not rely on it.
                Done::Clear => is.bytes = Image::new(MOST),
                Done::Write(offset, bytes) => is.bytes.write(*offset, bytes),
                Done::Zero(offset, len) => is.bytes.zero(StoreRange::new(*offset, *len)),
                Done::Set(key, value) => drop(is.keys.insert(*key, value.clone())),
                Done::Remove => {}
            }
        }
    }

    /// The numbers of the objects that exist.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.objects.keys().copied()
    }

    /// Bytes of an object, zeros where it has none.
    pub fn bytes(&self, object: u64, offset: u64, buf: &mut [u8]) {
        match self.objects.get(&object) {
            Some(is) => is.bytes.read(offset, buf),
            None => buf.fill(0),
        }
    }
}

/// See [`MemoryObjects::crashes`].
pub struct Crashes {
    image: ObjectImage,
    history: Vec<Call>,
    done: usize,
}

impl Crashes {
    /// As [`MemoryObjects::crash`], with no fewer `calls` than the last time.
    pub fn at(&mut self, calls: usize, choices: &mut dyn Choices) -> ObjectImage {
        for (object, steps) in self.history[self.done..calls].iter().flatten() {
            self.image.apply(*object, steps);
        }
        self.done = calls;
        let mut image = self.image.clone();
        for (object, steps) in self.history.get(calls).into_iter().flatten() {
            if choices.below(2) == 0 {
                image.apply(*object, steps);
            }
        }
        image
    }
}

impl MemoryObjects {
    /// `size` bytes of nothing, in objects of `object_size` bytes (8 MiB at most), with or without keys.
    pub fn new(size: u64, object_size: u64, keys: bool) -> Self {
        Self::from_image(ObjectImage::default(), size, object_size, keys)
    }

    /// A store as it was.
    pub fn from_image(image: ObjectImage, size: u64, object_size: u64, keys: bool) -> Self {
        Self {
            size: AtomicU64::new(size),
            object_size,
            now: RwLock::new(image.clone()),
            start: image,
            calls: Mutex::default(),
            keys,
            fault: RwLock::default(),
            read_fault: RwLock::default(),
        }
    }

    /// All objects as they are.
    pub fn image(&self) -> ObjectImage {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the store was changed.
    pub fn call_count(&self) -> usize {
        self.calls().len()
    }

    /// Crashes of what was done so far, the earlier ones first.
    pub fn crashes(&self) -> Crashes {
        Crashes { image: self.start.clone(), history: self.calls().clone(), done: 0 }
    }

    /// What a crash can leave: all of the first `calls` changes, and of the next one, whose objects were on their way at
    /// once, any part.
    pub fn crash(&self, calls: usize, choices: &mut dyn Choices) -> ObjectImage {
        self.crashes().at(calls, choices)
    }

    /// From now on, changes of an object fail for which this gives an error.
    pub fn fail(&self, fault: impl Fn(u64) -> Option<io::ErrorKind> + Send + Sync + 'static) {
        *self.fault.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(fault));
    }

    /// From now on, reads of an object fail for which this gives an error.
    pub fn fail_reads(&self, fault: impl Fn(u64) -> Option<io::ErrorKind> + Send + Sync + 'static) {
        *self.read_fault.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(fault));
    }

    fn check_readable(&self, object: u64, operation: Operation) -> Result<(), StoreError> {
        let fault = self.read_fault.read().unwrap_or_else(PoisonError::into_inner);
        fault.as_ref().and_then(|fault| fault(object)).map_or(Ok(()), |kind| Err(StoreError::new(operation, kind)))
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        *self.read_fault.write().unwrap_or_else(PoisonError::into_inner) = None;
        *self.fault.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, changes: Call, operation: Operation) -> Vec<Result<(), StoreError>> {
        let mut call = Call::new();
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let fault = self.fault.read().unwrap_or_else(PoisonError::into_inner);
        let results = changes.into_iter().map(|(object, steps)| {
            let kind = fault.as_ref().and_then(|fault| fault(object));
            if let Some(kind) = kind {
                return Err(StoreError::new(operation, kind));
            }
            if !self.keys && steps.iter().any(|step| matches!(step, Done::Set(..))) {
                return Err(StoreError::new(operation, io::ErrorKind::Unsupported));
            }
            now.apply(object, &steps);
            call.push((object, steps));
            Ok(())
        });
        let results = results.collect();
        self.calls().push(call);
        results
    }

    /// A range by object: its number, where in it, and how many bytes.
    fn pieces(&self, range: StoreRange) -> impl Iterator<Item = (u64, u64, usize)> + use<> {
        let object_size = self.object_size;
        let (mut at, end) = (range.offset, range.end());
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let (object, offset) = (at / object_size, at % object_size);
                let len = (object_size - offset).min(end - at);
                at += len;
                (object, offset, len as usize)
            })
        })
    }

    /// The object's share of the store.
    fn whole(&self, object: u64) -> StoreRange {
        StoreRange::new(object * self.object_size, self.object_size)
    }

    fn check_inside(&self, operation: Operation, range: StoreRange) -> Result<(), StoreError> {
        match range.end() <= self.size.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(StoreError::new(operation, io::ErrorKind::UnexpectedEof)),
        }
    }
}

impl Store for MemoryObjects {
    fn size(&self) -> Result<u64, StoreError> {
        Ok(self.size.load(Ordering::SeqCst))
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        let old = self.size.swap(size, Ordering::SeqCst);
        let end = size.div_ceil(self.object_size);
        let gone: Vec<u64> = self.image().numbers().filter(|object| *object >= end).collect();
        let mut call: Call = gone.into_iter().map(|object| (object, vec![Done::Remove])).collect();
        let tail = size % self.object_size;
        if size < old && tail > 0 {
            call.push((size / self.object_size, vec![Done::Zero(tail, MOST - tail)]));
        }
        self.change(call, Operation::Resize).into_iter().collect()
    }

    fn read(&self, extents: &mut [ReadExtent<'_>]) -> Result<(), StoreError> {
        for extent in extents {
            let range = extent.range();
            self.check_inside(Operation::Read(range), range)?;
            let mut rest = &mut *extent.buf;
            for (object, offset, len) in self.pieces(range) {
                let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
                rest = after;
                self.check_readable(object, Operation::Read(range))?;
                self.now.read().unwrap_or_else(PoisonError::into_inner).bytes(object, offset, part);
            }
        }
        Ok(())
    }

    fn write(&self, extents: &[WriteExtent<'_>]) -> Result<(), StoreError> {
        let mut changes: BTreeMap<u64, Vec<Done>> = BTreeMap::new();
        let Some(first) = extents.first() else { return Ok(()) };
        let operation = Operation::Write(first.range());
        for extent in extents {
            self.check_inside(Operation::Write(extent.range()), extent.range())?;
            let mut rest = extent.buf;
            for (object, offset, len) in self.pieces(extent.range()) {
                let (part, after) = rest.split_at(len);
                rest = after;
                changes.entry(object).or_default().push(Done::Write(offset, part.to_vec()));
            }
        }
        self.change(changes.into_iter().collect(), operation).into_iter().collect()
    }

    fn zero(&self, range: StoreRange) -> Result<(), StoreError> {
        self.check_inside(Operation::Zero(range), range)?;
        let step = |(object, offset, len): (u64, u64, usize)| match len as u64 {
            len if len == self.object_size => (object, vec![Done::Remove]),
            len => (object, vec![Done::Zero(offset, len)]),
        };
        self.change(self.pieces(range).map(step).collect(), Operation::Zero(range)).into_iter().collect()
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_atomicity(&self) -> u32 {
        self.object_size as u32
    }

    fn objects(&self) -> Option<&dyn ObjectStore> {
        Some(self)
    }

    fn object_size(&self) -> Option<u64> {
        Some(self.object_size)
    }

    fn is_allocated(&self, range: StoreRange) -> Result<bool, StoreError> {
        let image = self.image();
        Ok(self.pieces(range).any(|(object, ..)| image.objects.contains_key(&object)))
    }
}

impl ObjectStore for MemoryObjects {
    fn read_objects(&self, reads: &mut [ObjectRead<'_>]) {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        for read in reads {
            let operation = Operation::Read(self.whole(read.object));
            read.result = self.check_readable(read.object, operation);
            if read.result.is_err() {
                continue;
            }
            for extent in &mut read.extents {
                now.bytes(read.object, extent.offset, extent.buf);
            }
            let keys = now.objects.get(&read.object).map(|is| &is.keys);
            let found = |key: &u32| Some((*key, keys?.get(key)?.clone()));
            read.values = read.keys.iter().filter_map(found).collect();
        }
    }

    fn write_objects(&self, writes: &mut [ObjectWrite<'_>]) {
        if writes.is_empty() {
            return;
        }
        let operation = Operation::Write(self.whole(writes[0].object));
        let changes = writes.iter().map(|write| (write.object, write.steps.iter().map(Done::of).collect())).collect();
        for (write, result) in writes.iter_mut().zip(self.change(changes, operation)) {
            write.result = result;
        }
    }

    fn has_keys(&self) -> Result<bool, StoreError> {
        Ok(self.keys)
    }
}
