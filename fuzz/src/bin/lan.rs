//! The fuzzer on `ringside_fuzz::lan`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::lan(bytes));
