//! What holds a volume's bytes and knows nothing of keys: a file or block device, memory, a fault-injecting store.
//!
//! [`Store`] is the contract; `tests/contract.rs` runs one body of tests against every store.

mod buffer;
mod crash;
mod device;
mod error;
mod fault;
mod file;
mod memory;
mod memory_objects;
mod objects;
mod read_queue;
mod store;
mod transfer;
mod uring;
mod uring_reads;

pub use buffer::{AlignedBuf, PAGE_SIZE};
pub use crash::{Choices, DurablePrefix};
pub use error::{Operation, StoreError};
pub use fault::{Event, Fault, FaultStore, History};
pub use file::{FileStore, OpenMode};
pub use memory::{Image, MemoryStore};
pub use memory_objects::{Crashes, MemoryObjects, ObjectImage};
pub use objects::{ObjectRead, ObjectStore, ObjectWrite, Step};
pub use read_queue::{DeferredReads, FinishedRead, ReadQueue};
pub use store::{ReadExtent, Store, WriteExtent};
