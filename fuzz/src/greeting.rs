//! The greeting that the two processes of a bench exchange over a stream.
//!
//! Checked: a greeting that was read is the value of its own encoding, which is the bytes that were
//! read, but for the spelling of an IPv4 address; an error can be printed.

use ringside_rendezvous::{Greeting, MAX_REGIONS};

/// A greeting of the peer.
pub fn greeting(bytes: &[u8]) {
    let mut rest = bytes;
    match Greeting::read(&mut rest, 0) {
        Ok(greeting) => {
            assert!(greeting.regions.len() <= MAX_REGIONS);
            let encoded = greeting.encode().expect("what was read can be written");
            assert_eq!(encoded.len(), bytes.len() - rest.len(), "the length read");
            let again = Greeting::read(&mut &encoded[..], 0).expect("what was written can be read");
            assert_eq!(again, greeting);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
