//! The configuration: schema, defaults, validation.
//!
//! A configuration is a TOML file with one table for each section of [`Config`]. Every key has a
//! default, so an empty file is a valid one; an unknown key is a fault, so that a misspelt key does
//! not silently mean its default. All faults of a file are reported at once, each with its line and
//! column, the key, the value and what is allowed.
//!
//! `ringside.toml` beside this crate's manifest is the commented sample; a test holds it equal to
//! the defaults.
//!
//! ```
//! use ringside_config::Config;
//!
//! let config = Config::from_toml_str("[rdma]\nqueue_pairs = 16\n")?;
//! assert_eq!(config.rdma.queue_pairs, 16);
//! assert_eq!(config.rdma.completion_queues, Config::default().rdma.completion_queues);
//!
//! let error = Config::from_toml_str("[rdma]\nqueue_pairs = 0\n").unwrap_err();
//! assert!(error.to_string().contains("line 2, column 15: rdma.queue_pairs = 0"));
//! # Ok::<(), ringside_config::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod choice;
mod fault;
mod load;
mod log_format;
mod network;
mod sections;
mod validate;

pub use choice::{Core, HugePages, LinkSpeed, NumaNode, PathMtu, Polling, Protocol};
pub use fault::{ConfigError, Fault, Position};
pub use log_format::{LogFormat, LogFormatError};
pub use network::{
    AddressFault, LocalAddress, Within, entry_towards, is_link_local, is_of_a_host, nearest,
    towards,
};
pub use ringside_bus::DeviceAddress;
pub use sections::{
    Config, DdpSection, DeadlinesSection, DeviceSection, HousekeepingSection, LinkSection,
    MAX_FUNCTIONS, MemorySection, ModelSection, NetworkSection, RdmaSection, WorkerSection,
};

/// The commented sample, as in the source tree. It holds every key at its default.
pub const SAMPLE: &str = include_str!("../ringside.toml");

/// Samples for three kinds of use: name and text. Each holds only the values that differ from the
/// defaults.
pub const SAMPLES: [(&str, &str); 3] = [
    ("appliance", include_str!("../samples/appliance.toml")),
    ("benchmark", include_str!("../samples/benchmark.toml")),
    ("low-latency", include_str!("../samples/low-latency.toml")),
];

/// The JSON schema of a configuration, for editors and other tools: keys, words and ranges.
/// Conditions between keys are checked by [`Config::validate`] only.
#[must_use]
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(Config);
    // A schema is plain JSON and can always be serialized.
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

#[cfg(test)]
mod tests;
