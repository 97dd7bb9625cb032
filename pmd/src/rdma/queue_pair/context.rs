//! The context of a queue pair: its parameters as the device reads them.

use super::QueuePairConfig;
use crate::rdma::address::{MacAddress, as_number, source_address, tag_of};
use crate::rdma::connection::{Endpoint, check_mtu};
use crate::rdma::gids::Gids;
use crate::rdma::{Access, RdmaError};
use ringside_config::LocalAddress;
use ringside_qp::CompletionContext;
use ringside_spec::rdma::commands::QueuePairType;
use ringside_spec::rdma::qp_context::{
    ACK_CREDITS, CONGESTION_WINDOW, DEFAULT_P_KEY, INITIAL_LSN, ROCE_UDP_PORT,
    RoceQueuePairContext, SOURCE_PORT_WITHOUT_PATH, ird_code,
};
use std::net::IpAddr;

/// The attributes that stay the same over the life of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: QueuePairType,
    /// of datagrams; 0 until it is ready
    pub(crate) queue_key: u32,
    pub(crate) protection_domain: u32,
    pub(crate) completion_context: CompletionContext,
    pub(crate) send_address: u64,
    pub(crate) receive_address: u64,
    pub(crate) send_size_code: u8,
    pub(crate) receive_size_code: u8,
    pub(crate) receive_element_code: u8,
    pub(crate) send_queue_number: u32,
    pub(crate) receive_queue_number: u32,
    pub(crate) local_address: IpAddr,
    pub(crate) mac: MacAddress,
    pub(crate) path_mtu: u32,
    pub(crate) vlan_tag: Option<u16>,
    pub(crate) start_psn: u32,
    pub(crate) retries: u8,
    pub(crate) receiver_not_ready_retries: u8,
    pub(crate) retransmission_timeout: u8,
    pub(crate) outbound_reads: u8,
    pub(crate) inbound_reads: u8,
    pub(crate) access: Access,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) queue_set_handle: u16,
}

/// The destination of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) peer: Endpoint,
    pub(crate) arp_index: u16,
}

impl Attributes {
    /// The facts that a peer needs.
    pub(super) fn endpoint(&self, number: u32) -> Endpoint {
        Endpoint {
            queue_pair: number,
            start_psn: self.start_psn,
            address: self.local_address,
            mac: self.mac,
            path_mtu: self.path_mtu,
        }
    }

    /// True if this peer can be connected to.
    pub(super) fn check_peer(&self, peer: &Endpoint) -> Result<(), RdmaError> {
        peer.check()?;
        if self.local_address.is_ipv4() == peer.address.is_ipv4() {
            return Ok(());
        }
        Err(RdmaError::AddressFamily {
            local: self.local_address,
            peer: peer.address,
        })
    }

    /// The context of queue pair `number`; `path` once it is connected.
    ///
    /// Datagrams take address, VLAN, hop limit and traffic class from their address handles: those
    /// of the context stay 0. Source: irdma `verbs.c`, irdma_modify_qp_roce, which writes them for
    /// IB_QP_AV only.
    pub(super) fn context(&self, number: u32, path: Option<&Path>) -> RoceQueuePairContext {
        let without_path = RoceQueuePairContext {
            rq_wqe_size_code: self.receive_element_code,
            protection_domain: self.protection_domain,
            sq_address: self.send_address,
            rq_address: self.receive_address,
            rq_size_code: self.receive_size_code,
            sq_size_code: self.send_size_code,
            source_port: SOURCE_PORT_WITHOUT_PATH,
            destination_port: ROCE_UDP_PORT,
            send_mss: self.path_mtu as u16,
            ack_credits: ACK_CREDITS,
            p_key: DEFAULT_P_KEY,
            q_key: self.queue_key,
            psn_next: self.start_psn,
            lsn: INITIAL_LSN,
            psn_max: self.start_psn,
            psn_unacknowledged: self.start_psn,
            congestion_window: CONGESTION_WINDOW,
            retransmit_threshold: self.retries,
            rnr_retry_threshold: self.receiver_not_ready_retries,
            rto_min: self.retransmission_timeout,
            tx_cq_number: self.send_queue_number,
            rx_cq_number: self.receive_queue_number,
            source_mac: self.mac,
            ord_size: self.outbound_reads,
            ird_size: ird_code(self.inbound_reads.into()).unwrap_or(0),
            write_and_read_response_ok: self.access.contains(Access::LOCAL_WRITE),
            read_ok: self.access.contains(Access::REMOTE_READ),
            bind_enable: true,
            fast_register_enable: true,
            completion_context: self.completion_context.0,
            queue_set_handle: self.queue_set_handle,
            ..RoceQueuePairContext::ZERO
        };
        if self.kind == QueuePairType::RoceUnreliableDatagram {
            return without_path;
        }
        let unconnected = RoceQueuePairContext {
            ipv4: self.local_address.is_ipv4(),
            insert_vlan: self.vlan_tag.is_some(),
            vlan_tag: self.vlan_tag.unwrap_or(0),
            ttl: self.hop_limit,
            tos: self.traffic_class,
            flow_label: self.flow_label,
            local_ip: as_number(self.local_address),
            ..without_path
        };
        let Some(Path { peer, arp_index }) = path else {
            return unconnected;
        };
        RoceQueuePairContext {
            source_port: source_port(self.flow_label, number, peer.queue_pair),
            destination_ip: as_number(peer.address),
            destination_qp: peer.queue_pair,
            expected_psn: peer.start_psn,
            arp_index: *arp_index,
            remote_endpoint_index: u32::from(*arp_index),
            send_mss: self.path_mtu.min(peer.path_mtu) as u16,
            ..unconnected
        }
    }
}

/// The part of the attributes that a configuration gives, checked.
pub(super) struct Wanted {
    pub(super) path_mtu: u32,
    pub(super) local_address: IpAddr,
    pub(super) vlan_tag: Option<u16>,
}

impl Wanted {
    pub(super) fn of(
        config: &QueuePairConfig,
        default_mtu: u32,
        gids: &Gids,
    ) -> Result<Self, RdmaError> {
        let path_mtu = config.path_mtu.unwrap_or(default_mtu);
        check_mtu(path_mtu)?;
        let source = match (config.local_address, config.gid_index) {
            (_, Some(index)) => gids.at(index)?,
            (Some(address), None) => LocalAddress::new(source_address(address)?, 1),
            (None, None) => gids.first().ok_or_else(|| RdmaError::Unavailable {
                reason: "the port has no IP address; add one with Device::add_address".to_owned(),
            })?,
        };
        Ok(Self {
            path_mtu,
            local_address: source.address,
            vlan_tag: tag_of(config.vlan_tag.or(source.vlan), config.service_level)?,
        })
    }
}

/// UDP source port of a connection: from the flow label, or from both queue pair numbers if it
/// is 0.
///
/// Source: Linux `include/rdma/ib_verbs.h`, rdma_flow_label_to_udp_sport, rdma_calc_flow_label.
fn source_port(flow_label: u32, local: u32, remote: u32) -> u16 {
    let label = match flow_label {
        0 => {
            let mixed = u64::from(local) * u64::from(remote);
            let mixed = mixed ^ (mixed >> 20);
            ((mixed ^ (mixed >> 40)) & 0xF_FFFF) as u32
        }
        label => label,
    };
    let folded = (label & 0x3FFF) ^ (label >> 14);
    0xC000 | (folded as u16 & 0x3FFF)
}

#[cfg(test)]
mod tests;
