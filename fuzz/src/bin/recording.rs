//! The fuzzer on `ringside_fuzz::recording`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::recording(bytes));
