//! A header's metadata and its binary copies, as a hostile store may hand them out.
//!
//! libcryptsetup parses a header first; this is what we parse ourselves, without its help.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealdisk_header::{Description, HeaderCopy};

fuzz_target!(|data: &[u8]| {
    if let Ok(description) = Description::from_json(data) {
        assert_eq!(Description::from_json(data), Ok(description));
    }
    if let Ok(len) = HeaderCopy::len_of(data) {
        let parsed = HeaderCopy::parse(data);
        assert!(data.len() >= len || parsed.is_err());
    }
});
