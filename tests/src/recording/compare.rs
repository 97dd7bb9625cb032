//! The requests in which two drivers differ.

use super::{Described, Value, describe};
use ringside_model::record::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Values that are shown of a set at most.
const SHOWN: usize = 6;

/// Bytes that are shown of a value at most.
const SHOWN_BYTES: usize = 12;

/// The actions of one of the two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Never sends it.
    NotSent,
    /// Asks it.
    Sent,
    /// The values of a field.
    Values(BTreeSet<Value>),
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = match self {
            Self::NotSent => return write!(formatter, "not sent"),
            Self::Sent => return write!(formatter, "sent"),
            Self::Values(values) if values.is_empty() => return write!(formatter, "no field"),
            Self::Values(values) => values,
        };
        let shown: Vec<_> = values.iter().take(SHOWN).map(short).collect();
        write!(formatter, "{}", shown.join(", "))?;
        match values.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(formatter, " and {more} more"),
        }
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) if bytes.len() > SHOWN_BYTES => {
            let first = bytes.iter().take(SHOWN_BYTES).copied().collect();
            format!("{}… {} bytes", Value::Bytes(first), bytes.len())
        }
        other => other.to_string(),
    }
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Queue and operation.
    pub kind: String,
    /// The use of it.
    pub variant: String,
    /// The field; empty if the whole command is the difference.
    pub field: String,
    /// The actions of the first.
    pub ours: Side,
    /// The actions of the second.
    pub theirs: Side,
}

/// For each kind and variant, the values of each field.
type Asked = BTreeMap<(String, String), BTreeMap<String, BTreeSet<Value>>>;

fn asked(entries: &[Entry]) -> Asked {
    let mut asked = Asked::new();
    for described in entries.iter().filter_map(describe) {
        let Described {
            kind,
            variant,
            fields,
        } = described;
        let all = asked.entry((kind, variant)).or_default();
        for (name, value) in fields {
            all.entry(name).or_default().insert(value);
        }
    }
    asked
}

/// Compares kind by kind and field by field.
///
/// A kind that only one side sends is one difference. In a kind that both send, a field differs if
/// `ours` has a value there that `theirs` never has. Further values of `theirs` are not
/// differences, since it may request more.
#[must_use]
pub fn compare(ours: &[Entry], theirs: &[Entry]) -> Vec<Difference> {
    let (ours, theirs) = (asked(ours), asked(theirs));
    let mut differences = Vec::new();
    for ((kind, variant), fields) in &ours {
        let difference = |field: &str, ours, theirs| Difference {
            kind: kind.clone(),
            variant: variant.clone(),
            field: field.to_owned(),
            ours,
            theirs,
        };
        let Some(others) = theirs.get(&(kind.clone(), variant.clone())) else {
            differences.push(difference("", Side::Sent, Side::NotSent));
            continue;
        };
        for (field, values) in fields {
            let other = others.get(field).cloned().unwrap_or_default();
            if !values.is_subset(&other) {
                let sides = (Side::Values(values.clone()), Side::Values(other));
                differences.push(difference(field, sides.0, sides.1));
            }
        }
    }
    let unsent = theirs.keys().filter(|key| !ours.contains_key(*key));
    differences.extend(unsent.map(|(kind, variant)| Difference {
        kind: kind.clone(),
        variant: variant.clone(),
        field: String::new(),
        ours: Side::NotSent,
        theirs: Side::Sent,
    }));
    differences.sort();
    differences
}
