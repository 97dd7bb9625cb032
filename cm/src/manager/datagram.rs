//! Service id resolution (SIDR): the queue pair behind a datagram service.

use super::active::{REPEATS, RESPONSE_TIMEOUT, transaction_of};
use super::connection::{Connection, Path, Patience, Repeat, State};
use super::held::Request;
use super::passive::NoListener;
use super::{
    ConnectionId, EventKind, MAX_CONNECTIONS, Manager, Parameters, RequestError, Resolve,
    ServiceAnswer, ServiceKind, area,
};
use crate::address::{ADDRESS_HEADER_BYTES, AddressHeader, ServiceId};
use crate::gsi;
use crate::mad::{Mad, Message};
use crate::message::{ServiceReply, ServiceRequest};
use crate::reason::ServiceStatus;
use crate::timing::of_code;
use std::time::Duration;

/// Private data of a question behind its address header.
const SERVICE_PRIVATE_BYTES: usize = 216 - ADDRESS_HEADER_BYTES;

impl Manager {
    /// Asks for the queue pair of a datagram service. [`EventKind::ServiceReply`] or
    /// [`EventKind::Unreachable`] follows.
    ///
    /// Errors: [`RequestError`]; nothing was sent.
    pub fn resolve(
        &mut self,
        now: Duration,
        resolve: &Resolve,
    ) -> Result<ConnectionId, RequestError> {
        self.check_caller(
            (resolve.local, resolve.vlan),
            resolve.remote,
            resolve.service.port(),
        )?;
        let consumer: [u8; SERVICE_PRIVATE_BYTES] = area(&resolve.private_data)?;
        let header = AddressHeader {
            source_port: resolve.source_port,
            source: resolve.local,
            destination: resolve.remote,
        };
        let mut private_data = [0; 216];
        private_data[..ADDRESS_HEADER_BYTES].copy_from_slice(&header.encode());
        private_data[ADDRESS_HEADER_BYTES..].copy_from_slice(&consumer);
        let id = self.new_id();
        let mad = Mad {
            transaction_id: transaction_of(id),
            attribute_modifier: 0,
            message: Message::ServiceRequest(ServiceRequest {
                request_id: id,
                partition_key: gsi::PARTITION_KEY,
                service_id: resolve.service.0,
                private_data,
            }),
        }
        .encode();
        let path = Path {
            local: resolve.local.into(),
            vlan: resolve.vlan,
            remote: resolve.remote.into(),
            traffic_class: resolve.traffic_class,
        };
        self.insert_service(id, 0, transaction_of(id), path, None);
        let patience = Patience::of(of_code(RESPONSE_TIMEOUT), REPEATS);
        let repeat = Repeat::new(now, mad, patience);
        self.set_state(id, State::ServiceSent { repeat });
        self.send(path, mad);
        Ok(ConnectionId(id))
    }

    fn insert_service(
        &mut self,
        id: u32,
        remote_id: u32,
        transaction: u64,
        path: Path,
        listener: Option<super::ListenerId>,
    ) {
        self.insert(Connection {
            id,
            remote_id,
            peer_guid: 0,
            transaction,
            path,
            patience: Patience::of(of_code(RESPONSE_TIMEOUT), REPEATS),
            queue_pair: 0,
            parameters: unconnected(path),
            listener,
            service_id: 0,
            chosen_ack_timeout: None,
            state: State::Idle,
        });
    }

