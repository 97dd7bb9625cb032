//! Messages that arrive.

use super::connection::{Path, State};
use super::{ABOUT_REPLY, ABOUT_REQUEST, Manager};
use crate::gsi::{Arrived, Discard};
use crate::mad::Message;
use crate::message::{
    ALTERNATE_PATH_PRIVATE_BYTES, AlternatePathResponse, LoadAlternatePath,
    MAX_ADDITIONAL_INFORMATION_BYTES, MessageReceipt, ReadyToUse,
};
use std::time::Duration;

/// APR:Status of a side that has no alternate paths.
const UNSUPPORTED: u8 = 2;

impl Manager {
    /// Takes a datagram that arrived at queue pair 1. Take the actions afterwards.
    ///
    /// A message that fits no connection is dropped without an answer, unless the standard requires
    /// one.
    ///
    /// Errors: [`Discard`]: the rules of queue pair 1 require to drop it.
    pub fn receive(&mut self, now: Duration, arrived: &Arrived<'_>) -> Result<(), Discard> {
        let mad = arrived.mad()?;
        let from = Path {
            local: arrived.destination,
            vlan: self.vlan_of(arrived)?,
            remote: arrived.source,
            traffic_class: arrived.traffic_class,
        };
        let transaction = mad.transaction_id;
        match &mad.message {
            Message::Request(message) => self.on_request(now, from, transaction, message),
            Message::Receipt(message) => self.on_receipt(now, message),
            Message::Reject(message) => self.on_rejection(now, message),
            Message::Reply(message) => self.on_reply(now, message),
            Message::Ready(message) => self.on_ready(message),
            Message::Disconnect(message) => self.on_disconnect(from, transaction, message),
            Message::DisconnectReply(message) => self.on_disconnect_reply(now, message),
            Message::ServiceRequest(message) => {
                self.on_service_request(now, from, transaction, message);
            }
            Message::ServiceReply(message) => self.on_service_reply(message),
            Message::LoadAlternatePath(message) => self.on_alternate_path(transaction, message),
            // Answers a message that this side never sends.
            Message::AlternatePathResponse(_) => {}
        }
        Ok(())
    }

    /// The VLAN of the own address that a datagram was sent to.
    ///
    /// A device that does not report tags seems to deliver frames without one: these count for an
    /// address that is on VLANs only as well, and are answered on the first of them.
    fn vlan_of(&self, arrived: &Arrived<'_>) -> Result<Option<u16>, Discard> {
        let address = arrived.destination;
        let mut own = self.addresses.iter().filter(|(own, _)| *own == address);
        let (_, first) = own.clone().next().ok_or(Discard::Destination(address))?;
        match arrived.vlan {
            vlan if own.any(|(_, own)| *own == vlan) => Ok(vlan),
            None => Ok(*first),
            Some(vlan) => Err(Discard::Vlan { address, vlan }),
        }
    }

    fn on_ready(&mut self, ready: &ReadyToUse) {
        let found = self.find(ready.remote_comm_id, ready.local_comm_id);
        if let Some((id, State::ReplySent { .. })) = found.map(|one| (one.id, &one.state)) {
            self.establish(id);
        }
    }

    /// The first receipt sets the interval of all further repeats; later ones change nothing.
    fn on_receipt(&mut self, now: Duration, receipt: &MessageReceipt) {
        let remote = match receipt.message_mraed {
            ABOUT_REQUEST => 0,
            ABOUT_REPLY => receipt.local_comm_id,
            _ => return,
        };
        let Some(one) = self.find(receipt.remote_comm_id, remote) else {
            return;
        };
        let (id, timeout) = (one.id, one.parameters.ack_timeout);
        let mut state = one.state.clone();
        match &mut state {
            State::RequestSent {
                repeat,
                acknowledged: acknowledged @ false,
            }
            | State::ReplySent {
                repeat,
                acknowledged: acknowledged @ false,
            } => {
                repeat.extend(now, receipt.service_timeout, timeout);
                *acknowledged = true;
            }
            _ => return,
        }
        self.set_state(id, state);
    }

    /// Refuses the offer of an alternate path for an established connection.
    fn on_alternate_path(&mut self, transaction: u64, offer: &LoadAlternatePath) {
        let Some(one) = self.find(offer.remote_comm_id, offer.local_comm_id) else {
            return;
        };
        let State::Established { .. } = one.state else {
            return;
        };
        let message = Message::AlternatePathResponse(AlternatePathResponse {
            local_comm_id: one.id,
            remote_comm_id: one.remote_id,
            additional_info_length: 0,
            ap_status: UNSUPPORTED,
            additional_info: [0; MAX_ADDITIONAL_INFORMATION_BYTES],
            private_data: [0; ALTERNATE_PATH_PRIVATE_BYTES],
        });
        let path = one.path;
        self.send_message(path, transaction, message);
    }
}
