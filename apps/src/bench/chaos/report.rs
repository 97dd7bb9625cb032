//! The report of a chaos run.

use crate::bench::placement::Placement;
use crate::output::{microseconds, span};
use crate::trouble::Kind;
use ringside_config::Config;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    /// the cause that the driver reported
    pub(super) cause: Option<&'static str>,
    /// from raising to the event
    pub(super) detect: Duration,
    /// from the event until everything outstanding had completed
    pub(super) flush: Duration,
    /// containing, resetting, giving back
    pub(super) reset: Duration,
    /// bring-up; of a link: until it was up again
    pub(super) bring_up: Duration,
    /// new objects, connected, and the first messages verified
    pub(super) reconnect: Duration,
    /// from raising until those messages were verified: the parts, and all between them
    pub(super) total: Duration,
    /// requests that succeeded
    pub(super) completed: u64,
    /// requests that completed with an error
    pub(super) flushed: u64,
    pub(super) verified: u64,
}

impl Row {
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            cause: None,
            detect: Duration::ZERO,
            flush: Duration::ZERO,
            reset: Duration::ZERO,
            bring_up: Duration::ZERO,
            reconnect: Duration::ZERO,
            total: Duration::ZERO,
            completed: 0,
            flushed: 0,
            verified: 0,
        }
    }

    fn parts(&self) -> [(&'static str, Duration); 6] {
        [
            ("detect", self.detect),
            ("flush", self.flush),
            ("reset", self.reset),
            ("bring_up", self.bring_up),
            ("reconnect", self.reconnect),
            ("total", self.total),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<15} {} in {}, {} completed, {} flushed, verified again after {}",
            self.kind.name(),
            self.cause.unwrap_or("noticed"),
            span(self.detect),
            self.completed,
            self.flushed,
            span(self.total)
        )
    }
}

/// Least, middle and most of a time, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    part: &'static str,
    min_usec: f64,
    median_usec: f64,
    max_usec: f64,
}

/// All events of a kind.
#[derive(Clone, Debug, Serialize)]
struct OfKind {
    kind: Kind,
    rounds: usize,
    times: Vec<Spread>,
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ChaosReport {
    driven: String,
    placement: Placement,
    admin_queue_deadline_ms: u64,
    control_queue_deadline_ms: u64,
    kinds: Vec<OfKind>,
    events: usize,
    requests_completed: u64,
    requests_flushed: u64,
    verified_messages: u64,
    interface_breaches: Option<u64>,
    /// the failure or the signal that ended the run before its last round
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended_early: Option<String>,
}

impl ChaosReport {
    pub(super) fn new(
        driven: String,
        placement: Placement,
        config: &Config,
        rows: &[Row],
        breaches: Option<usize>,
    ) -> Self {
        let of = |kind: Kind| rows.iter().filter(move |row| row.kind == kind);
        let kinds = Kind::all().filter(|kind| of(*kind).next().is_some());
        let kinds = kinds
            .map(|kind| OfKind {
                kind,
                rounds: of(kind).count(),
                times: spreads(&of(kind).collect::<Vec<_>>()),
            })
            .collect();
        Self {
            driven,
            placement,
            admin_queue_deadline_ms: config.deadlines.admin_queue_ms,
            control_queue_deadline_ms: config.deadlines.control_queue_ms,
            kinds,
            events: rows.len(),
            requests_completed: rows.iter().map(|row| row.completed).sum(),
            requests_flushed: rows.iter().map(|row| row.flushed).sum(),
            verified_messages: rows.iter().map(|row| row.verified).sum(),
            interface_breaches: breaches.map(|count| count as u64),
            ended_early: None,
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "\nTime to recover: min / median / max, in milliseconds"
        )?;
        for kind in &self.kinds {
            writeln!(out, "{} ({} times)", kind.kind.name(), kind.rounds)?;
            for spread in &kind.times {
                writeln!(
                    out,
                    "  {:<10} {:>9.3} {:>9.3} {:>9.3}",
                    spread.part.replace('_', "-"),
                    spread.min_usec / 1e3,
                    spread.median_usec / 1e3,
                    spread.max_usec / 1e3
                )?;
            }
        }
        let breaches = match self.interface_breaches {
            None => "breaches of the device's interface are counted by its own process".to_owned(),
            Some(count) => format!("{count} kinds of breach of the device's interface"),
        };
        writeln!(
            out,
            "\n{} events: {} requests completed and {} were flushed, each exactly once; {} messages verified byte by byte; {breaches}.",
            self.events, self.requests_completed, self.requests_flushed, self.verified_messages
        )
    }
}

/// The spread of each part; there is at least one row.
fn spreads(rows: &[&Row]) -> Vec<Spread> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let parts = first.parts().into_iter().enumerate();
    parts
        .map(|(place, (part, _))| {
            let mut times: Vec<f64> = rows
                .iter()
                .filter_map(|row| row.parts().get(place).map(|(_, time)| microseconds(*time)))
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |place: usize| times.get(place).copied().unwrap_or(0.0);
            let last = times.len().saturating_sub(1);
            Spread {
                part,
                min_usec: at(0),
                // Of an even number: between the two in the middle.
                median_usec: f64::midpoint(at(last / 2), at(times.len() / 2)),
                max_usec: at(last),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(times_ms: &[u64]) -> f64 {
        let row = |&time: &u64| Row {
            detect: Duration::from_millis(time),
            ..Row::new(Kind::LinkDown)
        };
        let rows: Vec<_> = times_ms.iter().map(row).collect();
        spreads(&rows.iter().collect::<Vec<_>>())[0].median_usec
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[7]), 7_000.0);
        assert_eq!(median(&[30, 12]), 21_000.0);
        assert_eq!(median(&[30, 12, 1]), 12_000.0);
        assert_eq!(median(&[4, 1, 2, 9]), 3_000.0);
    }
}
