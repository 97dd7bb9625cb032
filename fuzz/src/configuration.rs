//! The configuration file: any text gives a configuration or faults with positions.
//!
//! Checked: a configuration that was read is valid, and reads as itself after it is written; a
//! refusal has 1 to 50 faults, each in a line of the text, and can be printed.

use ringside_config::{Config, ConfigError};

/// A configuration file.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Config::from_toml_str(text) {
        Ok(config) => {
            config.validate().expect("what was read is valid");
            let written = config
                .to_toml_string()
                .expect("what is valid can be written");
            let again = Config::from_toml_str(&written).expect("what was written can be read");
            assert_eq!(
                again.to_toml_string().expect("and written again"),
                written,
                "nothing is lost"
            );
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let ConfigError::Invalid { faults, .. } = error else {
                panic!("a text is neither unreadable nor too long: {error}");
            };
            assert!((1..=50).contains(&faults.len()), "{} faults", faults.len());
            let lines = text.split('\n').count();
            for fault in faults {
                assert!(!fault.to_string().is_empty());
                if let Some(place) = fault.position {
                    assert!((1..=lines).contains(&place.line), "{fault}");
                    assert!((1..=text.len() + 1).contains(&place.column), "{fault}");
                }
            }
        }
    }
}
