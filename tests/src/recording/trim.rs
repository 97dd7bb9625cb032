//! Recordings small enough to keep.

use super::describe;
use ringside_model::record::text::admin_opcode;
use ringside_model::record::{Entry, Event};
use ringside_spec::lan::admin::Opcode;
use std::collections::HashSet;

/// Returns the entries of one function, each once. Entries that differ from an earlier one only in
/// addresses, in numbers of the device or in random values are left out. The bytes of a downloaded
/// package are left out too: they belong to the vendor.
#[must_use]
pub fn trim(entries: &[Entry], function: usize) -> Vec<Entry> {
    let mut seen = HashSet::new();
    let own = entries.iter().filter(|entry| entry.function == function);
    let first = own.cloned().map(without_package).filter(|entry| {
        let key = match (&entry.event, describe(entry)) {
            (_, Some(described)) => format!("{described:?}"),
            (other, None) => format!("{other:?}"),
        };
        seen.insert(key)
    });
    first.collect()
}

fn without_package(mut entry: Entry) -> Entry {
    if let Event::Admin(command) = &mut entry.event
        && admin_opcode(&command.before) == Opcode::DownloadPackage
    {
        command.sent.clear();
        command.answered.clear();
    }
    entry
}
