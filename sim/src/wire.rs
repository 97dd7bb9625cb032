//! The wire's script, which decides the fault of each frame, and the record of them.

use crate::fault::{FaultEvent, FrameFault};
use crate::scenario::Faults;
use ringside_bus::Instant;
use ringside_model::packet::{Packet, parse};
use ringside_model::wire::{FrameFate, Script, Tap};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The record of faults of frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireBook {
    /// Events, oldest first.
    pub(crate) events: Vec<FaultEvent>,
    /// Frames that were lost, damaged or held back.
    pub(crate) losses: u64,
    /// Frames that arrived twice.
    pub(crate) copies: u64,
    /// True once frames have no more faults.
    pub(crate) quiet: bool,
    /// For the trace: frames as they arrive, and their faults, since the last call; `None` if no
    /// trace was requested.
    pub(crate) shown: Option<Vec<(Option<Instant>, String)>>,
}

/// The record, shared with the script and the tap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire(Arc<Mutex<WireBook>>);

impl Wire {
    pub(crate) fn book(&self) -> MutexGuard<'_, WireBook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a tap that records each frame that arrives.
    pub(crate) fn tap(&self) -> Tap {
        let wire = self.clone();
        Box::new(move |now, port, bytes| {
            if let Some(shown) = &mut wire.book().shown {
                shown.push((Some(now), format!("port {port} sent {}", describe(bytes))));
            }
        })
    }

    /// Returns a script that applies `faults`, records them, and calls `forge` besides.
    pub(crate) fn script(
        &self,
        faults: WireFaults,
        mut forge: Option<Box<dyn FnMut(u64) -> Option<u32> + Send>>,
    ) -> Script {
        let wire = self.clone();
        Box::new(move |frame| {
            let mut book = wire.book();
            let mut fate = FrameFate {
                forged_bit: forge.as_mut().and_then(|forge| forge(frame)),
                ..FrameFate::default()
            };
            if !book.quiet {
                faults.each(frame, |fault| {
                    fault.add_to(&mut fate);
                    book.losses += u64::from(fault.loses());
                    book.copies += u64::from(fault == FrameFault::Duplicate);
                    let event = FaultEvent::Frame { frame, fault };
                    book.events.push(event);
                    if let Some(shown) = &mut book.shown {
                        // The record has no time; the next frame has.
                        shown.push((None, format!("fault: {event}")));
                    }
                });
            }
            fate
        })
    }
}

/// Describes a frame in a line.
fn describe(bytes: &[u8]) -> String {
    match parse(bytes) {
        Ok((Packet { transport, .. }, payload)) => format!(
            "{:?} {} to queue pair {}, {} bytes, {:?}",
            transport.opcode,
            transport.psn.value(),
            transport.destination_qp.value(),
            payload.len(),
            transport.extension
        ),
        Err(error) => format!("{} bytes: {error}", bytes.len()),
    }
}

/// Faults of frames.
#[derive(Clone, Debug)]
pub(crate) enum WireFaults {
    Drawn(crate::fault::Drawn),
    Listed(BTreeMap<u64, Vec<FrameFault>>),
}

impl WireFaults {
    /// True if no frame has a fault.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Drawn(drawn) => drawn.is_quiet(),
            Self::Listed(listed) => listed.is_empty(),
        }
    }

    fn each(&self, frame: u64, mut take: impl FnMut(FrameFault)) {
        match self {
            Self::Drawn(drawn) => drawn.of_frame(frame).for_each(take),
            Self::Listed(listed) => {
                let here = listed.get(&frame).into_iter().flatten();
                here.for_each(|fault| take(*fault));
            }
        }
    }
}

/// Divides faults into those of frames and those of functions.
pub(crate) fn divide(faults: &Faults, seed: u64, steps: u32) -> (WireFaults, Vec<FaultEvent>) {
    match faults {
        Faults::Mix(mix) => {
            let mut drawn = mix.draw(seed, steps);
            let of_functions = std::mem::take(&mut drawn.of_functions);
            (WireFaults::Drawn(drawn), of_functions)
        }
        Faults::Events(events) => {
            let mut listed: BTreeMap<u64, Vec<FrameFault>> = BTreeMap::new();
            let mut of_functions = Vec::new();
            for event in events {
                match *event {
                    FaultEvent::Frame { frame, fault } => {
                        listed.entry(frame).or_default().push(fault);
                    }
                    FaultEvent::Function { .. } | FaultEvent::Clock { .. } => {
                        of_functions.push(*event)
                    }
                }
            }
            (WireFaults::Listed(listed), of_functions)
        }
    }
}
