//! The counts of a server of the model: as text and as JSON.

use crate::ports::{Capture, WireCounters, WireReport};
use ringside_model::left_over::{LeftOver, left_over};
use ringside_model::strict::Breach;
use ringside_model::wire::SwitchCounters;
use ringside_model::{FunctionSnapshot, World};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Things that are shown of one kind before "and so many more".
const MAX_SHOWN: usize = 8;

/// The sources of a report besides the world.
#[derive(Clone)]
pub struct Sources {
    /// The socket of each function.
    pub sockets: Vec<PathBuf>,
    /// The functions as the server made them.
    pub before: Vec<FunctionSnapshot>,
    /// Counters of the external wires.
    pub wires: WireReport,
    /// The capture, if there is one.
    pub capture: Option<Arc<Capture>>,
}

/// One function.
struct FunctionReport {
    socket: String,
    faults: Vec<String>,
    breaches: Vec<Breach>,
    remarks: Vec<Breach>,
    left_over: Vec<LeftOver>,
}

/// Counts, faults, breaches and left-over state of all functions and wires.
pub struct Report {
    functions: Vec<FunctionReport>,
    wire_faults: Vec<String>,
    switch: SwitchCounters,
    wires: Vec<(String, WireCounters)>,
    captured: Option<u64>,
}

impl Report {
    /// The counts of now.
    pub fn of(world: &mut World, sources: &Sources) -> Self {
        let numbered = sources.sockets.iter().zip(&sources.before).enumerate();
        let functions = numbered.map(|(index, (socket, before))| {
            let function = world.function(index);
            let faults = function
                .map(|function| function.faults())
                .unwrap_or_default();
            let now = world.snapshot(index);
            FunctionReport {
                socket: socket.display().to_string(),
                faults: faults.iter().map(ToString::to_string).collect(),
                breaches: world.breaches(index),
                remarks: world.remarks(index),
                left_over: now.map(|now| left_over(before, &now)).unwrap_or_default(),
            }
        });
        let functions = functions.collect();
        let switch = world.switch();
        let wire_faults = switch.faults().iter().map(ToString::to_string).collect();
        Self {
            functions,
            wire_faults,
            switch: switch.counters(),
            wires: sources.wires.wires(),
            captured: sources.capture.as_ref().map(|capture| capture.frames()),
        }
    }

    /// Breaches of the interface by drivers.
    #[must_use]
    pub fn breaches(&self) -> u64 {
        let all = self
            .functions
            .iter()
            .flat_map(|function| &function.breaches);
        all.map(|breach| breach.count).sum()
    }

    /// As JSON; `docs/model-server.md` describes the fields.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let functions: Vec<_> = self
            .functions
            .iter()
            .enumerate()
            .map(|(index, function)| function.to_json(index))
            .collect();
        let wires: Vec<_> = self
            .wires
            .iter()
            .map(|(name, counters)| wire_json(name, counters))
            .collect();
        json!({
            "breaches": self.breaches(),
            "functions": functions,
            "wire_faults": self.wire_faults,
            "switch": switch_json(&self.switch),
            "wires": wires,
            "captured_frames": self.captured,
        })
    }

    /// As text for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (index, function) in self.functions.iter().enumerate() {
            function.write(index, &mut text);
        }
        write_counters("switch", &switch_json(&self.switch), &mut text);
        for (name, counters) in &self.wires {
            write_counters(name, &wire_json(name, counters), &mut text);
        }
        if let Some(frames) = self.captured {
            let _ = writeln!(text, "capture: {frames} frames");
        }
        text
    }
}

impl FunctionReport {
    fn to_json(&self, index: usize) -> Value {
        let breaches: Vec<_> = self.breaches.iter().map(breach_json).collect();
        let remarks: Vec<_> = self.remarks.iter().map(breach_json).collect();
        let left_over = self.left_over.iter();
        let left_over: serde_json::Map<_, _> = left_over
            .map(|kind| (kind.what.to_owned(), items_json(kind)))
            .collect();
        json!({
            "function": index,
            "socket": self.socket,
            "faults": self.faults,
            "breaches": breaches,
            "remarks": remarks,
            "left_over": left_over,
        })
    }

    fn write(&self, index: usize, text: &mut String) {
        // Writing to a string does not fail.
        if self.breaches.is_empty() {
            let _ = writeln!(
                text,
                "function {index}: no rule of the interface was broken"
            );
        } else {
            text.push_str(&breaches_text(index, &self.breaches));
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "  remark: {}", cases_text(remark));
        }
        if !self.faults.is_empty() {
            let _ = writeln!(text, "  faults: {}", self.faults.join("; "));
        }
        for kind in &self.left_over {
            let count = kind.items.len() + kind.more;
            let shown = kind.items.get(..MAX_SHOWN).unwrap_or(&kind.items).join(" ");
            let more = match count.saturating_sub(MAX_SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(text, "  in use or left over: {}: {shown}{more}", kind.what);
        }
    }
}

/// The rules of the interface that a driver has broken.
#[must_use]
pub fn breaches_text(index: usize, breaches: &[Breach]) -> String {
    let count: u64 = breaches.iter().map(|breach| breach.count).sum();
    let mut text = format!("function {index}: the driver broke the interface {count} times\n");
    for breach in breaches {
        let _ = writeln!(text, "  {}", cases_text(breach));
    }
    text
}

/// A kind, how often, and its cases, in one line.
fn cases_text(kind: &Breach) -> String {
    let cases = std::iter::once(&kind.first).chain(&kind.further);
    let cases: Vec<&str> = cases.map(String::as_str).collect();
    format!("{} x {}: {}", kind.count, kind.kind, cases.join("; "))
}

/// The objects of a kind; a last entry counts those that are not named.
fn items_json(kind: &LeftOver) -> Value {
    let more = (kind.more > 0).then(|| format!("and {} more", kind.more));
    json!(kind.items.iter().chain(&more).collect::<Vec<_>>())
}

fn breach_json(breach: &Breach) -> Value {
    json!({
        "kind": breach.kind,
        "count": breach.count,
        "first": breach.first,
        "further": breach.further,
    })
}

fn switch_json(counters: &SwitchCounters) -> Value {
    json!({
        "delivered": counters.delivered,
        "flooded": counters.flooded,
        "dropped": counters.dropped,
        "malformed": counters.malformed,
        "damaged": counters.damaged,
        "no_room": counters.no_room,
        "duplicated": counters.duplicated,
        "held": counters.held,
        "corrupted": counters.corrupted,
        "marked": counters.marked,
    })
}

fn wire_json(name: &str, counters: &WireCounters) -> Value {
    json!({
        "name": name,
        "received": counters.received,
        "received_bytes": counters.received_bytes,
        "sent": counters.sent,
        "sent_bytes": counters.sent_bytes,
        "too_short": counters.too_short,
        "too_long": counters.too_long,
        "own_address": counters.own_address,
        "read_failures": counters.read_failures,
        "no_peer": counters.no_peer,
        "refused": counters.refused,
    })
}

/// The counters that are not zero.
fn write_counters(name: &str, counters: &Value, text: &mut String) {
    let counters = counters.as_object().into_iter().flatten();
    let counted: Vec<_> = counters
        .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
        .map(|(what, count)| format!("{} {count}", what.replace('_', " ")))
        .collect();
    let counted = if counted.is_empty() {
        "nothing".into()
    } else {
        counted.join(", ")
    };
    let _ = writeln!(text, "{name}: {counted}");
}

#[cfg(test)]
mod tests;
