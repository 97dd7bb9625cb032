//! Ids and event channels, as the library keeps them.

use super::abi::{ibv_sa_path_rec, rdma_addrinfo, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::abi::{ibv_ah_attr, ibv_qp_init_attr};
use crate::channel::EventQueue;
use crate::device::lock;
use ringside_cm::{ConnectionId, ListenerId, Parameters, PortSpace};
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts the ids and datagram sockets of a program.
#[derive(Debug)]
pub(super) struct User;

static USERS: AtomicUsize = AtomicUsize::new(0);

impl User {
    pub(super) fn new() -> Self {
        USERS.fetch_add(1, Ordering::Relaxed);
        Self
    }

    /// True if there is an id or a datagram socket.
    pub(super) fn exists() -> bool {
        USERS.load(Ordering::Relaxed) > 0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        USERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An event channel.
#[repr(C)]
pub(super) struct ChannelObject {
    pub(super) public: rdma_event_channel,
    pub(super) notices: EventQueue<Notice>,
}

impl ChannelObject {
    /// A channel without events, or an errno value.
    pub(super) fn make() -> Result<*mut rdma_event_channel, c_int> {
        let notices = EventQueue::unused()?;
        let made = Box::new(Self {
            public: rdma_event_channel {
                fd: notices.descriptor(),
            },
            notices,
        });
        Ok(Box::into_raw(made).cast())
    }

    /// # Safety
    /// `channel` was made here, and is not destroyed while the result is used.
    pub(super) unsafe fn of<'a>(channel: *mut rdma_event_channel) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*channel.cast() }
    }

    /// The channel, for an id to be told of its events there; `EIO` if it is a parent's: it takes
    /// no event in a child of a fork.
    ///
    /// # Safety
    /// As for [`Self::of`].
    pub(super) unsafe fn own(
        channel: *mut rdma_event_channel,
    ) -> Result<*mut rdma_event_channel, c_int> {
        // SAFETY: the caller's promise.
        let notices = &unsafe { Self::of(channel) }.notices;
        notices.begin();
        match notices.is_inherited() {
            true => Err(libc::EIO),
            false => Ok(channel),
        }
    }

    /// # Safety
    /// `channel` was made here, and nothing uses it any more.
    pub(super) unsafe fn free(channel: *mut rdma_event_channel) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(channel.cast::<Self>()) });
    }
}

/// The unread events of an id; `None` once the program has destroyed its channel.
///
/// # Safety
/// `id` was made here, and is not destroyed while the result is used.
pub(super) unsafe fn notices_of<'a>(id: *mut rdma_cm_id) -> Option<&'a EventQueue<Notice>> {
    // SAFETY: the caller's promise; a channel leaves its ids before it is destroyed.
    unsafe {
        let channel = (*id).channel.cast::<ChannelObject>();
        channel.as_ref().map(|channel| &channel.notices)
    }
}

/// Events that the program has read and not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Reads {
    unacknowledged: Mutex<u32>,
    acknowledged: Condvar,
}

impl Reads {
    pub(super) fn count(&self) {
        *lock(&self.unacknowledged) += 1;
    }

