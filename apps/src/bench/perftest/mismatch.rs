//! Detects a peer that runs another test.
//!
//! perftest's exchange does not name the test, so different flags on the two sides show only in the
//! traffic. Three values are compared with the expected ones: the records that the peer repeats,
//! the device's count of its requests, and the peer's report. Every other failure is reported with
//! the flags that may cause it.

use super::wanted::Wanted;
use crate::bench::meeting::end::Role;
use crate::bench::pair::CompletionError;
use crate::cli::{Measure, Operation};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use ringside_pmd::Device;
use ringside_pmd::rdma::{Event, Status};
use ringside_rendezvous::SessionError;
use ringside_rendezvous::perftest::{BandwidthReport, Keys};

/// Flags of perftest with which its peer behaves or communicates differently.
const NOT_THERE: &str = "-b, -D, -R, -c with another transport than RC, --write_with_imm";

/// The test that both sides have to run, as perftest's command line has it.
fn same(wanted: &Wanted) -> String {
    let sizes = match wanted.sizes.as_slice() {
        [size] => format!("-s {size}"),
        _ => "-a".into(),
    };
    let queue_pairs = match wanted.measure {
        Measure::Bw => format!(" -q {}", wanted.queue_pairs),
        Measure::Lat => String::new(),
    };
    format!(
        "{} {sizes} -n {}{queue_pairs}",
        program(wanted),
        wanted.messages
    )
}

/// The program of perftest that runs this test.
fn program(wanted: &Wanted) -> String {
    let operation = match wanted.operation {
        Operation::Write => "write",
        Operation::Read => "read",
        Operation::Send => "send",
    };
    let measure = match wanted.measure {
        Measure::Lat => "lat",
        Measure::Bw => "bw",
    };
    format!("ib_{operation}_{measure}")
}

/// The remedy for a peer that runs another test.
pub(super) fn remedy(wanted: &Wanted) -> String {
    format!(
        "this side expects {} without {NOT_THERE}: give both sides the same program and flags",
        same(wanted)
    )
}

/// A peer that runs another test, as far as that is known.
pub(super) fn mismatch(wanted: &Wanted, found: &str) -> Failure {
    Failure::usage(anyhow!("{found}; {}", remedy(wanted)))
}

/// Requests of the peer that the device has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) sends: u64,
}

impl Arrived {
    pub(super) fn at(device: &Device) -> Result<Self, Failure> {
        let all = device.statistics().context("counters of the device")?;
        let of = |name| {
            let found = all.iter().find(|one| one.name == name);
            found.map_or(0, |one| one.value)
        };
        Ok(Self {
            writes: of("iwInRdmaWrites"),
            reads: of("iwInRdmaReads"),
            sends: of("iwInRdmaSends"),
        })
    }

    /// The messages since then.
    pub(super) fn since(&self, device: &Device) -> Result<Self, Failure> {
        let now = Self::at(device)?;
        Ok(Self {
            writes: now.writes.saturating_sub(self.writes),
            reads: now.reads.saturating_sub(self.reads),
            sends: now.sends.saturating_sub(self.sends),
        })
    }

    const fn of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Write => self.writes,
            Operation::Read => self.reads,
            Operation::Send => self.sends,
        }
    }

    /// Checks that requests of the peer's client have arrived, after it reported its end.
    pub(super) fn check_server(&self, wanted: &Wanted) -> Result<(), Failure> {
        if self.of(wanted.operation) > 0 {
            return Ok(());
        }
        let other = Operation::ALL.into_iter().find(|&one| self.of(one) > 0);
        let found = match other {
            Some(other) => format!(
                "the peer measured {}, not {}",
                other.title(),
                wanted.operation.title()
            ),
            None => format!(
                "no {} of the peer has arrived although it says that it is done: it begins only now \
                 (-b), has another transport (-c UC), or measures something else",
                wanted.operation.title()
            ),
        };
        Err(mismatch(wanted, &found))
    }

    /// Checks that the peer's server sent no requests: it only answers.
    pub(super) fn check_client(&self, wanted: &Wanted) -> Result<(), Failure> {
        let other = Operation::ALL.into_iter().find(|&one| self.of(one) > 0);
        let Some(other) = other else {
            return Ok(());
        };
        let found = format!(
            "the peer has sent {} requests of its own ({}): it has -b, or measures latency",
            self.of(other),
            other.title()
        );
        Err(mismatch(wanted, &found))
    }
}

