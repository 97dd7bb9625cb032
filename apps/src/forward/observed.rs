//! Reports of the device on a station: packets that it dropped, and queues that it stopped.

use crate::mac::Mac;
use crate::supervised::Controls;
use ringside_lan::QueueState;
use ringside_pmd::lan::port::Malicious;
use ringside_pmd::lan::{Port, Vsi};
use serde::Serialize;

/// Counters of the statistics that count packets which the device dropped; those of the port end in
/// `.nic`.
const NAMES: [&str; 10] = [
    // no receive descriptor was free, or the frame was longer than the queue takes
    "rx_dropped",
    "tx_errors",
    "rx_crc_errors.nic",
    "illegal_bytes.nic",
    "rx_length_errors.nic",
    "rx_undersize.nic",
    "rx_oversize.nic",
    "rx_fragments.nic",
    "rx_jabber.nic",
    "tx_dropped_link_down.nic",
];

/// Packets that the device dropped at a port or a further VSI. It has no count for a single queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct DeviceDrops {
    counts: [u64; NAMES.len()],
    /// those of the wire are not counted for a further VSI
    of_vsi: bool,
}

impl DeviceDrops {
    pub(super) fn since(mut self, before: Self) -> Self {
        for (count, before) in self.counts.iter_mut().zip(before.counts) {
            *count = count.saturating_sub(before);
        }
        self
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_vsi = self.of_vsi;
        let all = NAMES.into_iter().zip(self.counts);
        all.filter(move |(name, _)| !of_vsi || !name.ends_with(".nic"))
    }

    /// Causes that are not 0, for people.
    pub(super) fn text(&self) -> String {
        let all = self.named().filter(|(_, count)| *count > 0);
        let all: Vec<_> = all.map(|(name, count)| format!("{name} {count}")).collect();
        all.join(", ")
    }
}

impl Serialize for DeviceDrops {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

/// Malicious events that are kept for a port: the latest.
const KEPT: usize = 32;

/// Control of a station.
enum Control {
    /// The port, with the latest malicious events.
    Port(Port, Vec<Malicious>),
    Vsi(Vsi),
}

impl Control {
    fn of(controls: &Controls, place: usize) -> Option<Self> {
        Some(match place.checked_sub(1) {
            None => Self::Port(controls.port.clone(), Vec::new()),
            Some(further) => Self::Vsi(controls.further.get(further)?.clone()),
        })
    }

    fn vsi(&self) -> &Vsi {
        match self {
            Self::Port(port, _) => port,
            Self::Vsi(vsi) => vsi,
        }
    }
}

/// The names of a further VSI.
#[derive(Serialize)]
pub(super) struct VsiName {
    /// among those of the port, from 1
    vsi: usize,
    /// in the device
    number: u16,
    address: String,
}

/// A station, and the device's reports on it.
pub(super) struct Observed {
    control: Control,
    /// since it was opened
    drops: DeviceDrops,
    /// before it was opened again
    past: DeviceDrops,
    events: u64,
    recoveries: u64,
}

impl Observed {
    /// The port, or the further VSI at a place from 1; `None` if there is none.
    pub(super) fn new(controls: &Controls, place: usize) -> Option<Self> {
        let empty = DeviceDrops {
            of_vsi: place > 0,
            ..DeviceDrops::default()
        };
        Some(Self {
            control: Control::of(controls, place)?,
            drops: empty,
            past: empty,
            events: 0,
            recoveries: 0,
        })
    }

    /// Asks the device. While it is out of service the counts stay.
    pub(super) fn look(&mut self) {
        if self.control.vsi().state() != QueueState::Running {
            return;
        }
        for one in self.control.vsi().statistics().unwrap_or_default() {
            if let Some(place) = NAMES.iter().position(|name| *name == one.name) {
                self.drops.counts[place] = one.value;
            }
        }
        if let Control::Port(port, kept) = &mut self.control {
            let events = port.malicious_events().unwrap_or_default();
            self.events += events.len() as u64;
            kept.extend(events);
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
    }

    /// The device was recovered: its counts begin again, those of here go on.
    pub(super) fn reopened(&mut self, controls: &Controls, place: usize) {
        let Some(mut control) = Control::of(controls, place) else {
            return;
        };
        if let (Control::Port(_, kept), Control::Port(_, before)) = (&mut control, &self.control) {
            kept.clone_from(before);
        }
        self.control = control;
        self.past = self.drops();
        self.drops.counts = [0; NAMES.len()];
        self.recoveries += 1;
    }

    /// Packets that the device dropped.
    pub(super) fn drops(&self) -> DeviceDrops {
        let mut all = self.past;
        for (total, count) in all.counts.iter_mut().zip(self.drops.counts) {
            *total += count;
        }
        all
    }

    /// Number of malicious events, which only a port has.
    pub(super) fn events(&self) -> Option<u64> {
        matches!(self.control, Control::Port(..)).then_some(self.events)
    }

    pub(super) const fn recoveries(&self) -> u64 {
        self.recoveries
    }

    /// The last events.
    pub(super) fn last(&self, count: u64) -> &[Malicious] {
        let Control::Port(_, kept) = &self.control else {
            return &[];
        };
        let skipped = kept.len().saturating_sub(count as usize);
        &kept[skipped..]
    }

    /// Names of the VSI, if it is a further one.
    pub(super) fn vsi_name(&self, place: usize) -> Option<VsiName> {
        let Control::Vsi(vsi) = &self.control else {
            return None;
        };
        Some(VsiName {
            vsi: place,
            number: vsi.number(),
            address: Mac(vsi.mac()).to_string(),
        })
    }
}
