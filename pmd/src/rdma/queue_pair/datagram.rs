//! Datagram queue pairs (UD): any peer, one packet a message, delivery not promised.

use super::create::{self, Number};
use super::{
    DatagramInitialised, DatagramReady, OfDatagrams, PostError, QueuePair, QueuePairConfig,
};
use crate::Returned;
use crate::rdma::address::vlan_of;
use crate::rdma::{AddressHandle, ProtectionDomain, RdmaError};
use ringside_qp::request::Payload;
use ringside_qp::{Fragment, SendDatagram, SendFlags};
use ringside_spec::rdma::commands::QueuePairType;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

/// Queue pair numbers have 24 bits.
const MAX_QUEUE_PAIR_NUMBER: u32 = (1 << 24) - 1;

/// Number of the queue pair of the general service interface. Source: IBA 3.9.4.
const SERVICE_QUEUE_PAIR: u32 = 1;

/// A datagram queue pair that did not become ready.
#[derive(Debug, thiserror::Error)]
#[error("the datagram queue pair did not become ready: {error}")]
pub struct ReadyError {
    /// The error.
    #[source]
    pub error: RdmaError,
    queue_pair: Option<Returned<QueuePair<DatagramInitialised>>>,
}

impl ReadyError {
    /// The queue pair, to try again or to reset, if the device refused a step or got no command
    /// for it; otherwise it is destroyed.
    #[must_use]
    pub fn into_queue_pair(self) -> Option<QueuePair<DatagramInitialised>> {
        self.queue_pair.map(Returned::into_inner)
    }
}

impl ProtectionDomain {
    /// Makes a datagram queue pair. Each receive needs 40 bytes more than its message: see
    /// [`Datagram::PAYLOAD_OFFSET`](crate::rdma::Datagram::PAYLOAD_OFFSET).
    ///
    /// Errors: as for [`ProtectionDomain::queue_pair`]; nothing is left over.
    pub fn datagram_queue_pair(
        &self,
        config: QueuePairConfig,
    ) -> Result<QueuePair<DatagramInitialised>, RdmaError> {
        let kind = QueuePairType::RoceUnreliableDatagram;
        let inner = create::create(self, config, kind, Number::Any)?;
        Ok(QueuePair {
            inner,
            state: PhantomData,
        })
    }

    /// Makes the queue pair of the general service interface: number 1, a datagram queue pair for
    /// messages of connection managers. There is one in a device.
    ///
    /// Errors: as for [`ProtectionDomain::queue_pair`]; [`RdmaError::FixedInUse`] if it
    /// exists.
    pub fn service_queue_pair(
        &self,
        config: QueuePairConfig,
    ) -> Result<QueuePair<DatagramInitialised>, RdmaError> {
        let kind = QueuePairType::RoceUnreliableDatagram;
        let inner = create::create(self, config, kind, Number::Fixed(SERVICE_QUEUE_PAIR))?;
        Ok(QueuePair {
            inner,
            state: PhantomData,
        })
    }
}

impl QueuePair<DatagramInitialised> {
    /// Lets it send, and receive datagrams with this queue key.
    ///
    /// Errors: [`ReadyError`]; with the queue pair if the device refused or got no command.
    pub fn ready(mut self, queue_key: u32) -> Result<QueuePair<DatagramReady>, ReadyError> {
        self.inner.attributes.queue_key = queue_key;
        let engine = Arc::clone(self.inner.engine());
        let ready = engine
            .open_state()
            .and_then(|mut state| state.make_ready(self.inner.number, &self.inner.attributes));
        if let Err(error) = ready {
            let queue_pair = error.leaves_object().then(|| Returned::new(self));
            return Err(ReadyError { error, queue_pair });
        }
        Ok(QueuePair {
            inner: self.inner,
            state: PhantomData,
        })
    }
}

/// The destination of a datagram, and its key there.
#[derive(Clone, Copy, Debug)]
pub struct To<'a> {
    /// The way. It must stay until the send has completed.
    pub handle: &'a AddressHandle,
    /// Queue pair at the other end, 24 bits; 0xFF_FFFF for a multicast group.
    pub queue_pair: u32,
    /// Queue key there.
    pub queue_key: u32,
}

impl To<'_> {
    /// Number of the queue pair in datagrams to a multicast group. Source: IBA 9.2.3.
    pub const MULTICAST_QUEUE_PAIR: u32 = MAX_QUEUE_PAIR_NUMBER;
}

