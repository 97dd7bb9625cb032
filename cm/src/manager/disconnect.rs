//! The end of a connection, requested by either side.

use super::active::transaction_of;
use super::connection::{Connection, Path, Repeat, State};
use super::{
    ABOUT_OTHER, ABOUT_REPLY, ABOUT_REQUEST, Action, ConnectionId, EventKind, Manager, OutgoingMad,
    Refused, RequestError, encoded, outgoing, rejection,
};
use crate::mad::{MAD_BYTES, Message};
use crate::message::{DisconnectReply, DisconnectRequest, Rejection};
use crate::reason::{Reason, ServiceStatus};
use std::time::Duration;

/// The pause before a request is repeated that the peer refused because it had a connection to a
/// queue pair of this number, of a program that was killed: the peer ends that connection.
const AFTER_STALE: Duration = Duration::from_millis(50);

/// GUID and communication id of a peer that waits for a connection no longer.
fn peer_that_gave_up(rejection: &Rejection) -> Option<(u64, u32)> {
    if rejection.reason != Reason::TIMEOUT.0 {
        return None;
    }
    let guid = u64::from_be_bytes(*rejection.additional_info.first_chunk()?);
    Some((guid, rejection.local_comm_id))
}

impl Manager {
    /// Ends an established connection, or confirms that the peer ended it. Before that the program
    /// moves its queue pair to the error state. A connection of an address that was removed ends at
    /// once: no message can reach its peer.
    ///
    /// Errors: [`RequestError`].
    pub fn disconnect(&mut self, now: Duration, id: ConnectionId) -> Result<(), RequestError> {
        let one = self.connections.get(&id.0).ok_or(RequestError::Gone)?;
        match one.state {
            State::Established { .. } => self.send_disconnect(now, id.0),
            State::DisconnectReceived { transaction } => self.confirm(now, id.0, transaction),
            _ => {
                return Err(RequestError::State {
                    state: one.state.name(),
                });
            }
        }
        Ok(())
    }

