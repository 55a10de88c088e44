//! How a volume is called on the command line.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use sealdisk_rados::ImageName;

/// What an image's name begins with.
const SCHEME: &str = "rbd:";

/// A file, a block device, or an image on Ceph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeName {
    /// A path, whatever lies there.
    Path(PathBuf),
    /// `rbd:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`. A file that is called like this is `./rbd:...`.
    Image(ImageName),
}

/// A name that begins as an image's does and does not go on as one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "an image is called rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE, or with @SNAPSHOT behind it; a file of this name is ./{0}"
)]
pub struct BadImageName(String);

impl VolumeName {
    /// Reads a name as it was typed.
    pub fn parse(typed: OsString) -> Result<Self, BadImageName> {
        let Some(name) = typed.to_str().and_then(|typed| typed.strip_prefix(SCHEME)) else {
            return Ok(Self::Path(typed.into()));
        };
        image(name).map(Self::Image).ok_or_else(|| BadImageName(format!("{SCHEME}{name}")))
    }

    /// The name of what is attached, if its user chose none: the file's without its extension, or the image's, with its
    /// snapshot's.
    pub fn stem(&self) -> String {
        match self {
            Self::Path(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Image(ImageName { image, snapshot: None, .. }) => image.clone(),
            Self::Image(ImageName { image, snapshot: Some(snapshot), .. }) => format!("{image}-{snapshot}"),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Image(name) => write!(f, "{SCHEME}{name}"),
        }
    }
}

/// How clap reads it.
pub fn volume_name() -> impl clap::builder::TypedValueParser<Value = VolumeName> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(VolumeName::parse)
}

fn image(name: &str) -> Option<ImageName> {
    let (place, last) = name.rsplit_once('/')?;
    let (pool, namespace) = place.split_once('/').map_or((place, None), |(pool, namespace)| (pool, Some(namespace)));
    let (image, snapshot) = last.split_once('@').map_or((last, None), |(image, snapshot)| (image, Some(snapshot)));
    let parts = [Some(pool), namespace, Some(image), snapshot];
    let is_name = |part: &str| !part.is_empty() && !part.contains(['/', '@', '\0']);
    parts.into_iter().flatten().all(is_name).then(|| ImageName {
        pool: pool.to_owned(),
        namespace: namespace.unwrap_or_default().to_owned(),
        image: image.to_owned(),
        snapshot: snapshot.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_called_as_rbd_calls_them() {
        for (typed, pool, namespace, image, snapshot) in [
            ("rbd:p/i", "p", "", "i", None),
            ("rbd:p/n/i", "p", "n", "i", None),
            ("rbd:p/i@s", "p", "", "i", Some("s")),
            ("rbd:p.x-1/n/i.2@s 3", "p.x-1", "n", "i.2", Some("s 3")),
        ] {
            let name = VolumeName::parse(typed.into()).unwrap();
            let VolumeName::Image(found) = &name else { panic!("{typed}") };
            assert_eq!((&*found.pool, &*found.namespace, &*found.image), (pool, namespace, image), "{typed}");
            assert_eq!(found.snapshot.as_deref(), snapshot, "{typed}");
            assert_eq!(name.to_string(), typed);
        }
        for typed in
            ["rbd:", "rbd:i", "rbd:p/", "rbd:/i", "rbd:p//i", "rbd:p/n/m/i", "rbd:p/i@", "rbd:p/i@s@t", "rbd:p@s/i"]
        {
            assert_eq!(VolumeName::parse(typed.into()), Err(BadImageName(typed.into())));
        }
    }

    #[test]
    fn everything_else_is_a_path() {
        for typed in ["v.vol", "./rbd:p/i", "/dev/sdb", "rbd", "RBD:p/i", "x/rbd:p"] {
            assert_eq!(VolumeName::parse(typed.into()), Ok(VolumeName::Path(typed.into())));
        }
    }
}
