//! The fuzzer on `ringside_fuzz::features`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::features(bytes));
