//! Versions, locks, capabilities, MAC addresses.

use super::command::{Answer, Command, Outcome};
use crate::chip::{Context, FunctionSettings, TimerAccess};
use ringside_bus::Instant;
use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::capabilities::{
    Capability, CapabilityId, DeviceTimers, FunctionTimers, ListCapabilities,
};
use ringside_spec::lan::admin::generic::{
    CLEAR_PXE_RECEIVE_COUNT, ClearPxe, DriverSharedParameters, MAC_TYPE_LAN, MAX_DRIVER_TEXT_BYTES,
    MacAddress, MacReadFlags, ReadMac, RequestResource, Version, WriteMac, lock_status, resource,
};
use ringside_spec::lan::identity::{MAX_MSIX_VECTORS, VSI_COUNT};
use std::collections::BTreeMap;
use std::time::Duration;

const FIRMWARE_VERSION: (u8, u8, u8) = (7, 3, 4);
const INTERFACE_VERSION: (u8, u8, u8) = (1, 7, 10);

/// Receive queues and transmit queues of a function. Intel's ice gives up to 256 to the first VSI
/// and needs more for others.
pub(crate) const QUEUES: u16 = 512;
const FLOW_FILTERS: u32 = 16384;
const RSS_ENTRIES: u32 = 2048;
const RSS_ENTRY_BITS: u32 = 8;
const MAX_CLASSES: u32 = 8;
const MAX_FRAME_BYTES: u32 = ringside_spec::lan::admin::link::MAX_FRAME_BYTES as u32;

/// Status in the answer for locks other than the global one: the field is not theirs, and no driver
/// reads it. Source: ice `ice_common.c`, `ice_aq_req_res`.
const NO_STATUS: u16 = 0xFFFF;

/// The longest time that a lock is held without a new request.
const LOCK_LIMIT_MS: u32 = 180_000;

pub(super) fn version(command: &Command) -> Outcome {
    let (firmware, interface) = (FIRMWARE_VERSION, INTERFACE_VERSION);
    command.answer(&Version {
        rom_version: 1.into(),
        firmware_build: 1.into(),
        firmware_major: firmware.0,
        firmware_minor: firmware.1,
        firmware_patch: firmware.2,
        interface_major: interface.0,
        interface_minor: interface.1,
        interface_patch: interface.2,
        ..Version::zeroed()
    })
}

pub(super) fn driver_version(command: &Command, context: &mut Context<'_>) -> Outcome {
    let text = &command.buffer;
    let good = !text.is_empty() && text.len() <= MAX_DRIVER_TEXT_BYTES && text.is_ascii();
    if !good || !command.descriptor.flags().read_buffer() {
        context.ledger.breach(
            "driver version that is no ASCII text of 1 to 32 bytes",
            || format!("{text:?}"),
        );
        return Err(ReturnCode::Invalid);
    }
    command.done()
}

pub(super) fn clear_pxe(command: &Command, already: bool) -> Outcome {
    let asked: ClearPxe = command.parameters();
    if asked.receive_count != CLEAR_PXE_RECEIVE_COUNT {
        Err(ReturnCode::Invalid)
    } else if already {
        Err(ReturnCode::Exists)
    } else {
        command.done()
    }
}

pub(super) fn read_mac(command: &mut Command, mac: [u8; 6], port: u8) -> Outcome {
    command.put(
        0,
        &MacAddress {
            port,
            kind: MAC_TYPE_LAN,
            mac,
        },
    )?;
    let asked: ReadMac = command.parameters();
    let flags = MacReadFlags::ZERO
        .with_lan_valid(true)
        .with_port_valid(true);
    let answer = ReadMac {
        flags: flags.0.into(),
        address_count: 1,
        ..asked
    };
    command.answer_with(&answer, MacAddress::SIZE)
}

pub(super) fn write_mac(command: &Command, mac: &mut [u8; 6]) -> Outcome {
    let asked: WriteMac = command.parameters();
    let [first, ..] = asked.mac;
    if first & 1 != 0 || asked.mac == [0; 6] {
        return Err(ReturnCode::Invalid);
    }
    *mac = asked.mac;
    command.done()
}

/// The words that drivers of one card share.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedWords(BTreeMap<u8, u32>);

impl SharedWords {
    pub(super) fn access(&mut self, command: &Command) -> Outcome {
        let asked: DriverSharedParameters = command.parameters();
        if asked.operation == 0 {
            self.0.insert(asked.index, asked.value.get());
            return command.done();
        }
        let value = self.0.get(&asked.index).copied().unwrap_or(0);
        command.answer(&DriverSharedParameters {
            value: value.into(),
            ..asked
        })
    }
}

/// Locks that the driver holds, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Locks(BTreeMap<u16, Instant>);

impl Locks {
    pub(super) fn holds(&self, which: u16, now: Instant) -> bool {
        self.held_until(which, now).is_some()
    }

    /// The end of a lock that is held.
    fn held_until(&self, which: u16, now: Instant) -> Option<Instant> {
        self.0.get(&which).copied().filter(|until| now < *until)
    }

