//! The fuzzer on `ringside_fuzz::completion_events`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::completion_events(bytes));
