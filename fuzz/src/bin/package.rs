//! The fuzzer on `ringside_fuzz::package`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::package(bytes));
