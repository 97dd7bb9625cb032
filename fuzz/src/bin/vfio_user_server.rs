//! The fuzzer on `ringside_fuzz::vfio_user_server`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringside_fuzz::vfio_user_server(bytes));
