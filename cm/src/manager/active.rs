//! The side that requests a connection.

use super::connection::{Connection, Path, Patience, Repeat, State};
use super::{
    ABOUT_REPLY, Connect, ConnectionId, EventKind, MAX_CONNECTIONS, Manager, Parameters, Refused,
    RequestError, area,
};
use crate::address::{ADDRESS_HEADER_BYTES, AddressHeader, Gid, PortSpace};
use crate::gsi;
use crate::mad::{Mad, Message};
use crate::message::{ConnectionReply, ConnectionRequest, MessageReceipt, ReadyToUse};
use crate::reason::Reason;
use crate::timing::{PACKET_LIFE_TIME, ack_timeout, flow_label, of_code};
use std::net::IpAddr;
use std::time::Duration;

/// Time that the peer gets for an answer, and that this side takes, a code: 4 s.
pub(super) const RESPONSE_TIMEOUT: u8 = 20;
/// Repeats of a message.
pub(super) const REPEATS: u8 = 15;
/// Time that a program may take for an answer, a code: 65 s.
pub(super) const SERVICE_TIMEOUT: u8 = 24;
/// Longest ACK timeout that a peer can make this side use: 17 s.
pub(super) const MAX_ACK_TIMEOUT: u8 = 22;
/// Private data of a request behind its address header.
const REQUEST_PRIVATE_BYTES: usize = 92 - ADDRESS_HEADER_BYTES;

impl Manager {
    /// Asks for a connection. [`EventKind::Reply`], [`EventKind::Rejected`] or
    /// [`EventKind::Unreachable`] follows.
    ///
    /// Errors: [`RequestError`]; nothing was sent.
    pub fn connect(
        &mut self,
        now: Duration,
        connect: &Connect,
    ) -> Result<ConnectionId, RequestError> {
        self.check_caller(
            (connect.local, connect.vlan),
            connect.remote,
            connect.service.port(),
        )?;
        let id = self.new_id();
        let starting_psn = self.random.packet_sequence_number();
        let request = self.request(id, starting_psn, connect)?;
        let wait = of_code(RESPONSE_TIMEOUT) + 2 * of_code(PACKET_LIFE_TIME);
        let patience = Patience::of(wait, REPEATS);
        let path = Path {
            local: request.primary_local_gid,
            vlan: connect.vlan,
            remote: request.primary_remote_gid,
            traffic_class: connect.traffic_class,
        };
        let transaction = transaction_of(id);
        let mad = Mad {
            transaction_id: transaction,
            attribute_modifier: 0,
            message: Message::Request(request),
        }
        .encode();
        self.insert(Connection {
            id,
            remote_id: 0,
            peer_guid: 0,
            transaction,
            path,
            patience,
            queue_pair: connect.queue_pair,
            parameters: own_parameters(&request, connect.vlan),
            listener: None,
            service_id: connect.service.0,
            chosen_ack_timeout: connect.ack_timeout,
            state: State::Idle,
        });
        let repeat = Repeat::new(now, mad, patience);
        self.set_state(
            id,
            State::RequestSent {
                repeat,
                acknowledged: false,
            },
        );
        self.send(path, mad);
        Ok(ConnectionId(id))
    }

    /// Checks if a caller of this node may connect to `remote`.
    pub(super) fn check_caller(
        &self,
        (local, vlan): (IpAddr, Option<u16>),
        remote: IpAddr,
        port: Option<(PortSpace, u16)>,
    ) -> Result<(), RequestError> {
        if matches!(port, Some((PortSpace::IpOverInfiniBand, _))) {
            return Err(RequestError::NotOnRoce);
        }
        if local.is_ipv4() != remote.is_ipv4() || !self.addresses.contains(&(local.into(), vlan)) {
            return Err(RequestError::Address { local, remote });
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            return Err(RequestError::Full {
                maximum: MAX_CONNECTIONS,
            });
        }
        Ok(())
    }

