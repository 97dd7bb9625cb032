//! Counters of the port and its VSIs.

use super::shared::PortShared;
use super::{PortError, Vsi};
use ringside_spec::lan::registers::statistics::{self as counters, Counter};
use serde::Serialize;
use std::sync::PoisonError;

/// A counter and its value since the port was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortStatistic {
    /// Its name under `ethtool -S`: those of the port end in `.nic`.
    pub name: &'static str,
    /// The count.
    pub value: u64,
}

/// Counters of the VSI with the names that ice gives them. Source: ice `ice_ethtool.c`,
/// `ice_gstrings_vsi_stats`.
const OF_VSI: [(Counter, &str); 10] = [
    (counters::VSI_RECEIVE_BYTES, "rx_bytes"),
    (counters::VSI_TRANSMIT_BYTES, "tx_bytes"),
    (counters::VSI_RECEIVE_UNICAST, "rx_unicast"),
    (counters::VSI_TRANSMIT_UNICAST, "tx_unicast"),
    (counters::VSI_RECEIVE_MULTICAST, "rx_multicast"),
    (counters::VSI_TRANSMIT_MULTICAST, "tx_multicast"),
    (counters::VSI_RECEIVE_BROADCAST, "rx_broadcast"),
    (counters::VSI_TRANSMIT_BROADCAST, "tx_broadcast"),
    (counters::VSI_RECEIVE_DROPPED, "rx_dropped"),
    (counters::VSI_TRANSMIT_ERRORS, "tx_errors"),
];

impl PortShared {
    /// Those of the VSI; those of the port belong to its own one.
    fn all(&self) -> impl Iterator<Item = (Counter, &'static str, bool)> + use<> {
        let vsi = OF_VSI.iter().map(|(counter, name)| (*counter, *name, true));
        let has_port = self.further.is_none();
        let port = crate::lan::PORT_COUNTERS.iter().filter(move |_| has_port);
        vsi.chain(port.map(|(counter, name)| (*counter, *name, false)))
    }

    fn read_counters(&self) -> Result<Vec<u64>, PortError> {
        self.all()
            .map(|(counter, _, of_vsi)| {
                let index = if of_vsi {
                    self.vsi.into()
                } else {
                    self.port.into()
                };
                let at = counter.registers.at(index);
                Ok(match counter.width_bits {
                    32 => self.registers.read_quietly(at)?.into(),
                    _ => self.registers.read64_quietly(at)?,
                })
            })
            .collect()
    }

    /// Begins to count.
    pub(super) fn start_statistics(&self) -> Result<(), PortError> {
        let last = self.read_counters()?;
        let mut counted = self
            .statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counted.total = vec![0; last.len()];
        counted.last = last;
        Ok(())
    }
}

impl PortShared {
    /// Reads the counters and adds what they have counted since the last reading.
    pub(super) fn sample(&self) -> Result<Vec<PortStatistic>, PortError> {
        self.admin()?;
        // Locked before the registers are read: an older reading after a newer one would count as a
        // turn of the counter.
        let mut guard = self
            .statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = self.read_counters()?;
        let counted = &mut *guard;
        let totals = counted.total.iter_mut().zip(&mut counted.last);
        let mut list = Vec::with_capacity(now.len());
        for (((counter, name, _), value), (total, last)) in self.all().zip(now).zip(totals) {
            *total = total.wrapping_add(counter.difference(*last, value));
            *last = value;
            list.push(PortStatistic {
                name,
                value: *total,
            });
        }
        Ok(list)
    }
}

impl Vsi {
    /// All counters of the VSI; for the port's own also those of the port. Control path: a register
    /// read for each.
    ///
    /// The device's counters wrap. At 100 Gbit/s those of bytes, 40 bits, do so every 88 s, and
    /// those of packets of 32 bits (dropped ones, errors) every 28 s at the earliest.
    /// [`Device::observe`](crate::Device::observe) reads them every 10 s, and so does
    /// [`Device::supervise`](crate::Device::supervise). A program that calls neither of the two
    /// calls this at least every 25 s.
    ///
    /// Errors: [`PortError::OutOfService`] once the device failed or was shut down: its registers
    /// no longer count for this port.
    pub fn statistics(&self) -> Result<Vec<PortStatistic>, PortError> {
        self.shared.sample()
    }
}
