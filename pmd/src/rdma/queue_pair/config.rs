//! The requested attributes of a queue pair.

use crate::rdma::numbers::within;
use crate::rdma::{Access, CompletionQueue, CompletionTarget, RdmaError};
use ringside_spec::rdma::limits::{MAX_FRAGMENTS, MAX_INLINE_BYTES};
use ringside_spec::rdma::qp_context::RTO_MIN;
use std::net::IpAddr;

/// Settings of a queue pair. Start with [`QueuePairConfig::reliable`] and change single fields.
#[derive(Clone, Debug)]
pub struct QueuePairConfig {
    pub(crate) send: CompletionTarget,
    pub(crate) receive: CompletionTarget,
    pub(crate) send_requests: u32,
    pub(crate) receive_requests: u32,
    pub(crate) send_fragments: u32,
    pub(crate) receive_fragments: u32,
    pub(crate) inline_bytes: u32,
    pub(crate) path_mtu: Option<u32>,
    pub(crate) local_address: Option<IpAddr>,
    pub(crate) gid_index: Option<u16>,
    pub(crate) vlan_tag: Option<u16>,
    pub(crate) retries: u8,
    pub(crate) receiver_not_ready_retries: u8,
    pub(crate) retransmission_timeout: u8,
    pub(crate) outbound_reads: u8,
    pub(crate) inbound_reads: u8,
    pub(crate) access: Access,
    pub(crate) partition_key_index: u16,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) service_level: Option<u8>,
    /// the code of verbs that `retransmission_timeout` was made of
    pub(crate) acknowledge_timeout: Option<u8>,
}

impl QueuePairConfig {
    /// A reliable connection that reports to `completion_queue` on both sides: 128 sends and 128
    /// receives of one fragment each, up to 8 bytes inline.
    #[must_use]
    pub fn reliable(completion_queue: &CompletionQueue) -> Self {
        Self::reporting_to(completion_queue.target())
    }

    /// The same, for a completion queue that is polled on another thread.
    #[must_use]
    pub fn reporting_to(target: CompletionTarget) -> Self {
        Self {
            send: target.clone(),
            receive: target,
            send_requests: 128,
            receive_requests: 128,
            send_fragments: 1,
            receive_fragments: 1,
            inline_bytes: 8,
            path_mtu: None,
            local_address: None,
            gid_index: None,
            vlan_tag: None,
            retries: 7,
            receiver_not_ready_retries: 6,
            retransmission_timeout: RTO_MIN,
            outbound_reads: 32,
            inbound_reads: 32,
            access: Access::ALL,
            partition_key_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: None,
            acknowledge_timeout: None,
        }
    }

    /// Datagrams, reported to `completion_queue` on both sides. What is about connections (peers,
    /// retries, reads) has no effect then.
    #[must_use]
    pub fn datagram(completion_queue: &CompletionQueue) -> Self {
        Self::reporting_to(completion_queue.target())
    }

    /// Receives report to another completion queue than sends.
    #[must_use]
    pub fn receives_report_to(mut self, target: CompletionTarget) -> Self {
        self.receive = target;
        self
    }

    /// Sends that can always be outstanding. The ring may hold more.
    #[must_use]
    pub fn send_requests(mut self, count: u32) -> Self {
        self.send_requests = count;
        self
    }

    /// Receives that can always be outstanding. The ring may hold more.
    #[must_use]
    pub fn receive_requests(mut self, count: u32) -> Self {
        self.receive_requests = count;
        self
    }

    /// Fragments that a send usually has, 1..=13: sizes the ring; more are taken all the same.
    #[must_use]
    pub fn send_fragments(mut self, count: u32) -> Self {
        self.send_fragments = count;
        self
    }

    /// Fragments that a receive may have, 1..=13.
    #[must_use]
    pub fn receive_fragments(mut self, count: u32) -> Self {
        self.receive_fragments = count;
        self
    }

    /// Inline bytes that a send usually has, 0..=101: sizes the ring; more are taken all the same.
    #[must_use]
    pub fn inline_bytes(mut self, bytes: u32) -> Self {
        self.inline_bytes = bytes;
        self
    }

    /// Largest payload of a packet, bytes: 256, 512, 1024, 2048 or 4096. Default: the
    /// configuration's `rdma.path_mtu`.
    #[must_use]
    pub fn path_mtu(mut self, bytes: u32) -> Self {
        self.path_mtu = Some(bytes);
        self
    }

    /// Local IP address. Default: the device's first one. It may be one that the GID table does not
    /// have, such as that of a DHCP server's lease, and brings no VLAN.
    #[must_use]
    pub fn local_address(mut self, address: IpAddr) -> Self {
        self.local_address = Some(address);
        self
    }

    /// Source by its index in the GID table: address, and VLAN unless a tag is given. In place of
    /// [`QueuePairConfig::local_address`].
    ///
    /// Verbs: `ibv_global_route.sgid_index`.
    #[must_use]
    pub fn gid_index(mut self, index: u16) -> Self {
        self.gid_index = Some(index);
        self
    }

    /// VLAN tag: priority in bits 13 to 15, number in bits 0 to 11, 0..=4094.
    #[must_use]
    pub fn vlan_tag(mut self, tag: u16) -> Self {
        self.vlan_tag = Some(tag);
        self
    }

    /// Sets the retries without an answer, 0..=7, after which the peer counts as unreachable.
    #[must_use]
    pub fn retries(mut self, count: u8) -> Self {
        self.retries = count;
        self
    }

