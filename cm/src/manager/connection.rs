//! One connection and its state.

use super::{ListenerId, Parameters, StateName};
use crate::address::Gid;
use crate::mad::MAD_BYTES;
use crate::timing::{MAX_WAIT, REPEAT_MIN, of_code};
use std::time::Duration;

/// The addresses of a connection's MADs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) local: Gid,
    /// VLAN of the own address
    pub(super) vlan: Option<u16>,
    pub(super) remote: Gid,
    pub(super) traffic_class: u8,
}

impl Path {
    /// The own address, as the manager's list has it.
    pub(super) const fn own(&self) -> (Gid, Option<u16>) {
        (self.local, self.vlan)
    }
}

/// Intervals and repeats of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) wait: Duration,
    pub(super) repeats: u8,
}

impl Patience {
    pub(super) fn of(wait: Duration, repeats: u8) -> Self {
        Self {
            wait: wait.clamp(REPEAT_MIN, MAX_WAIT),
            repeats,
        }
    }
}

/// A message that is sent until it is answered.
#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub(super) mad: Box<[u8; MAD_BYTES]>,
    pub(super) wait: Duration,
    pub(super) left: u8,
    pub(super) at: Duration,
}

impl Repeat {
    pub(super) fn new(now: Duration, mad: [u8; MAD_BYTES], patience: Patience) -> Self {
        Self {
            mad: Box::new(mad),
            wait: patience.wait,
            left: patience.repeats,
            at: now + patience.wait,
        }
    }

    /// Extends the wait to the time that the peer names, for this and all further repeats.
    pub(super) fn extend(&mut self, now: Duration, service_timeout: u8, ack_timeout: u8) {
        let wait = of_code(service_timeout) + of_code(ack_timeout);
        self.wait = wait.clamp(REPEAT_MIN, MAX_WAIT);
        self.at = now + self.wait;
    }
}

/// The state, with its own data.
#[derive(Clone, Debug)]
pub(super) enum State {
    Idle,
    RequestSent {
        repeat: Repeat,
        acknowledged: bool,
    },
    ReplyReceived,
    RequestReceived,
    ReplySent {
        repeat: Repeat,
        acknowledged: bool,
    },
    Established {
        ready: Box<[u8; 224]>,
    },
    DisconnectSent {
        repeat: Repeat,
    },
    DisconnectReceived {
        transaction: u64,
    },
    TimeWait {
        until: Duration,
        answer: Option<Box<[u8; MAD_BYTES]>>,
        /// the program knows that the connection ended, and gets the end of timewait too
        is_told: bool,
    },
    ServiceSent {
        repeat: Repeat,
    },
    ServiceReceived,
}

impl State {
    pub(super) const fn name(&self) -> StateName {
        match self {
            Self::Idle => StateName::Idle,
            Self::RequestSent {
                acknowledged: false,
                ..
            } => StateName::RequestSent,
            Self::RequestSent { .. } => StateName::RequestAcknowledged,
            Self::ReplyReceived => StateName::ReplyReceived,
            Self::RequestReceived => StateName::RequestReceived,
            Self::ReplySent {
                acknowledged: false,
                ..
            } => StateName::ReplySent,
            Self::ReplySent { .. } => StateName::ReplyAcknowledged,
            Self::Established { .. } => StateName::Established,
            Self::DisconnectSent { .. } => StateName::DisconnectSent,
            Self::DisconnectReceived { .. } => StateName::DisconnectReceived,
            Self::TimeWait { .. } => StateName::TimeWait,
            Self::ServiceSent { .. } => StateName::ServiceSent,
            Self::ServiceReceived => StateName::ServiceReceived,
        }
    }

    pub(super) const fn deadline(&self) -> Option<Duration> {
        match self {
            Self::RequestSent { repeat, .. }
            | Self::ReplySent { repeat, .. }
            | Self::DisconnectSent { repeat }
            | Self::ServiceSent { repeat } => Some(repeat.at),
            Self::TimeWait { until, .. } => Some(*until),
            _ => None,
        }
    }

    pub(super) const fn waits_for_program(&self) -> bool {
        matches!(self, Self::RequestReceived | Self::ServiceReceived)
    }

    pub(super) const fn is_service(&self) -> bool {
        matches!(self, Self::ServiceReceived | Self::ServiceSent { .. })
    }
}

/// A connection, or an open service request.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: u32,
    /// the peer's id; 0 while unknown
    pub(super) remote_id: u32,
    /// the peer's GUID; 0 while unknown
    pub(super) peer_guid: u64,
    pub(super) transaction: u64,
    pub(super) path: Path,
    pub(super) patience: Patience,
    /// own queue pair; a DREQ for another one is ignored
    pub(super) queue_pair: u32,
    pub(super) parameters: Parameters,
    pub(super) listener: Option<ListenerId>,
    /// service of a question, for its answer
    pub(super) service_id: u64,
    /// the program's ACK timeout instead of the computed one
    pub(super) chosen_ack_timeout: Option<u8>,
    pub(super) state: State,
}

impl Connection {
    /// The end of a timewait that begins now.
    pub(super) fn quiet_at(&self, now: Duration) -> Duration {
        now + of_code(self.parameters.ack_timeout).min(MAX_WAIT)
    }
}
