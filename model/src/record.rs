//! A recording of a driver's requests to the device: commands of the admin queue and of the control
//! queue pair with their buffers, events, register writes and resets, in the order in which the
//! model met them.
//!
//! Nothing is recorded unless [`World::record`](crate::World::record) was called, and nothing of
//! the data path ever is: no doorbell, no work queue element, no completion of a queue pair.
//!
//! `docs/recording.md` describes the format of the file; [`text`] writes and reads it.

mod entry;
pub mod text;

pub use entry::{
    AdminCommand, AdminEvent, Buffer, ControlCommand, ControlQueueCreated, Entry, Event,
    RegisterWrite, ResetSeen,
};

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The list of entries. A clone shares it.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Inside>>);

struct Inside {
    next: u64,
    destination: Destination,
}

enum Destination {
    Writer(Box<dyn Write + Send>),
    Kept {
        entries: Vec<Entry>,
        limit: usize,
    },
    /// Writing failed; nothing is written any more.
    Failed(String),
}

impl fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let next = self.inside().next;
        write!(formatter, "Recorder({next} entries)")
    }
}

impl Recorder {
    /// Writes each entry as a line, by one call, as soon as it is known: a reader of the file never
    /// waits, and a model that is killed leaves whole lines. The first line names the format.
    #[must_use]
    pub fn to_writer(mut writer: Box<dyn Write + Send>) -> Self {
        let destination = match writer.write_all(text::HEADER.as_bytes()) {
            Ok(()) => Destination::Writer(writer),
            Err(error) => failed(&error),
        };
        Self::to(destination)
    }

    /// Keeps the first `limit` entries for [`Self::take`].
    #[must_use]
    pub fn in_memory(limit: usize) -> Self {
        Self::to(Destination::Kept {
            entries: Vec::new(),
            limit,
        })
    }

    fn to(destination: Destination) -> Self {
        let inside = Inside {
            next: 0,
            destination,
        };
        Self(Arc::new(Mutex::new(inside)))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries kept so far; they are kept no longer. Empty if the entries are written.
    #[must_use]
    pub fn take(&self) -> Vec<Entry> {
        match &mut self.inside().destination {
            Destination::Kept { entries, .. } => std::mem::take(entries),
            _ => Vec::new(),
        }
    }

    /// The number of entries, those that were not kept included.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inside().next
    }

    /// The reason why writing ended, if it did; the entries from then on are lost.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match &self.inside().destination {
            Destination::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }

    pub(crate) fn note(&self, function: usize, time_ns: u64, event: Event) {
        let mut inside = self.inside();
        let entry = Entry {
            sequence: inside.next,
            function,
            time_ns,
            event,
        };
        inside.next += 1;
        match &mut inside.destination {
            Destination::Writer(writer) => {
                if let Err(error) = writer.write_all(text::line(&entry).as_bytes()) {
                    inside.destination = failed(&error);
                }
            }
            Destination::Kept { entries, limit } => {
                if entries.len() < *limit {
                    entries.push(entry);
                }
            }
            Destination::Failed(_) => {}
        }
    }
}

#[cold]
fn failed(error: &std::io::Error) -> Destination {
    tracing::error!(%error, "the recording ends here: its file cannot be written");
    Destination::Failed(error.to_string())
}

/// A part of a function that records.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    recorder: Recorder,
    function: usize,
}

impl Tap {
    pub(crate) const fn new(recorder: Recorder, function: usize) -> Self {
        Self { recorder, function }
    }

    pub(crate) fn note(&self, now: ringside_bus::Instant, event: Event) {
        self.recorder.note(self.function, now.0, event);
    }
}

#[cfg(test)]
mod tests;
