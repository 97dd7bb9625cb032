//! Recordings as named fields, to compare the commands of two drivers independent of their order,
//! of memory addresses and of numbers that the device allocated.

mod admin;
mod compare;
mod control;
mod described;
mod registers;
mod trim;

pub use compare::{Difference, Side, compare};
pub use described::{Described, Value};
pub use trim::trim;

use ringside_model::record::{Entry, Event};

/// Fields whose values make different commands of one operation; the rest is compared within those.
const VARIANTS: &[(&str, &[&str])] = &[
    ("admin RequestResource", &["res_id", "access_type"]),
    ("admin ReleaseResource", &["res_id"]),
    ("admin AllocateResource", &["res_type"]),
    ("admin FreeResource", &["res_type"]),
    ("admin AddSwitchRules", &["type", "recipe_id", "act"]),
    ("admin AddVsi", &["vsi_flags"]),
    ("admin UpdateVsi", &["valid_sections"]),
    ("admin GetPhyCapabilities", &["param0"]),
    ("admin NvmRead", &["module_typeid"]),
    ("admin AddSchedulerElements", &["elem_type"]),
    ("admin UpdatePackage", &["type"]),
    ("control CreateQueuePair", &["qp_type"]),
    ("control ModifyQueuePair", &["qp_type", "next_state"]),
    ("control DestroyQueuePair", &["qp_type"]),
    ("control FlushWorkQueues", &["generate_ae"]),
    ("control CreateCompletionQueue", &["purpose"]),
    ("control DestroyCompletionQueue", &["purpose"]),
    ("control AllocateStag", &["is_memory_region"]),
    ("control DeallocateStag", &["is_memory_region"]),
    (
        "control RegisterMemoryRegion",
        &["pble_levels_code", "page_size"],
    ),
    ("control WorkSchedulerNode", &["operation", "leaf"]),
    ("control ManageArp", &["entry_valid"]),
    ("control UpdateSegments", &["valid"]),
];

/// Describes an entry; `None` for unsolicited reports of the device and for resets.
#[must_use]
pub fn describe(entry: &Entry) -> Option<Described> {
    let mut described = match &entry.event {
        Event::Admin(command) => admin::describe(command),
        Event::ControlQueue(created) => control::describe_queue(created),
        Event::Control(command) => control::describe(command),
        Event::Register(write) => registers::describe(write),
        Event::AdminEvent(_) | Event::Reset(_) => return None,
    };
    let names = VARIANTS.iter().find(|(kind, _)| *kind == described.kind);
    let parts = names
        .map_or(&[][..], |(_, names)| names)
        .iter()
        .map(|name| {
            let values = described.fields.iter().filter(|(field, _)| field == name);
            let values: Vec<_> = values.map(|(_, value)| value.to_string()).collect();
            format!("{name}={}", values.join("/"))
        });
    described.variant = parts.collect::<Vec<_>>().join(" ");
    Some(described)
}