    pub(super) fn on_service_request(
        &mut self,
        now: Duration,
        from: Path,
        transaction: u64,
        request: &ServiceRequest,
    ) {
        let key = (from.vlan, from.remote, request.request_id);
        let is_known = self.by_service_request.contains_key(&key) || self.is_service_held(key);
        if is_known || self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        let service = ServiceId(request.service_id);
        let header = AddressHeader::decode(&request.private_data).ok();
        let listener = header.map_or_else(
            || match self.listeners.contains_key(&service) {
                true => Err(NoListener::Request),
                false => Err(NoListener::Service),
            },
            |header| {
                let found = self.listener(ServiceKind::Datagrams, service, &header)?;
                Ok((found, header))
            },
        );
        let (listener, header) = match listener {
            Ok(found) => found,
            Err(NoListener::Busy) => return,
            Err(NoListener::Service) => {
                let request = Request::Service(Box::new(*request));
                return self.hold(now, from, transaction, request);
            }
            Err(NoListener::Request) => {
                return self.refuse_service(from, transaction, request, ServiceStatus::REJECTED);
            }
        };
        let id = self.new_id();
        self.insert_service(id, request.request_id, transaction, from, Some(listener));
        self.set_state(id, State::ServiceReceived);
        self.count_waiting(listener);
        self.by_service_request.insert(key, id);
        if let Some(one) = self.connections.get_mut(&id) {
            one.service_id = request.service_id;
        }
        let private_data = request.private_data.iter().skip(ADDRESS_HEADER_BYTES);
        self.event(
            id,
            EventKind::ServiceRequest {
                listener,
                header,
                private_data: private_data.copied().collect(),
            },
        );
    }

    pub(super) fn refuse_service(
        &mut self,
        from: Path,
        transaction: u64,
        request: &ServiceRequest,
        status: ServiceStatus,
    ) {
        let message = Message::ServiceReply(ServiceReply {
            request_id: request.request_id,
            status: status.0,
            additional_info_length: 0,
            vendor_id_high: 0,
            qpn: 0,
            vendor_id_low: 0,
            service_id: request.service_id,
            q_key: 0,
            additional_info: [0; 72],
            private_data: [0; 136],
        });
        self.send_message(from, transaction, message);
    }

    /// Answers a question. Afterwards the question is forgotten: a repeat is a new one.
    ///
    /// Errors: [`RequestError`]; nothing was sent.
    pub fn answer(&mut self, id: ConnectionId, answer: &ServiceAnswer) -> Result<(), RequestError> {
        let private_data = area(&answer.private_data)?;
        let one = self.connections.get(&id.0).ok_or(RequestError::Gone)?;
        let State::ServiceReceived = one.state else {
            return Err(RequestError::State {
                state: one.state.name(),
            });
        };
        self.send_service_reply(id.0, answer, private_data);
        self.idle(id.0);
        Ok(())
    }

    pub(super) fn send_service_reply(
        &mut self,
        id: u32,
        answer: &ServiceAnswer,
        private_data: [u8; 136],
    ) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let valid = answer.status == ServiceStatus::VALID;
        let message = Message::ServiceReply(ServiceReply {
            request_id: one.remote_id,
            status: answer.status.0,
            additional_info_length: 0,
            vendor_id_high: 0,
            qpn: if valid {
                answer.queue_pair & 0xFF_FFFF
            } else {
                0
            },
            vendor_id_low: 0,
            service_id: one.service_id,
            q_key: if valid { answer.queue_key } else { 0 },
            additional_info: [0; 72],
            private_data,
        });
        let (path, transaction) = (one.path, one.transaction);
        self.send_message(path, transaction, message);
    }

    pub(super) fn on_service_reply(&mut self, reply: &ServiceReply) {
        let Some(one) = self.connections.get(&reply.request_id) else {
            return;
        };
        let State::ServiceSent { .. } = one.state else {
            return;
        };
        let id = one.id;
        self.idle(id);
        self.event(
            id,
            EventKind::ServiceReply {
                status: ServiceStatus(reply.status),
                queue_pair: reply.qpn,
                queue_key: reply.q_key,
                private_data: reply.private_data.to_vec(),
            },
        );
    }
}

/// Parameters of a request without a queue pair.
const fn unconnected(path: Path) -> Parameters {
    Parameters {
        queue_pair: 0,
        send_psn: 0,
        receive_psn: 0,
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry_count: 0,
        flow_control: false,
        shared_receive_queue: false,
        path_mtu: 0,
        ack_timeout: 0,
        flow_label: 0,
        traffic_class: path.traffic_class,
        local: path.local,
        vlan: path.vlan,
        remote: path.remote,
    }
}
