//! The fuzzer on `ringside_fuzz::receive_descriptors`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::receive_descriptors(bytes));
