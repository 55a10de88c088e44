//! What holds a volume's bytes and knows nothing of keys: a file or block device, memory, a fault-injecting store.
//!
//! [`Store`] is the contract; `tests/store_contract.rs` runs one body of tests against every store.

mod buffer;
mod error;
mod store;

pub use buffer::{AlignedBuf, PAGE_SIZE};
pub use error::{Operation, StoreError};
pub use store::{ReadExtent, Store, WriteExtent};
