//! Connecting in two steps, as verbs has it: first to receive and answer, then to send too.
//!
//! Programs that agree on numbers by themselves choose them at each step, where
//! [`QueuePair::connect`] takes those of the configuration.

use super::{ConnectError, Connected, Initialised, QueuePair, Receiving, timer_steps};
use crate::rdma::address::{source_address, tag_of};
use crate::rdma::connection::{Endpoint, check_mtu};
use crate::rdma::numbers::within;
use crate::rdma::{Access, Destination, RdmaError};
use std::marker::PhantomData;
use std::sync::Arc;

/// Attributes for receiving, set before the first packet is received.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveAttributes {
    /// The way to the peer; its `local_address` is the one to send from.
    pub path: Destination,
    /// Queue pair of the peer, 24 bits.
    pub queue_pair: u32,
    /// PSN of the first packet that the peer sends, 24 bits.
    pub psn: u32,
    /// Largest payload of a packet, bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// RDMA reads of the peer that may be under way, 0..=127.
    pub inbound_reads: u8,
}

/// Attributes for sending, set before the first packet is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendAttributes {
    /// PSN of the first packet, 24 bits.
    pub psn: u32,
    /// Retries without an answer, 0..=7.
    pub retries: u8,
    /// Least time without an answer before a request is repeated: 4.096 us times 2 to the power of
    /// this, 0..=31, to the next step of the card's timer. See
    /// [`timer_steps`](super::timer_steps).
    pub acknowledge_timeout: u8,
    /// Retries while the peer has no receive posted, 0..=7; 7 retries without end.
    pub receiver_not_ready_retries: u8,
    /// RDMA reads that may be under way, 0..=127.
    pub outbound_reads: u8,
}

impl QueuePair<Initialised> {
    /// Sets the operations that its peer may carry out here, from its connection on: see
    /// [`QueuePairConfig::remote_access`](super::QueuePairConfig::remote_access).
    pub fn set_remote_access(&mut self, access: Access) {
        self.inner.attributes.access = access;
    }

    /// Moves it to RTR: it receives the peer's requests and answers them.
    ///
    /// Errors: [`ConnectError`]; with the queue pair if the device refused or got no command.
    pub fn receive_from(
        mut self,
        wanted: &ReceiveAttributes,
    ) -> Result<QueuePair<Receiving>, ConnectError> {
        let peer = Endpoint {
            queue_pair: wanted.queue_pair,
            start_psn: wanted.psn,
            address: wanted.path.address,
            mac: wanted.path.mac,
            path_mtu: wanted.path_mtu,
        };
        if let Err(error) = self.set_receive(wanted, &peer) {
            return Err(ConnectError::before(error, self));
        }
        self.let_receive(&peer)
    }

    fn set_receive(
        &mut self,
        wanted: &ReceiveAttributes,
        peer: &Endpoint,
    ) -> Result<(), RdmaError> {
        check_mtu(wanted.path_mtu)?;
        within("inbound reads", wanted.inbound_reads.into(), 0, 127)?;
        let label = wanted.path.flow_label;
        within("the flow label", label, 0, (1 << 20) - 1)?;
        within("the hop limit", wanted.path.hop_limit.into(), 1, 255)?;
        let vlan_tag = tag_of(wanted.path.vlan_tag, wanted.path.service_level)?;
        let attributes = &mut self.inner.attributes;
        if let Some(address) = wanted.path.local_address {
            attributes.local_address = source_address(address)?;
        }
        attributes.check_peer(peer)?;
        attributes.path_mtu = wanted.path_mtu;
        attributes.inbound_reads = wanted.inbound_reads.max(1);
        attributes.vlan_tag = vlan_tag;
        attributes.hop_limit = wanted.path.hop_limit;
        attributes.traffic_class = wanted.path.traffic_class;
        attributes.flow_label = label;
        Ok(())
    }
}

impl QueuePair<Receiving> {
    /// Sets the operations that its peer may carry out here, from the time that it sends on: as
    /// [`QueuePair::<Initialised>::set_remote_access`], for one that learns only now if it will
    /// read.
    pub fn set_remote_access(&mut self, access: Access) {
        self.inner.attributes.access = access;
    }

    /// Lets it send too.
    ///
    /// Errors: [`ConnectError`]; with the queue pair if the device refused or got no command.
    pub fn send_from(
        mut self,
        wanted: &SendAttributes,
    ) -> Result<QueuePair<Connected>, ConnectError<Receiving>> {
        let checked = within("the retry count", wanted.retries.into(), 0, 7)
            .and_then(|()| within("a packet sequence number", wanted.psn, 0, (1 << 24) - 1))
            .and_then(|()| {
                let timeout = wanted.acknowledge_timeout.into();
                within("the acknowledge timeout", timeout, 0, 31)
            })
            .and_then(|()| within("outbound reads", wanted.outbound_reads.into(), 0, 127))
            .and_then(|()| {
                let retries = wanted.receiver_not_ready_retries.into();
                within("the retries at a receiver without receives", retries, 0, 7)
            });
        if let Err(error) = checked {
            return Err(ConnectError::before(error, self));
        }
        let attributes = &mut self.inner.attributes;
        attributes.start_psn = wanted.psn;
        attributes.retries = wanted.retries;
        attributes.retransmission_timeout = timer_steps(wanted.acknowledge_timeout);
        attributes.receiver_not_ready_retries = wanted.receiver_not_ready_retries;
        attributes.outbound_reads = wanted.outbound_reads.max(1);
        self.let_send()
    }

    /// Has the device take it to RTS.
    pub(super) fn let_send(self) -> Result<QueuePair<Connected>, ConnectError<Receiving>> {
        let engine = Arc::clone(self.inner.engine());
        let what = "the path of queue pair";
        let path = self.inner.path.ok_or(RdmaError::Gone {
            what,
            number: self.inner.number,
        });
        let result = path.and_then(|path| {
            let mut state = engine.open_state()?;
            state.let_send(self.inner.number, &self.inner.attributes, &path)
        });
        match result {
            Ok(()) => Ok(QueuePair {
                inner: self.inner,
                state: PhantomData,
            }),
            Err(error) => Err(ConnectError::of(error, self)),
        }
    }
}
