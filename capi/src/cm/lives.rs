//! Queue pair 1, the context and the protection domain of the connection manager, in each period of
//! service of the device.

use super::id::User;
use super::route::Shared;
use crate::channel::last_error;
use crate::device::{Port, lock, object};
use crate::errno;
use crate::memory::ibv_alloc_pd;
use crate::open::{context_on, ibv_close_device, port_in_service};
use ringside_connect::Service;
use ringside_pmd::rdma::RdmaError;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The period of service of the device that ids are made in.
struct Present {
    port: Arc<Port>,
    shared: Shared,
}

/// The periods of service of a connection manager.
pub(super) struct Lives {
    present: Mutex<Present>,
    /// contexts and domains that ids of former periods may refer to
    former: Mutex<Vec<Shared>>,
    /// the program has seen a context without an id
    is_listed: AtomicBool,
}

impl Lives {
    /// Begins the first one: opens queue pair 1, a context and a protection domain. Errors: an
    /// errno value.
    pub(super) fn begin() -> Result<(Self, Service), c_int> {
        let (present, service) = open(port_in_service()?)?;
        let lives = Self {
            present: Mutex::new(present),
            former: Mutex::default(),
            is_listed: AtomicBool::new(false),
        };
        Ok((lives, service))
    }

    /// The device in the present period of service.
    pub(super) fn port(&self) -> Arc<Port> {
        Arc::clone(&lock(&self.present).port)
    }

    /// The context and the protection domain of ids that are made now.
    pub(super) fn shared(&self) -> Shared {
        lock(&self.present).shared
    }

    /// Notes that the program has seen a context without an id.
    pub(super) fn note_listed(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    /// Begins the next one, on the recovered device. Errors: an errno value.
    pub(super) fn renew(&self, port: Arc<Port>) -> Result<Service, c_int> {
        let (present, service) = open(port)?;
        let former = std::mem::replace(&mut *lock(&self.present), present);
        lock(&self.former).push(former.shared);
        self.close_former();
        Ok(service)
    }

    /// Closes what nothing refers to any more.
    fn close_former(&self) {
        if User::exists() || self.is_listed.load(Ordering::Relaxed) {
            return;
        }
        for shared in std::mem::take(&mut *lock(&self.former)) {
            // SAFETY: opened by `open`, and named by no id and no socket: there is none.
            unsafe { ibv_close_device(shared.context) };
        }
    }
}

/// Opens queue pair 1 of a device, a context and a protection domain.
fn open(port: Arc<Port>) -> Result<(Present, Service), c_int> {
    let service = Service::open(&*port.device()?).map_err(|error| {
        // A former attempt has left it, and the device did not confirm that it is gone.
        if matches!(error, RdmaError::FixedInUse { .. }) {
            port.give_up();
        }
        errno::of(&error)
    })?;
    let context = context_on(Arc::clone(&port), object())?;
    // SAFETY: just opened.
    let domain = unsafe { ibv_alloc_pd(context) };
    if domain.is_null() {
        let error = last_error();
        // SAFETY: opened above, and not used.
        unsafe { ibv_close_device(context) };
        return Err(error);
    }
    let shared = Shared { context, domain };
    Ok((Present { port, shared }, service))
}
