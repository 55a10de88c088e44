//! Which image.

/// Which image, or snapshot of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// The pool of its header.
    pub pool: String,
    /// The namespace in the pool; empty for none.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// The snapshot, which can only be read.
    pub snapshot: Option<String>,
}

impl std::fmt::Display for ImageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.image)?;
        self.snapshot.iter().try_for_each(|snapshot| write!(f, "@{snapshot}"))
    }
}
