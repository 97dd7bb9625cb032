//! The side that receives the request for a connection.

use super::active::MAX_ACK_TIMEOUT;
use super::connection::{Connection, Path, Patience, Repeat, State};
use super::held::Request;
use super::{
    ABOUT_OTHER, ABOUT_REPLY, ABOUT_REQUEST, Accept, ConnectionId, EventKind, ListenerId,
    MAX_CONNECTIONS, Manager, Parameters, Refused, RequestError, ServiceKind, area, rejection,
};
use crate::address::{ADDRESS_HEADER_BYTES, AddressHeader, ServiceId};
use crate::gsi;
use crate::mad::{Mad, Message};
use crate::message::{
    ConnectionReply, ConnectionRequest, MAX_ADDITIONAL_INFORMATION_BYTES,
    MAX_REJECTION_PRIVATE_BYTES,
};
use crate::reason::Reason;
use crate::timing::of_code;
use std::time::Duration;

/// Private data of a reply.
const REPLY_PRIVATE_BYTES: usize = 196;

/// The reason why a request finds no listener.
pub(super) enum NoListener {
    /// none for the service id
    Service,
    /// the service has one, not for this request
    Request,
    /// the listener's backlog is full: the request is forgotten, a repeat may succeed. Linux does
    /// the same (`ucma.c` reports `ENOMEM`, and `cm.c` sends no rejection then)
    Busy,
}