    fn request(
        &self,
        id: u32,
        starting_psn: u32,
        connect: &Connect,
    ) -> Result<ConnectionRequest, RequestError> {
        let consumer: [u8; REQUEST_PRIVATE_BYTES] = area(&connect.private_data)?;
        let header = AddressHeader {
            source_port: connect.source_port,
            source: connect.local,
            destination: connect.remote,
        };
        let mut private_data = [0; 92];
        private_data[..ADDRESS_HEADER_BYTES].copy_from_slice(&header.encode());
        private_data[ADDRESS_HEADER_BYTES..].copy_from_slice(&consumer);
        let default_timeout = ack_timeout(PACKET_LIFE_TIME, self.identity.ack_delay);
        Ok(ConnectionRequest {
            local_comm_id: id,
            vendor_id: 0,
            service_id: connect.service.0,
            local_ca_guid: self.identity.guid,
            local_q_key: 0,
            local_qpn: connect.queue_pair & 0xFF_FFFF,
            responder_resources: connect.responder_resources,
            local_eecn: 0,
            initiator_depth: connect.initiator_depth,
            remote_eecn: 0,
            remote_cm_response_timeout: RESPONSE_TIMEOUT,
            transport_service_type: 0,
            end_to_end_flow_control: connect.flow_control,
            starting_psn,
            local_cm_response_timeout: RESPONSE_TIMEOUT,
            retry_count: connect.retry_count.min(7),
            partition_key: gsi::PARTITION_KEY,
            path_mtu: connect.path_mtu.clamp(1, 5),
            rdc_exists: false,
            rnr_retry_count: connect.rnr_retry_count.min(7),
            max_cm_retries: REPEATS,
            srq: connect.shared_receive_queue,
            extended_transport_type: 0,
            // RoCE has no LIDs; peers expect the permissive one where a router may be on the way.
            primary_local_lid: 0xFFFF,
            primary_remote_lid: 0xFFFF,
            primary_local_gid: connect.local.into(),
            primary_remote_gid: connect.remote.into(),
            primary_flow_label: flow_label(connect.source_port, connect.service.0 as u16),
            primary_packet_rate: 0,
            primary_traffic_class: connect.traffic_class,
            primary_hop_limit: gsi::HOP_LIMIT,
            primary_sl: 0,
            primary_subnet_local: false,
            primary_local_ack_timeout: connect.ack_timeout.unwrap_or(default_timeout).min(31),
            alternate_local_lid: 0,
            alternate_remote_lid: 0,
            alternate_local_gid: Gid::NONE,
            alternate_remote_gid: Gid::NONE,
            alternate_flow_label: 0,
            alternate_packet_rate: 0,
            alternate_traffic_class: 0,
            alternate_hop_limit: 0,
            alternate_sl: 0,
            alternate_subnet_local: false,
            alternate_local_ack_timeout: 0,
            sap_supported: false,
            private_data,
        })
    }

    /// Reports that the queue pair is set up after [`EventKind::Reply`]: the connection is
    /// established and the peer notified, with at most 224 bytes of private data.
    ///
    /// Errors: [`RequestError`].
    pub fn ready(&mut self, id: ConnectionId, private_data: &[u8]) -> Result<(), RequestError> {
        let data: [u8; 224] = area(private_data)?;
        let one = self.connections.get(&id.0).ok_or(RequestError::Gone)?;
        let State::ReplyReceived = one.state else {
            return Err(RequestError::State {
                state: one.state.name(),
            });
        };
        self.set_state(
            id.0,
            State::Established {
                ready: Box::new(data),
            },
        );
        self.send_ready(id.0);
        Ok(())
    }

