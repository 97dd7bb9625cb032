//! The fuzzer on `ringside_fuzz::connection_manager`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::connection_manager(bytes));
