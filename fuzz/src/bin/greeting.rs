//! The fuzzer on `ringside_fuzz::greeting`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::greeting(bytes));
