//! Events of the device's detection of malicious drivers (MDD): it stops a queue whose descriptors
//! break its rules, and names the first event in registers.
//!
//! Source: ice `ice_main.c`, `ice_handle_mdd_event`.

use super::shared::PortShared;
use super::{Port, PortError};
use ringside_lan::QueueKind;
use ringside_spec::lan::registers::reset::{
    FUNCTION_MALICIOUS_RECEIVE, FUNCTION_MALICIOUS_TRANSMIT_DATA,
    FUNCTION_MALICIOUS_TRANSMIT_QUEUE_MANAGER, FUNCTION_MALICIOUS_TRANSMIT_SCHEDULER,
    MALICIOUS_RECEIVE, MALICIOUS_TRANSMIT_DATA, MALICIOUS_TRANSMIT_QUEUE_MANAGER,
    MALICIOUS_TRANSMIT_SCHEDULER, MaliciousEvent, MaliciousQueueManager,
};
use serde::Serialize;
use std::fmt;

/// Clears the register of the device.
const ALL_ONES: u32 = u32::MAX;
/// Clears the register of the function.
const FUNCTION_ONES: u32 = 0xFFFF;
/// The function's register: there is an event.
const VALID: u32 = 1;

/// The part of the device that found an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detector {
    /// The queue manager: doorbells and descriptors to send.
    QueueManager,
    /// The transmit scheduler and its caches.
    Scheduler,
    /// The data path to the wire: lengths, buffers, offloads.
    TransmitData,
    /// The receive side.
    Receive,
}

/// All detectors, with the register of the device and that of the function.
const DETECTORS: [(Detector, u64, u64); 4] = [
    (
        Detector::QueueManager,
        MALICIOUS_TRANSMIT_QUEUE_MANAGER,
        FUNCTION_MALICIOUS_TRANSMIT_QUEUE_MANAGER,
    ),
    (
        Detector::Scheduler,
        MALICIOUS_TRANSMIT_SCHEDULER,
        FUNCTION_MALICIOUS_TRANSMIT_SCHEDULER,
    ),
    (
        Detector::TransmitData,
        MALICIOUS_TRANSMIT_DATA,
        FUNCTION_MALICIOUS_TRANSMIT_DATA,
    ),
    (
        Detector::Receive,
        MALICIOUS_RECEIVE,
        FUNCTION_MALICIOUS_RECEIVE,
    ),
];

/// An event: the device took descriptors of a queue for malicious and stopped the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Malicious {
    /// The part of the device that found it.
    pub detector: Detector,
    /// The cause, as the device numbers its checks; `None` if another function's event holds the
    /// register.
    pub cause: Option<u8>,
    /// The queue, of the direction of [`Malicious::direction`], as its VSI counts them; `None` if
    /// the register names none of this port's.
    pub queue: Option<u16>,
    /// The number of the further VSI that has the queue; `None` for the port's own VSI, and for a
    /// queue that is not named.
    pub vsi: Option<u16>,
}

impl Malicious {
    /// Direction of the queue.
    #[must_use]
    pub const fn direction(&self) -> QueueKind {
        match self.detector {
            Detector::Receive => QueueKind::Receive,
            Detector::QueueManager | Detector::Scheduler | Detector::TransmitData => {
                QueueKind::Transmit
            }
        }
    }
}

impl fmt::Display for Malicious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction() {
            QueueKind::Receive => "receive",
            QueueKind::Transmit => "transmit",
        };
        match self.queue {
            Some(queue) => write!(f, "{direction} queue {queue}")?,
            None => write!(f, "an unnamed {direction} queue")?,
        }
        if let Some(vsi) = self.vsi {
            write!(f, " of VSI {vsi}")?;
        }
        f.write_str(" was stopped by the device")?;
        write!(f, ": detection of malicious drivers, {:?}", self.detector)?;
        if let Some(cause) = self.cause {
            write!(f, ", cause {cause}")?;
        }
        f.write_str("; restart the queue")
    }
}

