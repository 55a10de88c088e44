//! What a clone shares with its parent, and with the parent's parent: objects that the image does not have itself.
//!
//! An object falls through as a whole, with its keys and with what lies behind the bytes that librbd knows of, until the
//! overlap ends: an image that was shrunk has given up for good what lay behind its end then.

use std::sync::{Arc, Mutex};

use super::kind::ImageError;
use super::settled::Settled;
use crate::RadosError;
use crate::image::{Features, Image, ObjectNames, Parent};
use crate::pool::{ObjectRead, Pool};

/// The parents of an image, and what is known of the objects that it shares with them.
pub(super) struct Parents {
    /// The nearest one.
    of: Parent,
    /// From the nearest to the last one.
    pub(super) layers: Arc<[Layer]>,
    pub(super) object_size: u64,
    /// Objects that a write may go to as they are.
    pub(super) settled: Settled,
    /// Held while objects are copied: what that takes in memory, it takes once.
    pub(super) copying: Mutex<()>,
}

/// A parent, as of the snapshot that was cloned.
pub(super) struct Layer {
    pub(super) data: Pool,
    pub(super) names: ObjectNames,
    /// Its size then, in bytes.
    size: u64,
    /// How much of it the image above shares, in bytes from the start. (Of the nearest, `Parents::of` knows better.)
    overlap: u64,
}

impl Parents {
    /// The parents of an image, or of the snapshot that it was opened at; none if it shares nothing.
    pub(super) fn of(image: &Image, pool: &Pool) -> Result<Option<Self>, ImageError> {
        let Some(parent) = image.parent()?.filter(|parent| parent.overlap > 0) else { return Ok(None) };
        let object_size = image.object_size()?;
        let mut layers = Vec::new();
        let mut next = Some(parent.clone());
        while let Some(parent) = next.filter(|parent| parent.overlap > 0) {
            let (layer, above) = Layer::open(image, pool, &parent, object_size)?;
            layers.push(layer);
            next = above;
        }
        Ok(Some(Self::new(parent, layers.into(), object_size)))
    }

    fn new(of: Parent, layers: Arc<[Layer]>, object_size: u64) -> Self {
        let settled = Settled::new(of.overlap.div_ceil(object_size));
        Self { of, layers, object_size, settled, copying: Mutex::new(()) }
    }

    /// The same parents after something has happened to the image; nothing is known of its objects. `None` if the parent
    /// is another one.
    pub(super) fn after_change(&self, now: &Parent) -> Option<Self> {
        let same = Parent { overlap: self.of.overlap, ..now.clone() } == self.of;
        same.then(|| Self::new(now.clone(), Arc::clone(&self.layers), self.object_size))
    }

    /// Whether any byte of the object may be shared.
    pub(super) fn cover(&self, object: u64) -> bool {
        self.reach(0, object) > 0
    }

    /// How many bytes of an object the image above a parent shares with it. All, also behind the object's usual size, where
    /// nothing of the object was ever cut off.
    pub(super) fn reach(&self, layer: usize, object: u64) -> u64 {
        let overlap = if layer == 0 { self.of.overlap } else { self.layers[layer].overlap };
        let inside = overlap.saturating_sub(object.saturating_mul(self.object_size));
        let whole = inside >= self.object_size || overlap >= self.layers[layer].size;
        if inside > 0 && whole { u64::MAX } else { inside }
    }

    /// Does reads again, in the parents, that found no object in the image; `numbers` tells which objects they are of.
    /// Those that find none anywhere stay as they were.
    pub(super) fn read_absent(&self, own: &Pool, names: &ObjectNames, numbers: &[u64], reads: &mut [ObjectRead<'_>]) {
        let mut absent: Vec<(u64, &mut ObjectRead<'_>)> = numbers
            .iter()
            .copied()
            .zip(reads)
            .filter(|(number, read)| is_absent(read) && self.cover(*number))
            .collect();
        self.read_layers(&mut absent);
        absent.retain(|(_, read)| is_absent(read));
        // If the parent is just being let go, its objects have been copied since, and may be gone where they were.
        again(own, names, u64::MAX, &mut absent);
    }

    /// As [`read_absent`](Self::read_absent), but only in the parents.
    pub(super) fn read_layers(&self, absent: &mut [(u64, &mut ObjectRead<'_>)]) {
        // What lies behind the end of one parent's share is out of reach of those behind it.
        let mut ends = vec![u64::MAX; absent.len()];
        for (index, layer) in self.layers.iter().enumerate() {
            let mut asked: Vec<&mut ObjectRead<'_>> = Vec::new();
            for ((number, read), end) in absent.iter_mut().zip(&mut ends) {
                *end = self.reach(index, *number).min(*end);
                if is_absent(read) && *end > 0 && redirect(read, &layer.names.name(*number), *end) {
                    asked.push(read);
                }
            }
            layer.data.read(asked);
        }
    }
}

/// Reads what is still absent from the objects of one image.
fn again(pool: &Pool, names: &ObjectNames, end: u64, absent: &mut [(u64, &mut ObjectRead<'_>)]) {
    let asked =
        absent.iter_mut().filter_map(|(number, read)| redirect(read, &names.name(*number), end).then_some(&mut **read));
    pool.read(asked.collect::<Vec<_>>());
}

/// Whether there is anything to be read of that object.
fn redirect(read: &mut ObjectRead<'_>, object: &str, end: u64) -> bool {
    match read.redirect(object, end) {
        Ok(()) => !read.is_empty(),
        Err(error) => {
            read.result = Err(error);
            false
        }
    }
}

/// Whether the object was looked for and not found.
pub(super) fn is_absent(read: &ObjectRead<'_>) -> bool {
    read.result.as_ref().is_err_and(RadosError::is_absent)
}

impl Layer {
    /// A parent of `child`, and what it is itself a clone of.
    fn open(
        child: &Image,
        pool: &Pool,
        parent: &Parent,
        object_size: u64,
    ) -> Result<(Self, Option<Parent>), ImageError> {
        let pool = Arc::new(pool.in_namespace(parent.pool, &parent.namespace)?);
        let image = Image::open_by_id(&pool, &parent.image_id)?;
        image.go_to_snapshot(parent.snapshot)?;
        let unsupported = |reason| Err(ImageError::Unsupported { image: child.name().to_owned(), reason });
        if image.features()?.contains(Features::MIGRATING) {
            return unsupported("shares objects with a parent that is being migrated; wait until that is committed");
        }
        if image.is_striped()? || image.object_size()? != object_size {
            return unsupported("shares objects with a parent that is cut up in another way; `rbd flatten` it first");
        }
        let layer = Self {
            data: image.data_pool()?.at_snapshot(parent.snapshot)?,
            names: image.object_names()?,
            size: image.size()?,
            overlap: parent.overlap,
        };
        Ok((layer, image.parent()?))
    }
}
