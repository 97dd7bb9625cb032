//! The fuzzer on `ringside_fuzz::device`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::device(bytes));
