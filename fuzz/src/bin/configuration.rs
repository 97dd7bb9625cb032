//! The fuzzer on `ringside_fuzz::configuration`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::configuration(bytes));