    pub(super) fn acknowledge(&self) {
        let mut count = lock(&self.unacknowledged);
        *count = count.saturating_sub(1);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has acknowledged all of them.
    pub(super) fn wait(&self) {
        let mut count = lock(&self.unacknowledged);
        while *count > 0 {
            count = self
                .acknowledged
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The data of an event besides its kind.
#[derive(Clone)]
pub(super) enum Detail {
    /// nothing
    None,
    /// of a connection
    Connection(rdma_conn_param),
    /// of a datagram service
    Datagram {
        route: ibv_ah_attr,
        queue_pair: u32,
        queue_key: u32,
    },
    /// of a group that was joined
    Group {
        route: ibv_ah_attr,
        /// the value that the program gave when it joined
        context: usize,
        /// those of the group
        reads: Arc<Reads>,
    },
    /// of the program's own event
    Argument(u64),
}

/// An event that no program has read.
pub(super) struct Notice {
    /// address of the id
    pub(super) id: usize,
    /// address of the listener of a request, or 0
    pub(super) listener: usize,
    pub(super) event: c_int,
    pub(super) status: c_int,
    pub(super) detail: Detail,
    pub(super) data: Vec<u8>,
    /// the peer accepted: the queue pair is set when the program reads this
    pub(super) is_reply: bool,
}

// SAFETY: the only pointer in it is that of private data, which is null until the event is read.
unsafe impl Send for Notice {}

impl Notice {
    pub(super) const fn new(id: usize, event: c_int, status: c_int) -> Self {
        Self {
            id,
            listener: 0,
            event,
            status,
            detail: Detail::None,
            data: Vec::new(),
            is_reply: false,
        }
    }

    /// The id whose destruction waits for the acknowledgement.
    pub(super) const fn counted(&self) -> usize {
        if self.listener != 0 {
            self.listener
        } else {
            self.id
        }
    }
}

/// Addresses that were looked up and not fetched.
pub(super) struct AddressList(*mut rdma_addrinfo);

impl AddressList {
    /// # Safety
    /// The list came from `rdma_getaddrinfo`, and is this owner's.
    pub(super) const unsafe fn own(list: *mut rdma_addrinfo) -> Self {
        Self(list)
    }

    /// Gives the list up.
    pub(super) fn release(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for AddressList {
    fn drop(&mut self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: the owner's list; it and what the program has put into it is of `malloc`.
            unsafe {
                let one = next;
                next = (*one).ai_next;
                libc::free((*one).ai_src_addr.cast());
                libc::free((*one).ai_dst_addr.cast());
                libc::free((*one).ai_src_canonname.cast());
                libc::free((*one).ai_dst_canonname.cast());
                libc::free((*one).ai_route);
                libc::free((*one).ai_connect);
                libc::free(one.cast());
            }
        }
    }
}

/// A multicast group that an id joined.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) address: IpAddr,
    /// VLAN of the id's own address
    pub(super) vlan: Option<u16>,
    /// the queue pair of the id receives from it
    pub(super) is_attached: bool,
    /// the program only sends to it
    pub(super) is_for_sending: bool,
    /// its event of joining, which names a value of the program
    pub(super) reads: Arc<Reads>,
}

/// The state of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Made,
    Bound,
    /// a neighbour is being asked
    Resolving,
    Addressed,
    Routed,
    Listening,
    Requested,
    Connecting,
    /// its channel was destroyed: nothing more can be done with it
    Orphaned,
    /// the program destroys it: it stays until the last event is acknowledged
    Gone,
}

/// An address that is being resolved.
#[derive(Clone, Copy)]
pub(super) struct Resolution {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// its begin and its end, in time of the connection manager
    pub(super) since: Duration,
    pub(super) until: Duration,
}

/// The library's private state of an id.
pub(super) struct Private {
    pub(super) step: Step,
    /// calls wait for their events
    pub(super) is_synchronous: bool,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// address of the context of the device that it uses, 0 without one
    pub(super) device: usize,
    /// the port is this id's
    pub(super) owns_port: bool,
    /// option: an unspecified address means those of its family only; as the family has it if unset
    pub(super) family_only: Option<bool>,
    /// option: the port may be bound by others that have it, too
    pub(super) shares_port: bool,
    pub(super) connection: Option<ConnectionId>,
    pub(super) listener: Option<ListenerId>,
    /// the program was told that the peer's reply cannot be used (`RDMA_CM_EVENT_CONNECT_ERROR`)
    pub(super) has_reply_failed: bool,
    /// the attributes of the queue pair, once the peer has sent its own
    pub(super) parameters: Option<Parameters>,
    pub(super) traffic_class: u8,
    pub(super) ack_timeout: Option<u8>,
    /// for the queue pairs of requests
    pub(super) template: Option<ibv_qp_init_attr>,
    /// groups that were joined
    pub(super) groups: Vec<Group>,
    /// the queue pair's completion queues were made with it
    pub(super) made_queues: [bool; 2],
    /// reads that the program lets its peer have outstanding, once it has asked for a connection
    pub(super) offered_resources: u8,
    /// for `rdma_query_addrinfo`
    pub(super) addresses: Option<AddressList>,
    /// of an endpoint: the private data of its connection begins with them
    pub(super) first_data: Vec<u8>,
}

impl Private {
    /// Errors: `ENOENT`, as from Linux, for an id that the program destroys.
    pub(super) fn expect_present(&self) -> Result<(), c_int> {
        match self.step {
            Step::Gone => Err(libc::ENOENT),
            _ => Ok(()),
        }
    }

    /// Errors: `EINVAL` for an id in another step; `ENOENT` for one that the program destroys.
    pub(super) fn expect(&self, step: Step) -> Result<(), c_int> {
        self.expect_present()?;
        match self.step == step {
            true => Ok(()),
            false => Err(libc::EINVAL),
        }
    }

    /// The connection or the request of the id. Errors: as [`Self::expect`].
    pub(super) fn connection(&self) -> Result<ConnectionId, c_int> {
        self.expect_present()?;
        self.connection.ok_or(libc::EINVAL)
    }
}

/// An id.
#[repr(C)]
pub(super) struct IdObject {
    pub(super) public: rdma_cm_id,
    pub(super) path: ibv_sa_path_rec,
    private: Mutex<Private>,
    pub(super) reads: Reads,
    _user: User,
}

// SAFETY: as every object of the interface: the program shares it between its threads by the rules
// of the interface; what the library changes of its own accord is behind locks.
unsafe impl Send for Private {}

impl IdObject {
    /// A new id.
    pub(super) fn make(space: c_int, kind: c_int) -> *mut rdma_cm_id {
        let made = Box::new(Self {
            // SAFETY: pointers and numbers: all zero is a value.
            public: unsafe { std::mem::zeroed() },
            // SAFETY: numbers: all zero is a value.
            path: unsafe { std::mem::zeroed() },
            private: Mutex::new(Private {
                step: Step::Made,
                is_synchronous: false,
                local: None,
                remote: None,
                device: 0,
                owns_port: false,
                family_only: None,
                shares_port: false,
                connection: None,
                listener: None,
                has_reply_failed: false,
                parameters: None,
                traffic_class: 0,
                ack_timeout: None,
                template: None,
                groups: Vec::new(),
                made_queues: [false; 2],
                offered_resources: 0,
                addresses: None,
                first_data: Vec::new(),
            }),
            reads: Reads::default(),
            _user: User::new(),
        });
        let id: *mut rdma_cm_id = Box::into_raw(made).cast();
        // SAFETY: just made.
        unsafe {
            (*id).ps = space;
            (*id).qp_type = kind;
        }
        id
    }

    /// # Safety
    /// `id` was made here, and is not destroyed while the result is used.
    pub(super) unsafe fn of<'a>(id: *mut rdma_cm_id) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*id.cast() }
    }

    /// # Safety
    /// `id` was made here, and nothing uses it any more.
    pub(super) unsafe fn free(id: *mut rdma_cm_id) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(id.cast::<Self>()) });
    }

    pub(super) fn private(&self) -> MutexGuard<'_, Private> {
        lock(&self.private)
    }

    /// Moves an id and its unread events to another channel. The connection manager is locked.
    ///
    /// # Safety
    /// As for [`Self::of`]; `target` is a channel of this library.
    pub(super) unsafe fn move_to(id: *mut rdma_cm_id, target: *mut rdma_event_channel) {
        let mine = |notice: &Notice| notice.counted() == id as usize;
        // SAFETY: the caller's promise; ids of unread events exist.
        unsafe {
            let unread = notices_of(id).map_or_else(Vec::new, |notices| notices.withdraw(mine));
            (*id).channel = target;
            for notice in unread {
                // The id of an unread request follows its listener.
                (*(notice.id as *mut rdma_cm_id)).channel = target;
                ChannelObject::of(target).notices.push(notice);
            }
        }
    }

    /// The place of its path.
    pub(super) fn path(id: *mut rdma_cm_id) -> *mut ibv_sa_path_rec {
        // SAFETY: only the address of a field is computed.
        unsafe { &raw mut (*id.cast::<Self>()).path }
    }

    pub(super) fn space(&self) -> Option<PortSpace> {
        u16::try_from(self.public.ps).ok().and_then(PortSpace::of)
    }
}
