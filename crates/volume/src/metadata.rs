//! What every sealed volume has beside its sectors, however it writes them: keys, superblock, map of objects, and the seals
//! that are kept in memory.

pub(crate) mod key_context;
pub(crate) mod object_map;
pub(crate) mod seal_cache;
pub(crate) mod size;
pub(crate) mod superblocks;
pub(crate) mod zones;
