//! The fuzzer on `ringside_fuzz::perftest`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::perftest(bytes));
