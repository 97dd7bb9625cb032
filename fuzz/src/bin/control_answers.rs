//! The fuzzer on `ringside_fuzz::control_answers`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::control_answers(bytes));
