//! Fuzz targets: every decoder of bytes that we did not write.
//!
//! A target is a function of bytes that panics if something is wrong: not only where the code
//! itself would, but also where what was decoded contradicts itself (see each target). `fuzz/run`
//! builds them with libFuzzer; `cargo test -p ringside-fuzz` replays the committed corpus through
//! the same functions with any compiler. See `docs/fuzzing.md`.
#![forbid(unsafe_code)]

mod admin;
mod completions;
mod configuration;
mod connection_manager;
mod control;
mod device;
mod events;
mod frames;
mod hostile;
mod interposer;
mod lan;
mod package;
mod perftest;
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
pub use control::control_answers;
pub use device::device;
pub use events::{asynchronous_events, completion_events};
pub use frames::frames;
pub use lan::lan;
pub use package::{package, package_file};
pub use perftest::perftest;
pub use recording::recording;
pub use requester::requester;
pub use responder::responder;
pub use sizing::{features, host_memory};
pub use vfio_user::{vfio_user_messages, vfio_user_server};

/// A target: panics if something is wrong.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its corpus and of its program.
pub const TARGETS: [(&str, Target); 21] = [
    ("admin_answers", admin_answers),
    ("admin_events", admin_events),
    ("asynchronous_events", asynchronous_events),
    ("completion_events", completion_events),
    ("completions", completions),
    ("configuration", configuration),
    ("connection_manager", connection_manager),
    ("control_answers", control_answers),
    ("device", device),
    ("features", features),
    ("frames", frames),
    ("host_memory", host_memory),
    ("lan", lan),
    ("package", package),
    ("package_file", package_file),
    ("perftest", perftest),
    ("recording", recording),
    ("requester", requester),
    ("responder", responder),
    ("vfio_user_messages", vfio_user_messages),
    ("vfio_user_server", vfio_user_server),
];
