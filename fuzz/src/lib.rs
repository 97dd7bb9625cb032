//! Fuzz targets: every decoder of bytes from outside.
//!
//! A target is a function of bytes that panics on a fault: a fault of the code itself, or a decoded
//! value that contradicts itself (see each target). `fuzz/run` builds the targets with libFuzzer;
//! `cargo test -p ringside-fuzz` replays the committed corpus through the same functions with any
//! compiler. See `docs/fuzzing.md`.
#![forbid(unsafe_code)]

mod admin;
mod completions;
mod configuration;
mod connection_manager;
mod connection_requests;
mod control;
mod device;
mod events;
mod fault_words;
mod frames;
mod greeting;
mod hostile;
mod interposer;
mod lan;
mod neighbours;
mod package;
mod perftest;
mod received;
mod recording;
mod requester;
mod responder;
mod sizing;
mod source;
mod vfio_user;

pub use admin::{admin_answers, admin_events};
pub use completions::completions;
pub use configuration::configuration;
pub use connection_manager::connection_manager;
pub use connection_requests::connection_requests;
pub use control::control_answers;
pub use device::device;
pub use events::{asynchronous_events, completion_events};
pub use fault_words::fault_words;
pub use frames::frames;
pub use greeting::greeting;
pub use lan::lan;
pub use neighbours::neighbours;
pub use package::{package, package_file};
pub use perftest::perftest;
pub use received::receive_descriptors;
pub use recording::recording;
pub use requester::requester;
pub use responder::responder;
pub use sizing::{features, host_memory};
pub use vfio_user::{vfio_user_messages, vfio_user_server};

/// A target: panics on a fault.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its corpus and of its program.
pub const TARGETS: [(&str, Target); 26] = [
    ("admin_answers", admin_answers),
    ("admin_events", admin_events),
    ("asynchronous_events", asynchronous_events),
    ("completion_events", completion_events),
    ("completions", completions),
    ("configuration", configuration),
    ("connection_manager", connection_manager),
    ("connection_requests", connection_requests),
    ("control_answers", control_answers),
    ("device", device),
    ("fault_words", fault_words),
    ("features", features),
    ("frames", frames),
    ("greeting", greeting),
    ("host_memory", host_memory),
    ("lan", lan),
    ("neighbours", neighbours),
    ("package", package),
    ("package_file", package_file),
    ("perftest", perftest),
    ("receive_descriptors", receive_descriptors),
    ("recording", recording),
    ("requester", requester),
    ("responder", responder),
    ("vfio_user_messages", vfio_user_messages),
    ("vfio_user_server", vfio_user_server),
];
