//! Faults as the control socket of a model and the command line take them.
//!
//! Checked: a fault that was read equals itself after it is written and read again; a refusal can
//! be printed.

use ringside_model::Fault;

/// A fault in words.
pub fn fault_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<Fault>() {
        Ok(fault) => {
            let written = fault.to_string();
            let again = written.parse::<Fault>();
            let again = again.unwrap_or_else(|error| panic!("{written:?}: {error}"));
            assert_eq!(again.to_string(), written);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
