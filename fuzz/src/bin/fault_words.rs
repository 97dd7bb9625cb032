//! The fuzzer on `ringside_fuzz::fault_words`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::fault_words(bytes));