    fn send_ready(&mut self, id: u32) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let State::Established { ready } = &one.state else {
            return;
        };
        let message = Message::Ready(ReadyToUse {
            local_comm_id: one.id,
            remote_comm_id: one.remote_id,
            private_data: **ready,
        });
        let (path, transaction) = (one.path, one.transaction);
        self.send_message(path, transaction, message);
    }

    pub(super) fn on_reply(&mut self, now: Duration, reply: &ConnectionReply) {
        let Some(one) = self.connections.get(&reply.remote_comm_id) else {
            return;
        };
        let id = one.id;
        let same_peer = one.remote_id == reply.local_comm_id;
        match &one.state {
            State::RequestSent { .. } => self.take_reply(now, id, reply),
            State::ReplyReceived if same_peer => self.send_receipt(id, ABOUT_REPLY),
            State::Established { .. } if same_peer => self.send_ready(id),
            _ => {}
        }
    }

    fn take_reply(&mut self, now: Duration, id: u32, reply: &ConnectionReply) {
        let peer = (reply.local_ca_guid, reply.local_comm_id);
        if self.by_peer.contains_key(&peer) {
            return;
        }
        let queue_pair = (reply.local_ca_guid, reply.local_qpn);
        if let Some(&old) = self.by_queue_pair.get(&queue_pair) {
            self.refuse_stale_reply(id, reply);
            self.end_stale(now, old);
            return;
        }
        self.by_peer.insert(peer, id);
        self.by_queue_pair.insert(queue_pair, id);
        let Some(one) = self.connections.get_mut(&id) else {
            return;
        };
        one.remote_id = reply.local_comm_id;
        one.peer_guid = reply.local_ca_guid;
        let own = one.parameters;
        let timeout = ack_timeout(PACKET_LIFE_TIME, reply.target_ack_delay);
        one.parameters = Parameters {
            queue_pair: reply.local_qpn,
            send_psn: reply.starting_psn,
            // The peer's numbers count, also larger ones than were asked for. Source:
            // `cm_rep_handler` of Linux 6.12.
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            rnr_retry_count: reply.rnr_retry_count,
            flow_control: reply.end_to_end_flow_control,
            shared_receive_queue: reply.srq,
            ack_timeout: one
                .chosen_ack_timeout
                .unwrap_or(timeout)
                .min(MAX_ACK_TIMEOUT),
            ..own
        };
        let parameters = one.parameters;
        self.set_state(id, State::ReplyReceived);
        self.event(
            id,
            EventKind::Reply {
                parameters,
                private_data: reply.private_data.to_vec(),
            },
        );
    }

    /// The peer's queue pair belongs to another connection of this side. The request stays: a
    /// later reply may be good.
    fn refuse_stale_reply(&mut self, id: u32, reply: &ConnectionReply) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let refusal = Refused::because(Reason::STALE_CONNECTION);
        let message = super::rejection(id, reply.local_comm_id, ABOUT_REPLY, &refusal);
        let (path, transaction) = (one.path, one.transaction);
        self.send_message(path, transaction, Message::Reject(message));
    }

    /// Tells the peer that an answer takes longer.
    pub(super) fn send_receipt(&mut self, id: u32, about: u8) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let message = Message::Receipt(MessageReceipt {
            local_comm_id: one.id,
            remote_comm_id: one.remote_id,
            message_mraed: about,
            service_timeout: SERVICE_TIMEOUT,
            private_data: [0; 222],
        });
        let (path, transaction) = (one.path, one.transaction);
        self.send_message(path, transaction, message);
    }
}

/// The transaction id of a request. Peers copy it into their answers and do not interpret it.
pub(super) const fn transaction_of(id: u32) -> u64 {
    const AGENT: u64 = 1;
    AGENT << 32 | id as u64
}

/// Returns the queue pair parameters of the local request; the reply completes them.
fn own_parameters(request: &ConnectionRequest, vlan: Option<u16>) -> Parameters {
    Parameters {
        queue_pair: 0,
        send_psn: 0,
        receive_psn: request.starting_psn,
        responder_resources: request.responder_resources,
        initiator_depth: request.initiator_depth,
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        flow_control: request.end_to_end_flow_control,
        shared_receive_queue: request.srq,
        path_mtu: request.path_mtu,
        ack_timeout: request.primary_local_ack_timeout.min(MAX_ACK_TIMEOUT),
        flow_label: request.primary_flow_label,
        traffic_class: request.primary_traffic_class,
        local: request.primary_local_gid,
        vlan,
        remote: request.primary_remote_gid,
    }
}