    fn send_disconnect(&mut self, now: Duration, id: u32) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        if !self.addresses.contains(&one.path.own()) {
            self.time_wait(now, id, None);
            self.event(id, EventKind::Disconnected { by_peer: false });
            return;
        }
        let mad = encoded(transaction_of(one.id), disconnect_request(one));
        let (path, repeat) = (one.path, Repeat::new(now, mad, one.patience));
        self.set_state(id, State::DisconnectSent { repeat });
        self.send(path, mad);
    }

    /// The peer has forgotten this connection: it is ended, if it was established.
    pub(super) fn end_stale(&mut self, now: Duration, id: u32) {
        let state = self.connections.get(&id).map(|one| &one.state);
        if let Some(State::Established { .. }) = state {
            self.send_disconnect(now, id);
        }
    }

    /// Sends DREP and enters timewait.
    fn confirm(&mut self, now: Duration, id: u32, transaction: u64) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let mad = encoded(transaction, disconnect_reply(one.id, one.remote_id));
        let path = one.path;
        self.time_wait(now, id, Some(mad));
        self.send(path, mad);
    }

    /// Waits until packets of the connection can no longer arrive. From now on the peer may use its
    /// queue pair and id for another connection.
    pub(super) fn time_wait(&mut self, now: Duration, id: u32, answer: Option<[u8; MAD_BYTES]>) {
        self.wait_for_silence(now, id, answer, true);
    }

    fn wait_for_silence(
        &mut self,
        now: Duration,
        id: u32,
        answer: Option<[u8; MAD_BYTES]>,
        is_told: bool,
    ) {
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let until = one.quiet_at(now);
        self.forget_peer(id);
        let state = State::TimeWait {
            until,
            answer: answer.map(Box::new),
            is_told,
        };
        self.set_state(id, state);
    }

    pub(super) fn on_disconnect(
        &mut self,
        from: Path,
        transaction: u64,
        request: &DisconnectRequest,
    ) {
        let found = self.find(request.remote_comm_id, request.local_comm_id);
        let Some(one) = found else {
            let answer = disconnect_reply(request.remote_comm_id, request.local_comm_id);
            self.send(from, encoded(transaction, answer));
            return;
        };
        if request.remote_qpn != one.queue_pair {
            return;
        }
        let (id, path) = (one.id, one.path);
        match &one.state {
            State::ReplySent { .. } | State::Established { .. } | State::DisconnectSent { .. } => {
                // Its side is over: from now on it may use its queue pair for another connection.
                self.forget_queue_pair(id);
                self.set_state(id, State::DisconnectReceived { transaction });
                self.event(id, EventKind::Disconnected { by_peer: true });
            }
            State::TimeWait {
                answer: Some(answer),
                ..
            } => {
                let answer = **answer;
                self.send(path, answer);
            }
            // The confirmation was lost and timewait is over. Linux stays silent while the program
            // keeps the id, and its peer repeats DREQ for 74 s.
            State::Idle => {
                let answer = disconnect_reply(id, one.remote_id);
                self.send(path, encoded(transaction, answer));
            }
            _ => {}
        }
    }

    pub(super) fn on_disconnect_reply(&mut self, now: Duration, reply: &DisconnectReply) {
        let Some(one) = self.find(reply.remote_comm_id, reply.local_comm_id) else {
            return;
        };
        let id = one.id;
        match one.state {
            State::DisconnectSent { .. } => {
                self.time_wait(now, id, None);
                self.event(id, EventKind::Disconnected { by_peer: true });
            }
            State::DisconnectReceived { .. } => self.time_wait(now, id, None),
            _ => {}
        }
    }

    pub(super) fn on_rejection(&mut self, now: Duration, rejection: &Rejection) {
        if let Some(peer) = peer_that_gave_up(rejection) {
            self.drop_held(peer);
        }
        let Some(id) = self.rejected(rejection) else {
            return;
        };
        let Some(one) = self.connections.get(&id) else {
            return;
        };
        let stale = rejection.reason == Reason::STALE_CONNECTION.0;
        if let State::RequestSent {
            repeat,
            acknowledged,
        } = &one.state
            && stale
            && repeat.left > 0
        {
            let (mut repeat, acknowledged) = (repeat.clone(), *acknowledged);
            repeat.at = now + AFTER_STALE;
            let state = State::RequestSent {
                repeat,
                acknowledged,
            };
            self.set_state(id, state);
            return;
        }
        match one.state {
            State::RequestSent { .. } | State::ReplySent { .. } if !stale => self.idle(id),
            State::RequestReceived => self.idle(id),
            State::RequestSent { .. }
            | State::ReplySent { .. }
            | State::ReplyReceived
            | State::Established { .. }
            | State::DisconnectSent { .. } => self.wait_for_silence(now, id, None, false),
            _ => return,
        }
        let length = usize::from(rejection.rejected_info_length).min(72);
        let information = rejection.additional_info.iter().take(length);
        self.event(
            id,
            EventKind::Rejected {
                reason: Reason(rejection.reason),
                additional_information: information.copied().collect(),
                private_data: rejection.private_data.to_vec(),
            },
        );
    }

    /// The connection that a rejection means.
    fn rejected(&self, rejection: &Rejection) -> Option<u32> {
        if rejection.reason == Reason::TIMEOUT.0 {
            return self.by_peer.get(&peer_that_gave_up(rejection)?).copied();
        }
        let remote = match rejection.message_rejected {
            ABOUT_REQUEST => 0,
            _ => rejection.local_comm_id,
        };
        let own = rejection.remote_comm_id;
        self.find(own, remote).map(|one| one.id)
    }

    /// Drops a connection in any state: the peer is notified once, and the id becomes invalid.
    pub fn destroy(&mut self, now: Duration, id: ConnectionId) {
        let Some(one) = self.connections.get(&id.0) else {
            return;
        };
        match one.state {
            // No message leaves from an address that is not this node's any more.
            _ if !self.addresses.contains(&one.path.own()) => {}
            // It leaves once, as from Linux: no connection is left that repeats it. A peer that
            // misses it learns of the end when its next packet is not acknowledged.
            State::Established { .. } => self.send_disconnect(now, id.0),
            State::ServiceReceived => self.send_service_reply(
                id.0,
                &super::ServiceAnswer {
                    status: ServiceStatus::REJECTED,
                    queue_pair: 0,
                    queue_key: 0,
                    private_data: Vec::new(),
                },
                [0; 136],
            ),
            _ => {
                if let Some(farewell) = self.farewell(id) {
                    self.actions.push_back(Action::Send(farewell));
                }
            }
        }
        self.remove(id.0);
    }

    /// The device of this node failed: its queue pairs are gone, queue pair 1 too. Every connection
    /// and every open question ends, with [`EventKind::DeviceFailed`]. The messages that tell the
    /// peers are actions of now; they leave once there is a queue pair 1 again.
    ///
    /// Listeners stay, and so do requests that the program has not answered: it can accept them
    /// with queue pairs of the device after its recovery. Connections in timewait stay in it.
    pub fn lose_device(&mut self) {
        let stays = |state: &State| {
            matches!(
                state,
                State::Idle
                    | State::TimeWait { .. }
                    | State::RequestReceived
                    | State::ServiceReceived
            )
        };
        let lost = self.connections.values().filter(|one| !stays(&one.state));
        for id in lost.map(|one| one.id).collect::<Vec<_>>() {
            let again = self.connections.get(&id).and_then(|one| match &one.state {
                // The failure may have lost the message.
                State::DisconnectSent { repeat } => Some(outgoing(one.path, *repeat.mad)),
                _ => None,
            });
            if let Some(message) = again.or_else(|| self.farewell(ConnectionId(id))) {
                self.actions.push_back(Action::Send(message));
            }
            self.idle(id);
            self.event(id, EventKind::DeviceFailed);
        }
    }

    /// The message that tells the peer of the end of a connection, as [`Manager::destroy`] sends
    /// it: another process can send it once this one was killed. `None` for a connection whose
    /// peer expects nothing, and for service requests.
    #[must_use]
    pub fn farewell(&self, id: ConnectionId) -> Option<OutgoingMad> {
        let one = self.connections.get(&id.0)?;
        let consumer = Refused::because(Reason::CONSUMER);
        let reject =
            |rejected, why| Message::Reject(rejection(one.id, one.remote_id, rejected, why));
        let (transaction_id, message) = match one.state {
            State::RequestSent { .. } => {
                let refusal = Refused {
                    reason: Reason::TIMEOUT,
                    additional_information: self.identity.guid.to_be_bytes().to_vec(),
                    private_data: Vec::new(),
                };
                (one.transaction, reject(ABOUT_OTHER, &refusal))
            }
            State::RequestReceived => (one.transaction, reject(ABOUT_REQUEST, &consumer)),
            State::ReplyReceived => (one.transaction, reject(ABOUT_REPLY, &consumer)),
            State::ReplySent { .. } => (one.transaction, reject(ABOUT_OTHER, &consumer)),
            State::Established { .. } => (transaction_of(one.id), disconnect_request(one)),
            State::DisconnectReceived { transaction } => {
                (transaction, disconnect_reply(one.id, one.remote_id))
            }
            State::Idle
            | State::DisconnectSent { .. }
            | State::TimeWait { .. }
            | State::ServiceSent { .. }
            | State::ServiceReceived => return None,
        };
        let payload = encoded(transaction_id, message);
        Some(outgoing(one.path, payload))
    }
}

/// DREQ of a connection.
fn disconnect_request(one: &Connection) -> Message {
    Message::Disconnect(DisconnectRequest {
        local_comm_id: one.id,
        remote_comm_id: one.remote_id,
        remote_qpn: one.parameters.queue_pair,
        private_data: [0; 220],
    })
}

/// DREP.
fn disconnect_reply(local: u32, remote: u32) -> Message {
    Message::DisconnectReply(DisconnectReply {
        local_comm_id: local,
        remote_comm_id: remote,
        private_data: [0; 224],
    })
}
