//! Images that cannot be stores, and what helps.

use super::name::ImageName;
use crate::RadosError;
use crate::image::{Features, Image};

/// Why an image cannot be a store.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Ceph refused, or could not.
    #[error(transparent)]
    Rados(#[from] RadosError),
    /// Somebody else writes to it.
    #[error("image {image} is in use by {owner}; `rbd lock ls {image}` tells more")]
    Busy {
        /// The image.
        image: String,
        /// The address of who has it.
        owner: String,
    },
    /// It has a feature that writing beside librbd would make untrue.
    #[error(
        "image {image} has {features}, which would not know of what is written here; turn that off: `rbd feature disable {image} {features}`"
    )]
    Features {
        /// The image.
        image: String,
        /// What to turn off, in this order.
        features: String,
    },
    /// It is of a kind that is not supported.
    #[error("image {image} {reason}")]
    Unsupported {
        /// The image.
        image: String,
        /// What it is, and what to do.
        reason: &'static str,
    },
}

/// Refuses images that would be damaged, or misread.
pub(super) fn check_kind(image: &Image, name: &ImageName) -> Result<(), ImageError> {
    let unsupported = |reason| Err(ImageError::Unsupported { image: name.to_string(), reason });
    let features = image.features()?;
    if let Some(features) = to_disable(features) {
        return Err(ImageError::Features { image: name.to_string(), features });
    }
    if !features.contains(Features::EXCLUSIVE_LOCK) {
        return unsupported(
            "has no exclusive lock, so that two could write at once; `rbd feature enable IMAGE exclusive-lock` gives it one",
        );
    }
    if features.contains(Features::MIGRATING) {
        return unsupported("is being migrated; wait until that is committed");
    }
    if features.contains(Features::NON_PRIMARY) {
        return unsupported("is the copy of a mirror; `rbd mirror image promote` makes it the original");
    }
    if features.contains(Features::DIRTY_CACHE) {
        return unsupported("has newer data in the cache of another client; let that write it back");
    }
    if image.is_striped()? {
        return unsupported("is striped in another way than by objects; copy it with `rbd cp --stripe-count 1`");
    }
    Ok(())
}

/// The features that must go, in the order in which they can.
pub(super) fn to_disable(features: Features) -> Option<String> {
    let bad = [
        (Features::JOURNALING, "journaling"),
        (Features::FAST_DIFF, "fast-diff"),
        (Features::OBJECT_MAP, "object-map"),
    ];
    let found: Vec<&str> = bad.iter().filter(|(bad, _)| features.contains(*bad)).map(|(_, name)| *name).collect();
    (!found.is_empty()).then(|| found.join(" "))
}