    /// Retries while the peer has no receive posted, 0..=6; 7 retries without end.
    #[must_use]
    pub fn receiver_not_ready_retries(mut self, count: u8) -> Self {
        self.receiver_not_ready_retries = count;
        self
    }

    /// Least time without an answer before a request is repeated, 1..=127 in steps of the card's
    /// timer, whose length is not documented. Default: 5, as Linux's driver has it; the model takes
    /// that for 67 ms, and other values in proportion.
    #[must_use]
    pub fn retransmission_timeout(mut self, steps: u8) -> Self {
        self.retransmission_timeout = steps;
        self.acknowledge_timeout = None;
        self
    }

    /// Least time without an answer before a request is repeated, as a code of verbs, 0..=31:
    /// 4.096 us times 2 to the power of the code. In place of
    /// [`QueuePairConfig::retransmission_timeout`], to the next step of the card's timer: see
    /// [`timer_steps`].
    ///
    /// Verbs: `ibv_qp_attr.timeout`.
    #[must_use]
    pub fn acknowledge_timeout(mut self, code: u8) -> Self {
        self.retransmission_timeout = timer_steps(code);
        self.acknowledge_timeout = Some(code);
        self
    }

    /// The operations that the peer may carry out here at all, besides the rights of each region.
    /// Default: all. Without [`Access::REMOTE_READ`] the peer's reads are refused. The card has one
    /// switch for the peer's writes and the answers to own reads, so only a queue pair without
    /// [`Access::LOCAL_WRITE`] refuses writes, and that one must not read.
    ///
    /// Verbs: `ibv_qp_attr.qp_access_flags`.
    #[must_use]
    pub fn remote_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Index into the port's table of partition keys. The table has one entry, 0xFFFF at index 0.
    ///
    /// Verbs: `ibv_qp_attr.pkey_index`.
    #[must_use]
    pub fn partition_key_index(mut self, index: u16) -> Self {
        self.partition_key_index = index;
        self
    }

    /// Service level, 0..=7: the priority in the VLAN tag, that of [`QueuePairConfig::vlan_tag`] or
    /// of [`QueuePairConfig::gid_index`]. It has no effect without a VLAN.
    ///
    /// Verbs: `ibv_ah_attr.sl`.
    #[must_use]
    pub fn service_level(mut self, level: u8) -> Self {
        self.service_level = Some(level);
        self
    }

    /// RDMA reads that may be under way from here, 1..=127; the peer must allow as many inbound.
    #[must_use]
    pub fn outbound_reads(mut self, count: u8) -> Self {
        self.outbound_reads = count;
        self
    }

    /// RDMA reads of the peer that may be under way, 1..=127.
    #[must_use]
    pub fn inbound_reads(mut self, count: u8) -> Self {
        self.inbound_reads = count;
        self
    }

    /// Hop limit of its packets, 1..=255.
    #[must_use]
    pub fn hop_limit(mut self, hops: u8) -> Self {
        self.hop_limit = hops;
        self
    }

    /// Traffic class of its packets.
    #[must_use]
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }

    /// Flow label, 20 bits; also decides the UDP source port.
    #[must_use]
    pub fn flow_label(mut self, label: u32) -> Self {
        self.flow_label = label;
        self
    }

    /// Refuses values that the device does not support.
    pub(super) fn check(&self) -> Result<(), RdmaError> {
        within("the number of sends", self.send_requests, 1, 16_384)?;
        within("the number of receives", self.receive_requests, 1, 16_384)?;
        within("fragments of a send", self.send_fragments, 1, MAX_FRAGMENTS)?;
        within(
            "fragments of a receive",
            self.receive_fragments,
            1,
            MAX_FRAGMENTS,
        )?;
        within("inline bytes", self.inline_bytes, 0, MAX_INLINE_BYTES)?;
        let index = self.partition_key_index.into();
        within("the index of a partition key", index, 0, 0)?;
        within("the retry count", self.retries.into(), 0, 7)?;
        let not_ready = self.receiver_not_ready_retries.into();
        within("the receiver-not-ready retry count", not_ready, 0, 7)?;
        let timeout = self.retransmission_timeout.into();
        within("the retransmission timeout", timeout, 1, 127)?;
        if let Some(code) = self.acknowledge_timeout {
            within("the acknowledge timeout", code.into(), 0, 31)?;
        }
        within("the hop limit", self.hop_limit.into(), 1, 255)?;
        within("outbound reads", self.outbound_reads.into(), 1, 127)?;
        within("inbound reads", self.inbound_reads.into(), 1, 127)?;
        within("the flow label", self.flow_label, 0, (1 << 20) - 1)
    }
}

/// The code of verbs for [`RTO_MIN`] steps of the card's timer: 67 ms.
const RTO_MIN_CODE: u32 = 14;

/// Steps of the card's timer for an acknowledge timeout of verbs: 4.096 us times 2 to the power of
/// `code`, rounded up to a step.
///
/// The length of a step is not documented. Linux's driver always writes 5; the model takes that for
/// 67 ms, which is code 14, and so does this function. The longest time is 127 steps, 1.7 s. The
/// card has no "never", which is code 0 of verbs.
#[must_use]
pub const fn timer_steps(code: u8) -> u8 {
    const MAX_STEPS: u64 = 127;
    let code = code as u32;
    if code == 0 || code > 31 {
        return MAX_STEPS as u8;
    }
    let steps = ((RTO_MIN as u64) << code).div_ceil(1 << RTO_MIN_CODE);
    if steps > MAX_STEPS {
        MAX_STEPS as u8
    } else {
        steps as u8
    }
}

#[cfg(test)]
mod tests;
