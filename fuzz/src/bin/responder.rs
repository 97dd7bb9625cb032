//! The fuzzer on `ringside_fuzz::responder`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::responder(bytes));
