//! The fuzzer on `ringside_fuzz::connection_requests`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::connection_requests(bytes));
