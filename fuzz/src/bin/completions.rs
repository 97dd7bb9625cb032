//! The fuzzer on `ringside_fuzz::completions`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::completions(bytes));
