//! The `sealdisk` binary.
fn main() {}
