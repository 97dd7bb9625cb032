//! The fuzzer on `ringside_fuzz::neighbours`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::neighbours(bytes));
