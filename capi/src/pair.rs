//! A queue pair of the driver, in any of its states.

use crate::abi::ibv_qp_init_attr;
use crate::completion::CompletionObject;
use crate::context_object::ContextObject;
use crate::device;
use crate::errno;
use crate::shared::SharedObject;
use crate::shared_posts::wake;
use ringside_pmd::rdma::{
    Connected, DatagramInitialised, DatagramReady, Earlier, Initialised, QueuePair, RdmaError,
    Receiving, SendSwitch,
};
use std::ffi::c_int;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// A multicast group, and the VLAN that its datagrams come by; `None` for frames without a tag.
pub(crate) type Group = (IpAddr, Option<u16>);

/// A queue pair in the state that the driver has it in.
pub(crate) enum Pair {
    Initialised(QueuePair<Initialised>),
    Receiving(QueuePair<Receiving>),
    Connected(QueuePair<Connected>),
    DatagramInitialised(QueuePair<DatagramInitialised>),
    DatagramReady(QueuePair<DatagramReady>),
    /// the device refused a change, and nothing is left
    Gone,
}

impl Pair {
    /// Joins a multicast group. Errors: `EINVAL` if it is not for datagrams.
    pub(crate) fn join(&self, (group, vlan): Group) -> Result<(), c_int> {
        let joined = match self {
            Self::DatagramInitialised(pair) => pair.join_on(group, vlan),
            Self::DatagramReady(pair) => pair.join_on(group, vlan),
            _ => {
                tracing::warn!(%group, "refused: only datagram queue pairs are members of groups");
                return Err(libc::EINVAL);
            }
        };
        joined.map_err(|error| errno::of(&error))?;
        device::note_member();
        Ok(())
    }

    /// Leaves a multicast group; one that a reset has left, and not joined again, is left.
    pub(crate) fn leave(&self, (group, vlan): Group) -> Result<(), c_int> {
        let left = match self {
            Self::DatagramInitialised(pair) => pair.leave_on(group, vlan),
            Self::DatagramReady(pair) => pair.leave_on(group, vlan),
            _ => return Err(libc::EINVAL),
        };
        match left {
            Ok(()) | Err(RdmaError::NotInGroup { .. }) => Ok(()),
            Err(error) => Err(errno::of(&error)),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        match self {
            Self::Initialised(pair) => pair.number(),
            Self::Receiving(pair) => pair.number(),
            Self::Connected(pair) => pair.number(),
            Self::DatagramInitialised(pair) => pair.number(),
            Self::DatagramReady(pair) => pair.number(),
            Self::Gone => 0,
        }
    }

    /// The sends or receives that are outstanding now.
    pub(crate) fn outstanding(&self, sends: bool) -> Option<Earlier> {
        fn of<S>(pair: &QueuePair<S>, sends: bool) -> Option<Earlier> {
            match sends {
                true => Some(pair.outstanding_sends()),
                false => pair.outstanding_receives(),
            }
        }
        match self {
            Self::Initialised(pair) => of(pair, sends),
            Self::Receiving(pair) => of(pair, sends),
            Self::Connected(pair) => of(pair, sends),
            Self::DatagramInitialised(pair) => of(pair, sends),
            Self::DatagramReady(pair) => of(pair, sends),
            Self::Gone => None,
        }
    }

    /// Receives that can be outstanding.
    pub(crate) fn receive_capacity(&self) -> u32 {
        match self {
            Self::Initialised(pair) => pair.receive_capacity(),
            Self::Receiving(pair) => pair.receive_capacity(),
            Self::Connected(pair) => pair.receive_capacity(),
            Self::DatagramInitialised(pair) => pair.receive_capacity(),
            Self::DatagramReady(pair) => pair.receive_capacity(),
            Self::Gone => 0,
        }
    }

    /// Attaches it to the shared receive queue, if the program names one.
    ///
    /// # Safety
    /// The objects in `init` are of this library.
    pub(crate) unsafe fn attach(&mut self, init: &ibv_qp_init_attr) -> Result<(), c_int> {
        if init.srq.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (shared, queue) = unsafe {
            (
                SharedObject::of(init.srq.cast()),
                CompletionObject::of(init.recv_cq),
            )
        };
        queue.share(init.srq.cast(), self.number());
        // SAFETY: a context outlives its objects.
        let port = unsafe { &ContextObject::of(shared.public.context).port };
        let mut receives = shared.queue.hold();
        let attached = match self {
            Self::Initialised(pair) => receives.attach(pair, port, false),
            Self::DatagramInitialised(pair) => receives.attach(pair, port, true),
            _ => Ok(()),
        };
        drop(receives);
        if let Err(error) = attached {
            queue.stop_sharing(init.srq.cast(), self.number());
            return Err(error);
        }
        shared.users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Destroys a queue pair of a shared receive queue: its unused receives go to the others. The
    /// number is given: a queue pair of which nothing is left does not know it.
    ///
    /// # Safety
    /// The objects in `init` are of this library.
    pub(crate) unsafe fn detach(self, init: &ibv_qp_init_attr, number: u32) {
        // SAFETY: the caller's promise.
        let (shared, queue) = unsafe {
            (
                SharedObject::of(init.srq.cast()),
                CompletionObject::of(init.recv_cq),
            )
        };
        let mut receives = shared.queue.hold();
        let gone = match self {
            Self::Initialised(pair) => receives.destroy(pair),
            Self::Receiving(pair) => receives.destroy(pair),
            Self::Connected(pair) => receives.destroy(pair),
            Self::DatagramInitialised(pair) => receives.destroy(pair),
            Self::DatagramReady(pair) => receives.destroy(pair),
            Self::Gone => Ok(0),
        };
        if let Err(error) = gone {
            errno::of(&error);
        }
        // Receives that it had not used may be those that others wait for.
        wake(&mut receives);
        drop(receives);
        if queue.stop_sharing(init.srq.cast(), number) {
            shared.queue.hold().forget(init.recv_cq as usize);
        }
        shared.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Stops and resumes its sending; `None` before it has sent.
    pub(crate) fn send_switch(&self) -> Option<SendSwitch> {
        match self {
            Self::Connected(pair) => Some(pair.send_switch()),
            Self::DatagramReady(pair) => Some(pair.send_switch()),
            _ => None,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Self::Initialised(pair) => pair.has_failed(),
            Self::Receiving(pair) => pair.has_failed(),
            Self::Connected(pair) => pair.has_failed(),
            Self::DatagramInitialised(pair) => pair.has_failed(),
            Self::DatagramReady(pair) => pair.has_failed(),
            Self::Gone => true,
        }
    }
}
