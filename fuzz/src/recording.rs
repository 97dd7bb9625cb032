//! A recording of a driver's accesses: lines of JSON, which people exchange.
//!
//! Checked: a decoded recording equals itself after it is encoded and decoded again.

use ringside_model::record::text;

/// A recording.
pub fn recording(bytes: &[u8]) {
    let Ok(recording) = std::str::from_utf8(bytes) else {
        return;
    };
    match text::read(recording) {
        Ok(entries) => {
            let mut again = text::HEADER.to_owned();
            for entry in &entries {
                let line = text::line(entry);
                assert_eq!(
                    line.matches('\n').count(),
                    1,
                    "an entry is one line: {line:?}"
                );
                again.push_str(&line);
            }
            assert_eq!(text::read(&again).as_ref(), Ok(&entries));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
