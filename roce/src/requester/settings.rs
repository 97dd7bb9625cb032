//! The configuration of a requester, and the part of it that may change while it runs.

use super::super::config::{PathMtu, RequesterConfig};
use super::Requester;
use crate::packet::{Extension, Opcode, TransportHeaders};
use std::time::Duration;

/// The configuration, in the units of the data path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) mtu: PathMtu,
    /// packets
    pub(super) window: u64,
    pub(super) acknowledge_mask: u64,
    pub(super) reads_limit: u32,
    pub(super) retry_limit: u8,
    pub(super) not_ready_retry_limit: u8,
    pub(super) retransmit_after_ns: u64,
    /// the common fields of all its packets
    pub(super) template: TransportHeaders,
}

impl Settings {
    pub(super) fn new(config: &RequesterConfig) -> Self {
        let every = config
            .acknowledge_every_packets
            .clamp(1, 1 << 16)
            .next_power_of_two();
        Self {
            mtu: config.path_mtu,
            window: u64::from(config.window_packets.max(1)),
            acknowledge_mask: u64::from(every) - 1,
            reads_limit: u32::from(config.outstanding_reads),
            retry_limit: config.retry_limit,
            not_ready_retry_limit: config.not_ready_retry_limit,
            retransmit_after_ns: nanoseconds(config.retransmit_after),
            template: TransportHeaders {
                opcode: Opcode::WRITE_ONLY,
                solicited: false,
                migrated: true,
                partition_key: config.partition_key,
                forward_congestion: false,
                backward_congestion: false,
                destination_qp: config.destination_qp,
                acknowledge_request: false,
                psn: config.first_psn,
                extension: Extension::None,
            },
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Requester {
    /// Changes the limits of retries, and the wait for an answer from the next packet on. A wait
    /// that has begun keeps its end. `retry_limit` and the others as in [`RequesterConfig`].
    pub fn set_retries(
        &mut self,
        retry_limit: u8,
        not_ready_retry_limit: u8,
        retransmit_after: Duration,
    ) {
        self.settings.retry_limit = retry_limit;
        self.settings.not_ready_retry_limit = not_ready_retry_limit;
        self.settings.retransmit_after_ns = nanoseconds(retransmit_after);
    }

    /// Changes the number of reads that may be outstanding, as in [`RequesterConfig`]. Reads that
    /// are outstanding stay so.
    pub fn set_reads(&mut self, outstanding_reads: u8) {
        self.settings.reads_limit = outstanding_reads.into();
    }
}
