//! The fuzzer on `ringside_fuzz::requester`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::requester(bytes));
