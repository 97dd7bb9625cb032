//! The fuzzer on `ringside_fuzz::admin_events`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::admin_events(bytes));