/// Function, queue and kind of a register of the device; `None` without an event, or for one of a
/// virtual function.
fn decode(detector: Detector, value: u32) -> Option<(u8, u32, u8)> {
    let (valid, function, virtual_function, queue, kind) = match detector {
        Detector::QueueManager => {
            let event = MaliciousQueueManager(value);
            let place = (event.function(), event.virtual_function());
            (event.valid(), place.0, place.1, event.queue(), event.kind())
        }
        Detector::Scheduler | Detector::TransmitData | Detector::Receive => {
            let event = MaliciousEvent(value);
            let place = (event.function(), event.virtual_function());
            (event.valid(), place.0, place.1, event.queue(), event.kind())
        }
    };
    (valid && virtual_function == 0).then_some((function as u8, queue, kind as u8))
}

impl Port {
    /// Events of all VSIs since the last call, and clears them. The device remembers one for each
    /// detector until then. The owner of a queue that is named restarts it
    /// ([`TransmitQueue::restart`](ringside_lan::TransmitQueue::restart)); it sends nothing before.
    ///
    /// Control path: four register reads without an event; call it about once a second.
    /// Errors: [`PortError`].
    pub fn malicious_events(&self) -> Result<Vec<Malicious>, PortError> {
        let shared = &self.shared;
        if !shared.service.in_service() {
            return Err(PortError::OutOfService);
        }
        let registers = &shared.registers;
        let mut events = Vec::new();
        for (detector, of_device, of_function) in DETECTORS {
            if registers.read_quietly(of_function)? & VALID == 0 {
                continue;
            }
            let found = decode(detector, registers.read(of_device)?);
            // The device's register is shared: the event of another function is not ours to clear.
            let own = found.filter(|(function, ..)| *function == shared.function);
            if own.is_some() {
                registers.write(of_device, ALL_ONES)?;
            }
            registers.write(of_function, FUNCTION_ONES)?;
            let mut event = Malicious {
                detector,
                cause: own.map(|(_, _, kind)| kind),
                queue: None,
                vsi: None,
            };
            if let Some((_, queue, _)) = own {
                (event.vsi, event.queue) = shared.owner_of(event.direction(), queue);
            }
            tracing::warn!(%event, "malicious driver detection");
            events.push(event);
        }
        Ok(events)
    }
}

impl PortShared {
    /// The VSI, unless it is the port's own, and its queue with this number of the device.
    fn owner_of(&self, kind: QueueKind, queue: u32) -> (Option<u16>, Option<u16>) {
        let (first, count) = match kind {
            QueueKind::Receive => (self.queues_first.0, self.queues.0),
            QueueKind::Transmit => (self.queues_first.1, self.queues.1),
        };
        let of_function = queue.checked_sub(first).map(u16::try_from);
        let Some(Ok(queue)) = of_function else {
            return (None, None);
        };
        if usize::from(queue) < count {
            return (None, Some(queue));
        }
        let further = self.registry.further_of(kind, queue);
        further.map_or((None, None), |(vsi, place)| (Some(vsi), Some(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields as ice's masks have them: reference `e810-lan`, section 2.7.
    #[test]
    fn registers_of_both_layouts_are_decoded() {
        let manager = 1 << 31 | 5 << 26 | 9 << 12 | 3;
        assert_eq!(decode(Detector::QueueManager, manager), Some((3, 9, 5)));
        let data = 1 << 31 | 7 << 26 | 2 << 23 | 300;
        for detector in [
            Detector::Scheduler,
            Detector::TransmitData,
            Detector::Receive,
        ] {
            assert_eq!(decode(detector, data), Some((2, 300, 7)));
        }
        assert_eq!(decode(Detector::Receive, data & !(1 << 31)), None);
        assert_eq!(
            decode(Detector::Receive, data | 1 << 15),
            None,
            "of a virtual function"
        );
    }
}