    /// Locks that are held.
    pub(super) fn list(&self) -> Vec<u16> {
        self.0.keys().copied().collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// `package_complete`: the package is loaded already, so the global lock is refused.
    ///
    /// The answer for a lock that is held has the time that is left: two readers of the flash take
    /// turns by it. Source: ice `ice_common.c`, `ice_acquire_res`.
    pub(super) fn request(
        &mut self,
        command: &mut Command,
        package_complete: bool,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: RequestResource = command.parameters();
        let which = asked.resource.get();
        let known = (resource::NVM..=resource::GLOBAL_CONFIG).contains(&which);
        if !known || !(1..=2).contains(&asked.access.get()) {
            context.ledger.breach(
                "request for a resource or access that does not exist",
                || format!("resource {which}, access {}", asked.access.get()),
            );
            return Err(ReturnCode::Invalid);
        }
        if which == resource::GLOBAL_CONFIG && package_complete {
            return command.answer(&RequestResource {
                status: lock_status::DONE.into(),
                ..asked
            });
        }
        if let Some(until) = self.held_until(which, context.now) {
            let mut status = NO_STATUS;
            // A driver takes this one once, for the whole package.
            if which == resource::GLOBAL_CONFIG {
                status = lock_status::IN_PROGRESS;
                context
                    .ledger
                    .breach("resource requested by its holder", || {
                        format!("resource {which}")
                    });
            }
            let left = until.since(context.now).as_micros().div_ceil(1000);
            let answer = RequestResource {
                timeout_ms: u32::try_from(left).unwrap_or(u32::MAX).into(),
                status: status.into(),
                ..asked
            };
            command.descriptor.parameters = answer.to_raw();
            return Err(ReturnCode::Busy);
        }
        let granted_ms = asked.timeout_ms.get().min(LOCK_LIMIT_MS);
        let until = context.now.plus(Duration::from_millis(granted_ms.into()));
        self.0.insert(which, until);
        let status = match which {
            resource::GLOBAL_CONFIG => lock_status::GRANTED,
            _ => NO_STATUS,
        };
        command.answer(&RequestResource {
            timeout_ms: granted_ms.into(),
            status: status.into(),
            ..asked
        })
    }

    pub(super) fn release(&mut self, command: &Command, context: &mut Context<'_>) -> Outcome {
        let asked: RequestResource = command.parameters();
        let which = asked.resource.get();
        if self.0.remove(&which).is_none() {
            context
                .ledger
                .breach("resource released that was not held", || {
                    format!("resource {which}")
                });
            return Err(ReturnCode::Invalid);
        }
        command.done()
    }
}

/// The function that controls a timer which is not the function's own.
const OTHER_FUNCTION: u32 = 7;

/// The record of the device's timer, if there is one.
fn time_stamps(settings: &FunctionSettings, device: bool) -> Option<Capability> {
    let controls = settings.timer == TimerAccess::Controlled;
    let number = match settings.timer {
        TimerAccess::Absent => return None,
        _ if device => {
            let owner = if controls {
                u32::from(settings.pci_function)
            } else {
                OTHER_FUNCTION
            };
            DeviceTimers::ZERO
                .with_owner_0(owner & 7)
                .with_owned_0(true)
                .with_enabled(true)
                .with_timer_0_enabled(true)
                .0
        }
        _ => {
            FunctionTimers::ZERO
                .with_enabled(true)
                .with_controls(controls)
                .with_timer_enabled(controls)
                .0
        }
    };
    Some(Capability::record(CapabilityId::TimeSync, number, 0, 0))
}

/// Capabilities of the function, or of the whole device.
pub(super) fn capabilities(
    command: &mut Command,
    settings: &FunctionSettings,
    device: bool,
) -> Outcome {
    use CapabilityId as Id;
    let bitmap = 1u32.checked_shl(settings.pci_function.into()).unwrap_or(1);
    let vectors = u32::from(MAX_MSIX_VECTORS);
    let mut list = vec![
        Capability::record(Id::Vsi, VSI_COUNT.into(), 0, 0),
        Capability::record(Id::Dcb, 1, 1, MAX_CLASSES),
        Capability::record(Id::Rss, RSS_ENTRIES, RSS_ENTRY_BITS, 0),
        Capability::record(Id::ReceiveQueues, QUEUES.into(), 0, 0),
        Capability::record(Id::TransmitQueues, QUEUES.into(), 0, 0),
        Capability::record(Id::Msix, vectors, 0, 0),
        Capability::record(Id::FlowDirector, FLOW_FILTERS, 0, 0),
        Capability::record(Id::MaxMtu, MAX_FRAME_BYTES, 0, 0),
        Capability::record(Id::Rdma, 1, 0, 0),
    ];
    list.extend(time_stamps(settings, device));
    if device {
        list.insert(0, Capability::record(Id::ValidFunctions, bitmap, 0, 0));
    }
    for (index, capability) in list.iter().enumerate() {
        command.put(index * Capability::SIZE, capability)?;
    }
    let asked: ListCapabilities = command.parameters();
    let answer = ListCapabilities {
        count: (list.len() as u32).into(),
        ..asked
    };
    Ok(Answer {
        parameters: answer.to_raw(),
        length: list.len() * Capability::SIZE,
    })
}
