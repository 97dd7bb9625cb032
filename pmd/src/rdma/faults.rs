//! The errors of peers, counted for each queue pair, as far as the device reports them.

use super::address::MacAddress;
use ringside_spec::rdma::ae_codes::AeCode;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// The errors of a queue pair's peer so far. The device reports only those that end the connection;
/// what it drops silently (sequence numbers out of the window, wrong sources) is in the statistics
/// of the function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerFaults {
    /// Requests with a key that is none of ours, or with a place or right that it does not give.
    pub keys: u32,
    /// Requests that make no sense, or too many at once.
    pub requests: u32,
    /// Refusals of our requests by the peer.
    pub refusals: u32,
    /// Requests of ours that the peer did not answer, or for which it was never ready.
    pub silences: u32,
}

impl PeerFaults {
    /// All together.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.keys
            .saturating_add(self.requests)
            .saturating_add(self.refusals)
            .saturating_add(self.silences)
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct FaultCounters {
    keys: AtomicU32,
    requests: AtomicU32,
    refusals: AtomicU32,
    silences: AtomicU32,
}

impl FaultCounters {
    fn of(&self, code: AeCode) -> Option<&AtomicU32> {
        Some(match code {
            AeCode::UnallocatedStag
            | AeCode::InvalidStag
            | AeCode::BadQueuePair
            | AeCode::BadProtectionDomain
            | AeCode::BadStagKey
            | AeCode::BadStagIndex
            | AeCode::BoundsViolation
            | AeCode::RightsViolation
            | AeCode::TaggedOffsetWrap
            | AeCode::InvalidateWithoutRemoteAccess => &self.keys,
            AeCode::InboundReadQueueFull
            | AeCode::InvalidInfinibandRequest
            | AeCode::InvalidRequest
            | AeCode::MessageTooLong
            | AeCode::RoceResponseLength
            | AeCode::BadCrc
            | AeCode::SegmentTooSmall => &self.requests,
            AeCode::RemoteAccessError | AeCode::RemoteOperationError => &self.refusals,
            AeCode::TooManyRetries | AeCode::TooManyReceiverNotReady => &self.silences,
            _ => return None,
        })
    }

    /// Counts an event; returns true if it reports a wrong request of the peer.
    pub(crate) fn count(&self, code: AeCode) -> bool {
        let Some(counter) = self.of(code) else {
            return false;
        };
        counter.fetch_add(1, Ordering::Relaxed);
        std::ptr::eq(counter, &self.keys) || std::ptr::eq(counter, &self.requests)
    }

    pub(crate) fn report(&self) -> PeerFaults {
        let read = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        PeerFaults {
            keys: read(&self.keys),
            requests: read(&self.requests),
            refusals: read(&self.refusals),
            silences: read(&self.silences),
        }
    }
}

/// Peers that are remembered at most: one that invents addresses does not fill the memory.
const MAX_PEERS: usize = 1024;

/// The errors of each peer, over all its queue pairs.
#[derive(Debug, Default)]
pub(crate) struct PeerBook {
    threshold: u32,
    peers: BTreeMap<MacAddress, u32>,
}

impl PeerBook {
    pub(crate) fn watch(&mut self, threshold: u32) {
        self.threshold = threshold;
        self.peers.clear();
    }

    /// Counts a fault of a peer; returns the count when it is due to be reported.
    pub(crate) fn count(&mut self, peer: MacAddress) -> Option<u32> {
        if self.threshold == 0 {
            return None;
        }
        let known = self.peers.contains_key(&peer);
        if !known && self.peers.len() >= MAX_PEERS {
            return None;
        }
        let faults = self.peers.entry(peer).or_insert(0);
        *faults = faults.saturating_add(1);
        faults.is_multiple_of(self.threshold).then_some(*faults)
    }
}
