//! The fuzzer on `ringside_fuzz::frames`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::frames(bytes));