impl Manager {
    pub(super) fn on_request(
        &mut self,
        now: Duration,
        from: Path,
        transaction: u64,
        request: &ConnectionRequest,
    ) {
        let peer = (request.local_ca_guid, request.local_comm_id);
        if let Some(&id) = self.by_peer.get(&peer) {
            if let Some(State::RequestReceived) = self.connections.get(&id).map(|one| &one.state) {
                self.send_receipt(id, ABOUT_REQUEST);
            }
            return;
        }
        if self.is_held(peer) {
            return;
        }
        let refuse = |manager: &mut Self, refusal: &Refused| {
            manager.refuse_request(from, transaction, request, refusal);
        };
        let queue_pair = (request.local_ca_guid, request.local_qpn);
        if let Some(&old) = self.by_queue_pair.get(&queue_pair) {
            refuse(self, &Refused::because(Reason::STALE_CONNECTION));
            self.end_stale(now, old);
            return;
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        if !self.listeners.contains_key(&ServiceId(request.service_id)) {
            let request = Request::Connection(Box::new(*request));
            return self.hold(now, from, transaction, request);
        }
        match self.judge(request, from) {
            Ok((listener, header)) => {
                self.take_request(from, transaction, request, listener, header);
            }
            Err(Some(refusal)) => refuse(self, &refusal),
            Err(None) => {}
        }
    }

    /// Rejects a request of which nothing is kept.
    fn refuse_request(
        &mut self,
        from: Path,
        transaction: u64,
        request: &ConnectionRequest,
        refusal: &Refused,
    ) {
        let message = rejection(0, request.local_comm_id, ABOUT_REQUEST, refusal);
        self.send_message(from, transaction, Message::Reject(message));
    }

    /// Rejects a request for a service that has no listener.
    pub(super) fn refuse_unserved(
        &mut self,
        from: Path,
        transaction: u64,
        request: &ConnectionRequest,
    ) {
        let refusal = Refused::because(Reason::INVALID_SERVICE_ID);
        self.refuse_request(from, transaction, request, &refusal);
    }

    /// The listener of a request and its addresses, or the refusal, or `None` to drop the request.
    fn judge(
        &self,
        request: &ConnectionRequest,
        from: Path,
    ) -> Result<(ListenerId, AddressHeader), Option<Refused>> {
        let service = ServiceId(request.service_id);
        self.check_path(request, from).map_err(Some)?;
        let consumer = || Some(Refused::because(Reason::CONSUMER));
        let reliable = request.transport_service_type == 0 && request.extended_transport_type == 0;
        if !reliable {
            return Err(consumer());
        }
        let header = AddressHeader::decode(&request.private_data).map_err(|_| consumer())?;
        match self.listener(ServiceKind::Connections, service, &header) {
            Ok(listener) => Ok((listener, header)),
            Err(NoListener::Service | NoListener::Request) => Err(consumer()),
            Err(NoListener::Busy) => Err(None),
        }
    }

    /// Checks if the path that a request names leads to this node.
    fn check_path(&self, request: &ConnectionRequest, from: Path) -> Result<(), Refused> {
        const MEMBERSHIP: u16 = 0x8000;
        let refused = |reason| Refused {
            reason,
            additional_information: self
                .addresses
                .first()
                .map_or(Vec::new(), |(gid, _)| gid.0.to_vec()),
            private_data: Vec::new(),
        };
        let same_family =
            request.primary_local_gid.address().is_ipv4() == from.remote.address().is_ipv4();
        if !self.has_address(request.primary_remote_gid)
            || !same_family
            || request.partition_key | MEMBERSHIP != gsi::PARTITION_KEY
        {
            return Err(refused(Reason::PRIMARY_REMOTE_GID));
        }
        if request.alternate_local_lid != 0 {
            return Err(refused(Reason::ALTERNATE_REMOTE_GID));
        }
        Ok(())
    }

    /// The listener of a service for a caller with these addresses, and requests of this kind.
    pub(super) fn listener(
        &self,
        kind: ServiceKind,
        service: ServiceId,
        header: &AddressHeader,
    ) -> Result<ListenerId, NoListener> {
        let listeners = self.listeners.get(&service).ok_or(NoListener::Service)?;
        let own = self.has_address(header.destination.into());
        let fits = listeners
            .iter()
            .find(|one| own && one.at.contains(header.destination))
            .filter(|one| one.kind == kind)
            .ok_or(NoListener::Request)?;
        if fits.waiting >= fits.backlog {
            return Err(NoListener::Busy);
        }
        Ok(fits.id)
    }

    pub(super) fn count_waiting(&mut self, listener: ListenerId) {
        let listeners = self.listeners.values_mut().flatten();
        for one in listeners.filter(|one| one.id == listener) {
            one.waiting += 1;
        }
    }

    /// The program has read a request: it does not count for the backlog any more, and outlives its
    /// listener. Programs that hold requests in a queue of their own leave it to the answer.
    pub fn request_read(&mut self, id: ConnectionId) {
        let waiting = self.connections.get_mut(&id.0);
        let waiting = waiting.filter(|one| one.state.waits_for_program());
        if let Some(listener) = waiting.and_then(|one| one.listener.take()) {
            self.uncount_waiting(listener);
        }
    }

    pub(super) fn uncount_waiting(&mut self, listener: ListenerId) {
        let listeners = self.listeners.values_mut().flatten();
        for one in listeners.filter(|one| one.id == listener) {
            one.waiting = one.waiting.saturating_sub(1);
        }
    }

    fn take_request(
        &mut self,
        from: Path,
        transaction: u64,
        request: &ConnectionRequest,
        listener: ListenerId,
        header: AddressHeader,
    ) {
        let id = self.new_id();
        let path = Path {
            local: from.local,
            vlan: from.vlan,
            remote: request.primary_local_gid,
            traffic_class: request.primary_traffic_class,
        };
        let parameters = Parameters {
            queue_pair: request.local_qpn,
            send_psn: request.starting_psn,
            receive_psn: self.random.packet_sequence_number(),
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            flow_control: request.end_to_end_flow_control,
            shared_receive_queue: request.srq,
            path_mtu: request.path_mtu,
            ack_timeout: request.primary_local_ack_timeout.clamp(1, MAX_ACK_TIMEOUT),
            flow_label: request.primary_flow_label,
            traffic_class: request.primary_traffic_class,
            local: from.local,
            vlan: from.vlan,
            remote: request.primary_local_gid,
        };
        self.insert(Connection {
            id,
            remote_id: request.local_comm_id,
            peer_guid: request.local_ca_guid,
            transaction,
            path,
            patience: Patience::of(
                of_code(request.local_cm_response_timeout),
                request.max_cm_retries,
            ),
            queue_pair: 0,
            parameters,
            listener: Some(listener),
            service_id: request.service_id,
            chosen_ack_timeout: None,
            state: State::RequestReceived,
        });
        self.count_waiting(listener);
        let peer = (request.local_ca_guid, request.local_comm_id);
        self.by_peer.insert(peer, id);
        let queue_pair = (request.local_ca_guid, request.local_qpn);
        self.by_queue_pair.insert(queue_pair, id);
        let private_data = request.private_data.iter().skip(ADDRESS_HEADER_BYTES);
        self.event(
            id,
            EventKind::Request {
                listener,
                parameters,
                header,
                private_data: private_data.copied().collect(),
            },
        );
    }

    /// Checks if a request may be accepted, before the queue pair moves.
    ///
    /// Errors: those of [`Manager::accept`].
    pub fn check_accept(&self, id: ConnectionId, accept: &Accept) -> Result<(), RequestError> {
        let one = self.connections.get(&id.0).ok_or(RequestError::Gone)?;
        let State::RequestReceived = one.state else {
            return Err(RequestError::State {
                state: one.state.name(),
            });
        };
        area::<REPLY_PRIVATE_BYTES>(&accept.private_data)?;
        Ok(())
    }

    /// Accepts a request. The queue pair already receives and sends: data may arrive before
    /// [`EventKind::Established`].
    ///
    /// Errors: [`RequestError`]; nothing was sent.
    pub fn accept(
        &mut self,
        now: Duration,
        id: ConnectionId,
        accept: &Accept,
    ) -> Result<(), RequestError> {
        self.check_accept(id, accept)?;
        let private_data: [u8; REPLY_PRIVATE_BYTES] = area(&accept.private_data)?;
        let ack_delay = self.identity.ack_delay;
        let guid = self.identity.guid;
        let one = self.connections.get_mut(&id.0).ok_or(RequestError::Gone)?;
        one.queue_pair = accept.queue_pair;
        one.parameters.responder_resources = accept.responder_resources;
        one.parameters.initiator_depth = accept.initiator_depth;
        let mad = Mad {
            transaction_id: one.transaction,
            attribute_modifier: 0,
            message: Message::Reply(ConnectionReply {
                local_comm_id: one.id,
                remote_comm_id: one.remote_id,
                local_q_key: 0,
                local_qpn: accept.queue_pair & 0xFF_FFFF,
                vendor_id_high: 0,
                local_ee_context: 0,
                vendor_id_middle: 0,
                starting_psn: one.parameters.receive_psn,
                vendor_id_low: 0,
                responder_resources: accept.responder_resources,
                initiator_depth: accept.initiator_depth,
                target_ack_delay: ack_delay.min(31),
                failover_accepted: 0,
                end_to_end_flow_control: accept.flow_control,
                rnr_retry_count: accept.rnr_retry_count.min(7),
                srq: accept.shared_receive_queue,
                local_ca_guid: guid,
                private_data,
            }),
        }
        .encode();
        let path = one.path;
        let repeat = Repeat::new(now, mad, one.patience);
        self.set_state(
            id.0,
            State::ReplySent {
                repeat,
                acknowledged: false,
            },
        );
        self.send(path, mad);
        Ok(())
    }

    /// Refuses a request; or, after [`EventKind::Reply`], the reply.
    ///
    /// Errors: [`RequestError`]; nothing was sent.
    pub fn reject(&mut self, id: ConnectionId, refusal: &Refused) -> Result<(), RequestError> {
        area::<MAX_REJECTION_PRIVATE_BYTES>(&refusal.private_data)?;
        area::<MAX_ADDITIONAL_INFORMATION_BYTES>(&refusal.additional_information)?;
        let one = self.connections.get(&id.0).ok_or(RequestError::Gone)?;
        let about = match one.state {
            State::RequestReceived => ABOUT_REQUEST,
            State::ReplyReceived => ABOUT_REPLY,
            State::ReplySent { .. } => ABOUT_OTHER,
            _ => {
                return Err(RequestError::State {
                    state: one.state.name(),
                });
            }
        };
        self.reject_message(id.0, about, refusal);
        self.idle(id.0);
        Ok(())
    }

    /// The first packet of the peer arrived at the queue pair: the peer's RTU is lost or late.
    pub fn packet_arrived(&mut self, id: ConnectionId) {
        let state = self.connections.get(&id.0).map(|one| &one.state);
        if let Some(State::ReplySent { .. }) = state {
            self.establish(id.0);
        }
    }

    pub(super) fn establish(&mut self, id: u32) {
        self.set_state(
            id,
            State::Established {
                ready: Box::new([0; 224]),
            },
        );
        self.event(id, EventKind::Established);
    }
}
