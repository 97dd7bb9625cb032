//! Linux's drivers as witnesses: what they asked of the model, recorded, against the layouts that
//! driver and model share, and against what our driver asks.

mod differences;
mod layouts;
mod ours;

use ringside_model::record::Entry;
use ringside_model::record::text::read;

/// Recordings of Linux's drivers; their README says how they were made.
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
