//! The results of checks.

use serde::Serialize;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Weight {
    /// No remedy is needed.
    Fine,
    /// It works, below line rate or with a worse tail.
    Slows,
    /// It does not work.
    Blocks,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) weight: Weight,
    pub(super) what: String,
    /// The remedy, one command or instruction a line.
    pub(super) remedy: Vec<String>,
}

/// A finding that needs no remedy.
pub(super) fn fine(check: &'static str, what: impl Into<String>) -> Finding {
    finding(check, Weight::Fine, what, [])
}

/// A finding with its remedy.
pub(super) fn finding<const N: usize>(
    check: &'static str,
    weight: Weight,
    what: impl Into<String>,
    remedy: [String; N],
) -> Finding {
    Finding {
        check,
        weight,
        what: what.into(),
        remedy: remedy.into(),
    }
}

/// Cores, separated by commas.
pub(super) fn core_list(cores: &[usize]) -> String {
    let list: Vec<_> = cores.iter().map(ToString::to_string).collect();
    list.join(",")
}
