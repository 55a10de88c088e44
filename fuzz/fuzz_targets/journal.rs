//! A journal's parsers: whatever bytes lie there, they do not panic, and what parses is written the same way again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sealdisk_volume::parse_journal(bytes));
