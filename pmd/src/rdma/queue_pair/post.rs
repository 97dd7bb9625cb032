//! Posting: the data path. No lock, no allocation, no call of the system.

use super::inner::Inner;
use super::{Connected, QueuePair, Sending};
use crate::rdma::records::QueuePairCondition;
use crate::rdma::{BindError, FastRegionError, RemoteAddress};
use ringside_qp::{
    Fragment, PostReceiveError, PostSendError, Read, RequestError, Send, SendFlags, SendInline,
    SendKind, WorkRequest, Write, WriteInline,
};

/// The reason why a request was not posted. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// No room: poll the completion queue, then post again. The room of unsignalled sends becomes
    /// free only when a later signalled one completes.
    #[error(
        "the queue is full: poll its completion queue, then post again; sends without SIGNALLED have their room until a later signalled one completes"
    )]
    QueueFull,
    /// The queue pair has failed.
    #[error(
        "the queue pair has failed: poll its completion queue for the results of its requests, then make and connect a new one"
    )]
    Failed,
    /// The device failed.
    #[error(
        "the device failed: poll the completion queue for the outstanding requests, and make and connect a new queue pair once Device::recover has brought the device up again"
    )]
    DeviceFailed,
    /// The queue pair was destroyed with its device.
    #[error("the queue pair was destroyed when its device was shut down")]
    Destroyed,
    /// This process is a child by fork of the one that made the queue pair.
    #[error(
        "the queue pair belongs to the process that made it, and this is its child by fork: open a device in this process"
    )]
    OtherProcess,
    /// A datagram is one packet.
    #[error("a datagram of {length_bytes} bytes; the path takes {most}: split it")]
    DatagramTooLong {
        /// Its bytes.
        length_bytes: u64,
        /// The path MTU, bytes.
        most: u32,
    },
    /// Address handle and queue pair are of different protection domains.
    #[error(
        "the address handle belongs to protection domain {handle}, the queue pair to {queue_pair}"
    )]
    ForeignAddressHandle {
        /// The handle's domain.
        handle: u32,
        /// The queue pair's domain.
        queue_pair: u32,
    },
    /// A memory window that can't be bound like this.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A fast region in another state than the call needs.
    #[error(transparent)]
    FastRegion(#[from] FastRegionError),
    /// A shared receive queue feeds this queue pair.
    #[error("a shared receive queue feeds this queue pair: post there")]
    Shared,
    /// The card has none.
    #[error(
        "the E810 has no atomic operations: have the peer carry them out, or use a card that has them"
    )]
    NoAtomics,
    /// The request is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The receive request is wrong.
    #[error(transparent)]
    Receive(PostReceiveError),
}

impl From<PostSendError> for PostError {
    #[inline]
    fn from(error: PostSendError) -> Self {
        match error {
            PostSendError::QueueFull => Self::QueueFull,
            PostSendError::Request(error) => Self::Request(error),
        }
    }
}

impl From<PostReceiveError> for PostError {
    #[inline]
    fn from(error: PostReceiveError) -> Self {
        match error {
            PostReceiveError::QueueFull => Self::QueueFull,
            other => Self::Receive(other),
        }
    }
}

impl Inner {
    #[inline(always)]
    pub(super) fn usable(&self) -> Result<(), PostError> {
        if self.condition.is_usable() {
            return Ok(());
        }
        Err(self.unusable())
    }

    #[cold]
    fn unusable(&self) -> PostError {
        match self.condition.get() {
            QueuePairCondition::Destroyed => PostError::Destroyed,
            QueuePairCondition::OtherProcess => PostError::OtherProcess,
            QueuePairCondition::Lost => PostError::DeviceFailed,
            _ => PostError::Failed,
        }
    }
}

impl<S> QueuePair<S> {
    /// Posts a receive of up to as many fragments as the queue pair was made for. The device may
    /// take it at once; there is no doorbell.
    #[inline]
    pub fn receive(&mut self, id: u64, fragments: &[Fragment]) -> Result<(), PostError> {
        self.inner.usable()?;
        match &mut self.inner.receive {
            Some(queue) => Ok(queue.post(id, fragments)?),
            None => Err(PostError::Shared),
        }
    }
}

