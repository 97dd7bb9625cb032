//! Time stamps of received packets: switched on with the port, and completed by the device's time.

use super::clock::{PortClock, refused};
use super::shared::PortShared;
use super::{PortError, Vsi};
use crate::admin::commands::Timers;
use ringside_lan::PacketPool;

impl PortShared {
    /// The queues that are started from now on stamp packets, which are in `pool`.
    pub(super) fn stamp_packets(
        &self,
        timers: Option<&Timers>,
        pool: &PacketPool,
    ) -> Result<(), PortError> {
        let clock = PortClock::start(&self.registers, self.admin()?, timers, pool)?;
        // Set once: a port is opened once.
        self.clock.get_or_init(|| clock);
        Ok(())
    }
}

impl Vsi {
    /// The time of the device's clock, nanoseconds since its timer was started: that of
    /// [`Packet::timestamp`](ringside_lan::Packet::timestamp).
    ///
    /// Control path: three register reads. It also completes the time stamps of packets that come
    /// within 2.1 s before or after. [`Device::observe`](crate::Device::observe) and
    /// [`Device::supervise`](crate::Device::supervise) do the same at each probe. A program that
    /// calls neither calls this at least every 2 s.
    /// Errors: the port was opened without `time_stamps`; the device is out of service.
    pub fn device_time(&self) -> Result<u64, PortError> {
        let Some(clock) = self.shared.clock.get() else {
            return Err(refused(
                "are off: the device's time is not read".to_owned(),
                "open the port with time_stamps",
            ));
        };
        if !self.shared.service.in_service() {
            return Err(PortError::OutOfService);
        }
        clock.read(&self.shared.registers)
    }
}
