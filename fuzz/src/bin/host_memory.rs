//! The fuzzer on `ringside_fuzz::host_memory`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::host_memory(bytes));
