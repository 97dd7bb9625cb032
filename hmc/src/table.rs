//! The table that plans and layouts print.

use std::fmt;

use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::segments::SEGMENT_BYTES;

use crate::address::FpmAddress;

/// One object's line.
pub(crate) struct Row {
    pub(crate) object: ObjectType,
    pub(crate) asked: u32,
    pub(crate) granted: Option<u32>,
    pub(crate) maximum: u32,
    pub(crate) size_bytes: u64,
    pub(crate) base: Option<FpmAddress>,
    pub(crate) bytes: u64,
}

/// Writes a heading, the rows, and the sum.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    rows: impl Iterator<Item = Row>,
    segments: u32,
    max_segments: u32,
) -> fmt::Result {
    writeln!(
        f,
        "{:<10}{:>10}{:>10}{:>11}{:>7}{:>12}{:>12}",
        "object", "asked", "granted", "maximum", "bytes", "base", "KiB"
    )?;
    let mut total_bytes = 0;
    for row in rows {
        total_bytes += row.bytes;
        let granted = row
            .granted
            .map_or_else(|| "-".to_owned(), |count| count.to_string());
        let base = row
            .base
            .map_or_else(|| "-".to_owned(), |base| base.to_string());
        writeln!(
            f,
            "{:<10}{:>10}{granted:>10}{:>11}{:>7}{base:>12}{:>12.1}",
            row.object.name(),
            row.asked,
            row.maximum,
            row.size_bytes,
            row.bytes as f64 / 1024.0
        )?;
    }
    write!(
        f,
        "{segments} of {max_segments} segments ({} MiB), {:.1} KiB in use",
        u64::from(segments) * SEGMENT_BYTES / (1 << 20),
        total_bytes as f64 / 1024.0
    )
}