impl QueuePair<Connected> {
    /// Posts any request of connections; one of datagrams does not compile. It is sent at the next
    /// [`QueuePair::ring`] at the latest.
    #[inline(always)]
    pub fn post<R: WorkRequest>(
        &mut self,
        id: u64,
        request: &R,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        const {
            assert!(
                !R::IS_DATAGRAM,
                "a datagram cannot be posted to a connection"
            )
        };
        self.inner.usable()?;
        Ok(self.inner.send.post(id, request, flags)?)
    }

    /// RDMA write of up to 13 fragments to `remote`.
    #[inline]
    pub fn write(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        remote: RemoteAddress,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = Write {
            fragments,
            remote_address: remote.address,
            remote_key: remote.key,
            immediate: None,
        };
        self.post(id, &request, flags)
    }

    /// RDMA write that also completes a receive of the peer, with `immediate`.
    #[inline]
    pub fn write_with_immediate(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        remote: RemoteAddress,
        immediate: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = Write {
            fragments,
            remote_address: remote.address,
            remote_key: remote.key,
            immediate: Some(immediate),
        };
        self.post(id, &request, flags)
    }

    /// RDMA write of up to 101 bytes that are copied now; with `immediate` it also completes a
    /// receive of the peer.
    #[inline]
    pub fn write_inline(
        &mut self,
        id: u64,
        data: &[u8],
        remote: RemoteAddress,
        immediate: Option<u32>,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = WriteInline {
            data,
            remote_address: remote.address,
            remote_key: remote.key,
            immediate,
        };
        self.post(id, &request, flags)
    }

    /// RDMA read from `remote` into up to 13 fragments.
    #[inline]
    pub fn read(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        remote: RemoteAddress,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let request = Read {
            fragments,
            remote_address: remote.address,
            remote_key: remote.key,
            invalidate_local: false,
        };
        self.post(id, &request, flags)
    }

    /// Send of up to 13 fragments into the peer's next receive.
    #[inline]
    pub fn send(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let kind = SendKind::Plain;
        self.post(id, &Send { fragments, kind }, flags)
    }

    /// Send with a number that comes with the peer's completion.
    #[inline]
    pub fn send_with_immediate(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        immediate: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let kind = SendKind::Immediate(immediate);
        self.post(id, &Send { fragments, kind }, flags)
    }

    /// Send that invalidates a key of the peer's.
    #[inline]
    pub fn send_and_invalidate(
        &mut self,
        id: u64,
        fragments: &[Fragment],
        remote_key: u32,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let kind = SendKind::Invalidate(remote_key);
        self.post(id, &Send { fragments, kind }, flags)
    }

    /// Send of up to 101 bytes that are copied now.
    #[inline]
    pub fn send_inline(
        &mut self,
        id: u64,
        data: &[u8],
        immediate: Option<u32>,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let kind = immediate.map_or(SendKind::Plain, SendKind::Immediate);
        self.post(id, &SendInline { data, kind }, flags)
    }
}

impl<S: Sending> QueuePair<S> {
    /// Tells the device that there is work: once for a burst of posts.
    #[inline]
    pub fn ring(&self) {
        self.inner.send.ring_doorbell();
    }

    /// Quanta of 32 bytes posted since the queue pair was made, padding included. What is posted
    /// is complete once this number less [`Self::send_quanta_used`] has passed it.
    #[must_use]
    pub fn send_quanta_posted(&self) -> u64 {
        self.inner.send.head()
    }

    /// Quanta of 32 bytes that were posted and are not free again.
    #[must_use]
    pub fn send_quanta_used(&self) -> u32 {
        self.inner.send.used_quanta()
    }

    /// Quanta that can be outstanding.
    #[must_use]
    pub fn send_quanta_capacity(&self) -> u32 {
        self.inner.send.capacity_quanta()
    }
}
