//! Linux's drivers as witnesses: their recorded commands to the model, compared with the layouts
//! that driver and model share, and with the commands of our driver.

mod differences;
mod layouts;
mod ours;

use ringside_model::record::Entry;
use ringside_model::record::text::read;

/// Recordings of Linux's drivers; their README describes the recording.
const RECORDED: &[(&str, &str)] = &[
    (
        "traffic",
        include_str!("../../vectors/recorded/traffic.jsonl"),
    ),
    (
        "package",
        include_str!("../../vectors/recorded/package.jsonl"),
    ),
];

fn recorded() -> Vec<Entry> {
    let files = RECORDED
        .iter()
        .map(|(name, text)| read(text).unwrap_or_else(|error| panic!("{name}: {error}")));
    files.collect::<Vec<_>>().concat()
}