/// A client's report is of the test that this side expects.
pub(super) fn check_report(told: &BandwidthReport, wanted: &Wanted) -> Result<(), Failure> {
    let expected = wanted.messages * u64::from(wanted.queue_pairs);
    let largest = wanted.largest();
    if told.iterations != expected {
        let found = format!(
            "the peer measured {} messages, not {expected}: its -n or -q differs, or it has -D",
            told.iterations
        );
        return Err(mismatch(wanted, &found));
    }
    if told.bytes != largest {
        let found = format!(
            "the peer measured messages of {} bytes, not {largest}",
            told.bytes
        );
        return Err(mismatch(wanted, &found));
    }
    Ok(())
}

/// The records that name the peer's queue pairs: no queue pair comes twice.
pub(super) fn check_keys(keys: &[Keys], wanted: &Wanted) -> Result<(), Failure> {
    for (index, one) in keys.iter().enumerate() {
        let mut before = keys.iter().take(index);
        if before.any(|other| other.queue_pair == one.queue_pair) {
            let found = format!("the peer has {index} queue pairs, not {}", keys.len());
            return Err(mismatch(wanted, &found));
        }
    }
    Ok(())
}

/// Checks that a record which the peer repeats to keep step equals its first one.
pub(super) fn check_repeated(told: &Keys, first: &Keys, wanted: &Wanted) -> Result<(), Failure> {
    if told == first {
        return Ok(());
    }
    let found = format!(
        "the peer names queue pair {:#x} where it was to repeat {:#x}: it has more queue pairs, or \
         measures something else",
        told.queue_pair, first.queue_pair
    );
    Err(mismatch(wanted, &found))
}

/// Checks the device's events for a failed queue pair: it has refused a request of the peer.
pub(super) fn check_events(events: &[Event], wanted: &Wanted) -> Result<(), Failure> {
    let failed = events.iter().find_map(|event| match event {
        Event::QueuePairFailed { code, .. } => Some(code),
        _ => None,
    });
    let Some(code) = failed else {
        return Ok(());
    };
    let found = format!(
        "the device refused a request of the peer ({code:?}): its program is another, such as \
         ib_atomic_bw, or its messages are longer"
    );
    Err(mismatch(wanted, &found))
}

/// A message of the peer's has another length.
pub(super) fn other_length(bytes: u32, size: u64, wanted: &Wanted) -> Failure {
    let found = format!("a message of {bytes} bytes arrived, expected {size}");
    mismatch(wanted, &found)
}

/// The failure of a test, with the flags that may have led to it.
pub(super) fn explained(failure: Failure, role: Role, wanted: &Wanted) -> Failure {
    if failure.is_usage() || failure.is_output() || failure.is_interrupted() {
        return failure;
    }
    if let Some(error) = failure.cause::<CompletionError>() {
        let why = match error.status {
            Status::RetryExceeded => {
                "its queue pair may be of another transport (-c UC, -c UD), or its address wrong (its -x, --peer-mac)"
            }
            Status::RemoteAccess | Status::RemoteInvalidRequest | Status::RemoteOperation => {
                "its memory is not open to this: it runs another program, or has a smaller -s"
            }
            Status::ReceiverNotReady => "it has posted no receive: it runs another program",
            Status::LocalLength => "its messages are longer than this side expects",
            _ => "it may run another test",
        };
        return failure.and(&format!("{why}; {}", remedy(wanted)));
    }
    let why = match failure.cause::<SessionError>() {
        Some(SessionError::NoPeer { .. }) => {
            "a peer with -R connects by the connection manager and not here: leave -R out".into()
        }
        Some(SessionError::Connect { .. }) => {
            "a peer with -R does not listen on TCP: leave -R out".into()
        }
        Some(SessionError::Silent { .. } | SessionError::Incomplete { .. }) => format!(
            "the peer waits for something that this {} does not do{}; {}",
            match role {
                Role::Client => "client",
                Role::Server => "server",
            },
            match wanted.operation {
                Operation::Send => ", such as messages of this side (its -b)",
                _ => "",
            },
            remedy(wanted)
        ),
        _ => remedy(wanted),
    };
    failure.and(&why)
}

#[cfg(test)]
mod tests;
