//! The interface of a client.

use super::cause::Cause;
use super::handle::DeviceHandle;
use ringside_pmd::recovery::FailureCause;

/// The error of a client that refuses a device. The registry keeps its text: see
/// [`Attached::Refused`](super::Attached::Refused).
pub type ClientError = Box<dyn std::error::Error + Send + Sync>;

/// A part of a program that works with every device of a [`Registry`](super::Registry).
///
/// The registry calls a client on one thread of its own: calls never overlap, and the registry
/// holds no lock during a call. A callback may look devices up and use them. It cannot open or
/// remove devices, nor register or unregister clients: those calls wait for clients, so they are
/// refused with [`RegistryError::InCallback`](super::RegistryError::InCallback).
/// [`DeviceHandle::request_removal`] does not wait and is allowed.
///
/// A panic in a callback is caught: it counts as an error of `initialise`, and as a return of the
/// others. With `panic = "abort"` the process ends.
pub trait Client: Send + 'static {
    /// Begins the work with a device that is in service. The client owns the objects that it makes:
    /// memory, queue pairs, a [`DeviceUse`](super::DeviceUse).
    ///
    /// Every call that returns `Ok` is followed by one call of `uninitialise`. After an error there
    /// is none. The client then gets no more calls for this device; if the device failed meanwhile,
    /// `initialise` is called again after its recovery.
    fn initialise(&mut self, device: &DeviceHandle) -> Result<(), ClientError>;

    /// Ends the work with a device. The client drops every [`DeviceUse`](super::DeviceUse) of it
    /// before or soon after this returns; the device is shut down only then.
    fn uninitialise(&mut self, device: &DeviceHandle, cause: Cause);

    /// The device failed. Its outstanding requests complete as flushed, and its objects are
    /// unusable. Either `recovered` or `uninitialise` follows. A slow client is notified of the
    /// last failure only.
    fn failed(&mut self, device: &DeviceHandle, cause: FailureCause) {
        let _ = (device, cause);
    }

    /// The device is in service again, in its bring-up number `life`. The client makes its objects
    /// again.
    fn recovered(&mut self, device: &DeviceHandle, life: u32) {
        let _ = (device, life);
    }
}
