//! The current state of a queue pair.

use super::QueuePair;
use super::inner::Inner;
use crate::rdma::claim::Claim;
use crate::rdma::faults::PeerFaults;
use crate::rdma::records::{QueuePairCondition, SendState};
use crate::rdma::session::Session;
use crate::rdma::{Endpoint, RdmaError};
use ringside_bus::DmaBuffer;
use ringside_spec::rdma::commands::{QueuePairType, UploadContext};
use ringside_spec::rdma::limits::{QP_CONTEXT_ALIGNMENT, QP_CONTEXT_BYTES};
use ringside_spec::rdma::qp_context::RoceQueuePairContext;
use serde::Serialize;
use std::net::IpAddr;

/// The state of a queue pair. Verbs: `ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum QueuePairStage {
    /// INIT: it takes receives.
    Initialised,
    /// RTR: it receives and answers its peer.
    ReadyToReceive,
    /// RTS: it sends and receives.
    ReadyToSend,
    /// SQD: it receives, and sends nothing.
    Drained,
    /// ERR: the outstanding requests completed as flushed.
    Failed,
}

/// A queue pair. Verbs: `ibv_qp_attr`, `ibv_qp_init_attr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuePairReport {
    /// Its number.
    pub number: u32,
    /// It is for datagrams; else a reliable connection.
    pub is_datagram: bool,
    /// Its state.
    pub stage: QueuePairStage,
    /// Its protection domain.
    pub protection_domain: u32,
    /// Completion queue of its sends.
    pub send_completion_queue: u32,
    /// Completion queue of its receives.
    pub receive_completion_queue: u32,
    /// Largest payload of a packet, bytes.
    pub path_mtu: u32,
    /// Address that it sends from.
    pub local_address: IpAddr,
    /// Its peer, once connected.
    pub peer: Option<PeerReport>,
    /// Queue key of its datagrams.
    pub queue_key: u32,
    /// VLAN tag.
    pub vlan_tag: Option<u16>,
    /// Next packet sequence number that it sends.
    pub next_psn: u32,
    /// Oldest packet sequence number that is not acknowledged.
    pub unacknowledged_psn: u32,
    /// Packet sequence number that it expects.
    pub expected_psn: u32,
    /// Retries without an answer.
    pub retries: u8,
    /// Retries while the peer has no receive posted; 7 is without end.
    pub receiver_not_ready_retries: u8,
    /// Least time without an answer before a request is repeated, steps of the card's timer.
    pub retransmission_timeout: u8,
    /// Partition key.
    pub partition_key: u16,
    /// Hop limit of its packets.
    pub hop_limit: u8,
    /// Traffic class of its packets: DSCP in bits 2 to 7.
    pub traffic_class: u8,
    /// Flow label of its packets.
    pub flow_label: u32,
    /// The peer may write, and answers to own reads are taken.
    pub writes_allowed: bool,
    /// The peer may read.
    pub reads_allowed: bool,
    /// RDMA reads that may be under way from here.
    pub outbound_reads: u8,
    /// RDMA reads of the peer that may be under way.
    pub inbound_reads: u8,
    /// Quanta of 32 bytes that its send queue holds.
    pub send_quanta: u32,
    /// Requests that its receive queue holds.
    pub receives: u32,
    /// A shared receive queue feeds it.
    pub is_fed: bool,
    /// The errors of its peer, as far as the device reported them.
    pub faults: PeerFaults,
}

/// The peer of a connected queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeerReport {
    /// Its queue pair.
    pub queue_pair: u32,
    /// Its address.
    pub address: IpAddr,
}

impl From<&Endpoint> for PeerReport {
    fn from(peer: &Endpoint) -> Self {
        Self {
            queue_pair: peer.queue_pair,
            address: peer.address,
        }
    }
}

impl<S> QueuePair<S> {
    /// Its current state. Asks the device for its context. Control path.
    ///
    /// A queue pair that the device did not move to its error state was destroyed there: the report
    /// has the values of its configuration and its connection then.
    pub fn query(&self) -> Result<QueuePairReport, RdmaError> {
        self.inner.query()
    }
}

impl Inner {
    fn query(&self) -> Result<QueuePairReport, RdmaError> {
        let engine = self.engine();
        let buffer = engine.allocate(QP_CONTEXT_BYTES, QP_CONTEXT_ALIGNMENT)?;
        let mut state = engine.open_state()?;
        let number = self.number;
        let uploaded = state.claimed(Claim::QueuePair(number), |session| {
            session.upload_context(number, buffer)
        })?;
        let context = match uploaded {
            Some(context) => context,
            None => self.attributes.context(number, self.path.as_ref()),
        };
        let record = state.objects.queue_pairs.must(number)?;
        let stage = match record.condition.get() {
            QueuePairCondition::Usable if record.sending == SendState::Drained => {
                QueuePairStage::Drained
            }
            QueuePairCondition::Usable if !record.was_connected => QueuePairStage::Initialised,
            QueuePairCondition::Usable if record.sending == SendState::NotYet => {
                QueuePairStage::ReadyToReceive
            }
            QueuePairCondition::Usable => QueuePairStage::ReadyToSend,
            _ => QueuePairStage::Failed,
        };
        let mine = &self.attributes;
        Ok(QueuePairReport {
            number,
            is_datagram: record.kind == QueuePairType::RoceUnreliableDatagram,
            stage,
            protection_domain: context.protection_domain,
            send_completion_queue: context.tx_cq_number,
            receive_completion_queue: context.rx_cq_number,
            path_mtu: context.send_mss.into(),
            local_address: mine.local_address,
            peer: self.peer.as_ref().map(PeerReport::from),
            queue_key: context.q_key,
            vlan_tag: mine.vlan_tag,
            next_psn: context.psn_next,
            unacknowledged_psn: context.psn_unacknowledged,
            expected_psn: context.expected_psn,
            retries: context.retransmit_threshold,
            receiver_not_ready_retries: context.rnr_retry_threshold,
            retransmission_timeout: context.rto_min,
            partition_key: context.p_key,
            hop_limit: context.ttl,
            traffic_class: context.tos,
            flow_label: context.flow_label,
            writes_allowed: context.write_and_read_response_ok,
            reads_allowed: context.read_ok,
            outbound_reads: mine.outbound_reads,
            inbound_reads: mine.inbound_reads,
            send_quanta: self.send.capacity_quanta(),
            receives: self.receive_capacity,
            is_fed: self.receive.is_none(),
            faults: record.faults.report(),
        })
    }
}

impl Session<'_> {
    /// Has the device write the context of a queue pair into `buffer`. Nothing if it has destroyed
    /// the queue pair. The caller has claimed it.
    fn upload_context(
        &mut self,
        number: u32,
        buffer: DmaBuffer,
    ) -> Result<Option<RoceQueuePairContext>, RdmaError> {
        let record = self.objects.queue_pairs.must(number)?;
        if record.is_destroyed {
            return Ok(None);
        }
        let qp_type = record.kind;
        let uploaded = self.execute(UploadContext {
            buffer_address: buffer.iova().0,
            qp_number: number,
            qp_type,
            ..UploadContext::ZERO
        });
        if let Err(error) = uploaded {
            if !error.is_refusal() {
                buffer.leak();
            }
            return Err(error.into());
        }
        let words = buffer.words();
        let words = std::array::from_fn(|index| words.load_acquire(index));
        Ok(Some(RoceQueuePairContext::decode(&words)))
    }
}
