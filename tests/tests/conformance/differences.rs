//! The requests in which our driver differs from Linux's: the document's table has each one, and
//! every row of the table is a difference.

use crate::{ours, recorded};
use ringside_tests::recording::{Difference, compare, trim};
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/conformance-commands.md");

/// A row of the table.
#[derive(Debug)]
struct Row<'a> {
    line: usize,
    /// Queue and operation; may end in `*`.
    kind: &'a str,
    /// `*` for every use of the operation.
    variant: &'a str,
    /// `-` if the whole command is the difference.
    field: &'a str,
    ours: &'a str,
    linux: &'a str,
    reason: &'a str,
}

fn plain(cell: &str) -> &str {
    cell.trim().trim_matches('`')
}

fn rows() -> Vec<Row<'static>> {
    let table = (1..).zip(DOCUMENT.lines());
    let rows = table.filter_map(|(line, text)| {
        let cells: Vec<_> = text.trim().split('|').map(plain).collect();
        match cells[..] {
            ["", kind, variant, field, ours, linux, reason, ""]
                if kind != "Command" && !kind.starts_with("---") =>
            {
                Some(Row {
                    line,
                    kind,
                    variant,
                    field,
                    ours,
                    linux,
                    reason,
                })
            }
            _ => None,
        }
    });
    rows.collect()
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

impl Row<'_> {
    fn explains(&self, difference: &Difference) -> bool {
        let field = if difference.field.is_empty() {
            "-"
        } else {
            &difference.field
        };
        matches(self.kind, &difference.kind)
            && matches(self.variant, &difference.variant)
            && self.field == field
            && self.ours == difference.ours.to_string()
            && self.linux == difference.theirs.to_string()
    }
}

/// Formats a difference as a row of the table, without a reason.
fn as_row(difference: &Difference) -> String {
    let field = if difference.field.is_empty() {
        "-"
    } else {
        &difference.field
    };
    let (kind, variant) = (&difference.kind, &difference.variant);
    let (ours, theirs) = (&difference.ours, &difference.theirs);
    format!("| {kind} | {variant} | {field} | {ours} | {theirs} |  |")
}

#[test]
fn each_difference_from_linux_is_in_the_table_with_a_reason() {
    let differences = compare(&trim(&ours::record(), 0), &recorded());
    assert!(!differences.is_empty(), "nothing was compared");
    let rows = rows();
    let unexplained = differences
        .iter()
        .filter(|difference| !rows.iter().any(|row| row.explains(difference)));
    let missing: Vec<_> = unexplained.map(as_row).collect();
    let stale = rows.iter().filter(|row| {
        !differences
            .iter()
            .any(|difference| row.explains(difference))
    });
    let stale: Vec<_> = stale
        .map(|row| format!("line {}: {row:?}", row.line))
        .collect();
    let nameless: Vec<_> = rows.iter().filter(|row| row.reason.len() < 10).collect();
    assert!(
        missing.is_empty() && stale.is_empty() && nameless.is_empty(),
        "docs/conformance-commands.md\nnot in the table:\n{}\nin the table, but no difference any more:\n{}\n\
         without a reason: {nameless:?}",
        missing.join("\n"),
        stale.join("\n"),
    );
}

#[test]
fn our_driver_sends_the_same_commands_as_linux_where_it_matters() {
    let differences = compare(&trim(&ours::record(), 0), &recorded());
    let kinds: BTreeSet<_> = trim(&ours::record(), 0)
        .iter()
        .filter_map(ringside_tests::recording::describe)
        .map(|described| described.kind)
        .collect();
    let differing: BTreeSet<_> = differences.iter().map(|it| it.kind.clone()).collect();
    let same = kinds.difference(&differing).count();
    assert!(kinds.len() > 50, "{} kinds compared", kinds.len());
    assert!(same > 10, "{same} of {} kinds are the same", kinds.len());
}
