//! The connection manager through failures of the device: the end of a period of service, and the
//! beginning of the next one.
//!
//! As on Linux, an id that uses the device is told that it is gone, and can only be destroyed. An
//! id that listens on all addresses uses no device: it goes on, and its next request comes by the
//! recovered one.

use super::abi::{event, rdma_cm_id};
use super::id::{IdObject, Notice};
use super::node::{Node, State, node, push, watch_queue};
use crate::abi::ibv_context;
use crate::device::{Port, present};
use crate::open::port_in_service;
use ringside_cm::OutgoingMad;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait until the connection manager uses a device that is in service again.
const RESTORED: Duration = Duration::from_secs(5);
/// Between two looks at that.
const STEP: Duration = Duration::from_millis(1);
/// Most messages that wait for the recovery: one for each connection.
const MAX_KEPT: usize = ringside_cm::MAX_CONNECTIONS;

/// The connection manager of a device that is in service. Waits while the device is recovered.
///
/// Errors: an errno value; `ENODEV` if the device stays out of service.
pub(super) fn node_in_service() -> Result<&'static Node, c_int> {
    let node = node()?;
    let end = Instant::now() + RESTORED;
    loop {
        if Arc::ptr_eq(&node.port(), &port_in_service()?) {
            return Ok(node);
        }
        if Instant::now() >= end {
            return Err(libc::ENODEV);
        }
        node.wake.set();
        std::thread::sleep(STEP);
    }
}

impl Node {
    /// The context, for a program that needs no id to use it.
    pub(super) fn show_context(&self) -> *mut ibv_context {
        self.lives.note_listed();
        self.lives.shared().context
    }

    /// Refuses an id that has used the device before a failure: its queue pair is lost, and a
    /// connection of it would reach nothing. `ENODEV`, as from Linux.
    ///
    /// # Safety
    /// `id` is an id of this library.
    pub(super) unsafe fn check_device(
        &self,
        state: &State,
        id: *mut rdma_cm_id,
    ) -> Result<(), c_int> {
        // SAFETY: the caller's promise.
        let context = unsafe { (*id).verbs };
        match state.lost.is_none() && context == self.shared().context {
            true => Ok(()),
            false => Err(libc::ENODEV),
        }
    }

    /// Follows a failure of the device, and its recovery.
    pub(super) fn follow_device(&self, state: &mut State, now: Duration) {
        let port = self.port();
        if state.lost.is_none() {
            if port.is_over() {
                state.remove_device(self, now);
            }
            return;
        }
        let recovered = present().filter(|new| !Arc::ptr_eq(new, &port) && !new.is_over());
        if let Some(new) = recovered
            && let Err(error) = self.restore(state, new)
        {
            tracing::warn!(errno = error, "no queue pair 1 of the recovered device");
        }
    }

    fn restore(&self, state: &mut State, port: Arc<Port>) -> Result<(), c_int> {
        let service = self.lives.renew(Arc::clone(&port))?;
        state.watched = watch_queue(&port, &service, &self.wake);
        state.service = service;
        state.kept = state.lost.take().unwrap_or_default();
        Ok(())
    }
}

impl State {
    /// The device is gone: tells the ids that use it. Messages to their peers wait for its
    /// recovery.
    pub(super) fn remove_device(&mut self, node: &Node, now: Duration) {
        self.lost = Some(VecDeque::new());
        self.end_resolutions();
        let all: Vec<usize> = self.connections.values().copied().collect();
        for id in all {
            self.discard_unread(now, id);
        }
        self.manager.lose_device();
        let bound = |id: &usize| {
            // SAFETY: a listener leaves the table before it is destroyed.
            let private = unsafe { IdObject::of(*id as *mut rdma_cm_id) }.private();
            private
                .local
                .is_some_and(|local| !local.ip().is_unspecified())
        };
        let ended = self.listeners.iter().filter(|(_, id)| bound(id));
        let ended: Vec<_> = ended.map(|(listener, id)| (*listener, *id)).collect();
        for (listener, _) in &ended {
            self.listeners.remove(listener);
            self.manager.unlisten(now, *listener);
        }
        let gone = node.shared().context as usize;
        let users = self.ids.iter().copied().filter(|id| uses(*id, gone));
        // An id that was bound in a former period of service may have listened since.
        let ids: BTreeSet<usize> = users.chain(ended.into_iter().map(|(_, id)| id)).collect();
        for id in ids {
            push(Notice::new(id, event::DEVICE_REMOVAL, 0));
        }
    }

    /// Sends a message, or keeps it for the recovery of the device.
    pub(super) fn send(&mut self, port: &Port, mad: OutgoingMad) {
        match &mut self.lost {
            None => self
                .service
                .send(mad, &|address, vlan| port.lookup(address, vlan)),
            Some(kept) if kept.len() < MAX_KEPT => kept.push_back(mad),
            Some(_) => {
                let to = mad.destination.address();
                tracing::debug!(%to, "a peer is not notified of the end of a connection");
            }
        }
    }

    /// True if messages wait for the recovery of the device.
    pub(super) fn keeps_messages(&self) -> bool {
        !self.kept.is_empty() || self.lost.as_ref().is_some_and(|kept| !kept.is_empty())
    }

    /// Sends messages from before a recovery, as many as there is room for.
    pub(super) fn send_kept(&mut self, port: &Port) {
        while self.service.has_room()
            && let Some(mad) = self.kept.pop_front()
        {
            self.service
                .send(mad, &|address, vlan| port.lookup(address, vlan));
        }
    }
}

/// True if an id uses the device of a context: it has an address of it, or a connection.
fn uses(id: usize, context: usize) -> bool {
    // SAFETY: an id leaves the tables before it is destroyed.
    let private = unsafe { IdObject::of(id as *mut rdma_cm_id) }.private();
    private.device == context && private.expect_present().is_ok()
}