impl QueuePair<DatagramReady> {
    /// Its queue key, which peers must use.
    #[must_use]
    pub fn queue_key(&self) -> u32 {
        self.inner.attributes.queue_key
    }

    /// Largest message, bytes.
    #[must_use]
    pub fn message_bytes_most(&self) -> u32 {
        self.inner.attributes.path_mtu
    }

    /// Posts a datagram of up to 13 fragments. It is sent at the next [`QueuePair::ring`] at the
    /// latest; its completion means that it was sent, not that it arrived.
    ///
    /// Errors: [`PostError::DatagramTooLong`], [`PostError::ForeignAddressHandle`] and those of
    /// every post.
    pub fn post_send_to(
        &mut self,
        id: u64,
        to: &To<'_>,
        fragments: &[Fragment],
        immediate: Option<u32>,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let length = fragments
            .iter()
            .map(|piece| u64::from(piece.length_bytes))
            .sum();
        self.post_datagram(
            id,
            to,
            Payload::Fragments(fragments),
            (immediate, length),
            flags,
        )
    }

    /// The same with up to 101 bytes that are copied now.
    pub fn post_send_inline_to(
        &mut self,
        id: u64,
        to: &To<'_>,
        data: &[u8],
        immediate: Option<u32>,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let length = data.len() as u64;
        self.post_datagram(id, to, Payload::Inline(data), (immediate, length), flags)
    }

    fn post_datagram(
        &mut self,
        id: u64,
        to: &To<'_>,
        payload: Payload<'_>,
        (immediate, length_bytes): (Option<u32>, u64),
        flags: SendFlags,
    ) -> Result<(), PostError> {
        self.inner.usable()?;
        let most = self.message_bytes_most();
        if length_bytes > u64::from(most) {
            return Err(PostError::DatagramTooLong { length_bytes, most });
        }
        if !self.inner.domain.is(to.handle.protection_domain()) {
            return Err(self.foreign(to.handle));
        }
        let request = SendDatagram {
            payload,
            immediate,
            address_handle: to.handle.number(),
            destination: to.queue_pair & MAX_QUEUE_PAIR_NUMBER,
            queue_key: to.queue_key,
        };
        Ok(self.inner.send.post(id, &request, flags)?)
    }

    #[cold]
    fn foreign(&self, handle: &AddressHandle) -> PostError {
        PostError::ForeignAddressHandle {
            handle: handle.protection_domain().number(),
            queue_pair: self.inner.domain.number(),
        }
    }
}

impl<S: OfDatagrams> QueuePair<S> {
    /// Joins a multicast group: once it is ready, the queue pair receives the group's datagrams
    /// that have its queue key, on its own VLAN. It leaves all groups when it is destroyed or
    /// reset. Joining a group twice has no further effect.
    ///
    /// Errors: [`RdmaError::NotMulticast`], [`RdmaError::GroupFull`], [`RdmaError::Capacity`],
    /// [`RdmaError::Failed`].
    pub fn join(&self, group: IpAddr) -> Result<(), RdmaError> {
        self.join_on(group, self.inner.attributes.vlan_tag)
    }

    /// The same on a VLAN, or on frames without a tag. It may join a group on several VLANs. The
    /// number counts, bits 0 to 11 of a tag; 0 is no VLAN.
    ///
    /// Errors: as of [`QueuePair::join`], and [`RdmaError::OutOfRange`] for VLAN 4095.
    pub fn join_on(&self, group: IpAddr, vlan: Option<u16>) -> Result<(), RdmaError> {
        let key = (group, vlan_of(vlan)?);
        let engine = self.inner.engine();
        engine
            .open_state()?
            .join_group(engine, key, self.inner.number)
    }

    /// Ends that.
    ///
    /// Errors: [`RdmaError::NotInGroup`]; a refusal of the device, and the queue pair is in the
    /// group still.
    pub fn leave(&self, group: IpAddr) -> Result<(), RdmaError> {
        self.leave_on(group, self.inner.attributes.vlan_tag)
    }

    /// Ends a membership on a VLAN: see [`QueuePair::join_on`].
    ///
    /// Errors: as of [`QueuePair::leave`], and [`RdmaError::OutOfRange`] for VLAN 4095.
    pub fn leave_on(&self, group: IpAddr, vlan: Option<u16>) -> Result<(), RdmaError> {
        let key = (group, vlan_of(vlan)?);
        let engine = self.inner.engine();
        engine.open_state()?.leave_group(key, self.inner.number)
    }
}
