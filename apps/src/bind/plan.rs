//! Plans of binding and unbinding, made from facts alone.

use super::usage::Usage;
use ringside_bus::sysfs::{Holder, PciFunction};
use ringside_spec::lan::identity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The driver that hands functions to processes.
pub(super) const VFIO: &str = "vfio-pci";

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Have the kernel load a module.
    LoadModule(String),
    /// Write a text to a file of the kernel.
    Write { text: String, path: String },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadModule(name) => write!(f, "modprobe {name}"),
            Self::Write { text, path } if text.is_empty() => write!(f, "echo > /{path}"),
            Self::Write { text, path } => write!(f, "echo {text} > /{path}"),
        }
    }
}

/// The previous driver of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) driver: Option<String>,
    pub(super) driver_override: Option<String>,
}

/// The request.
pub(super) struct Wanted<'a> {
    pub(super) driver: &'a str,
    pub(super) driver_loaded: bool,
    /// a process that has claimed the function
    pub(super) holder: Option<Holder>,
    pub(super) force: bool,
}

/// The steps, and remarks about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) warnings: Vec<String>,
}

/// The reason why it is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    InUse { address: String, usage: String },
    Claimed { address: String, holder: Holder },
    NotOurs { address: String, id: String },
    NoIommu { address: String },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { address, usage } => write!(
                f,
                "{address} is in use: {usage}. Its users would lose it. Take the interface down first, or \
                 use --force"
            ),
            Self::Claimed { address, holder } => write!(
                f,
                "{address} is in use by {holder}; the kernel would wait until the device is released: end it \
                 first, or use --force to wait"
            ),
            Self::NotOurs { address, id } => write!(
                f,
                "{address} is {id}, which is no E810; use --force if it is meant"
            ),
            Self::NoIommu { address } => write!(
                f,
                "{address} is in no IOMMU group, so vfio-pci would not take it; `ringside doctor \
                 {address}` says how to switch the IOMMU on"
            ),
        }
    }
}

/// Refuses to take a function from its users, unless forced to.
pub(super) fn may_change(
    address: &str,
    usage: &Usage,
    holder: Option<&Holder>,
    force: bool,
) -> Result<(), Refusal> {
    let address = address.to_owned();
    match holder {
        _ if force => Ok(()),
        Some(holder) => Err(Refusal::Claimed {
            address,
            holder: holder.clone(),
        }),
        None if usage.in_use() => Err(Refusal::InUse {
            address,
            usage: usage.to_string(),
        }),
        None => Ok(()),
    }
}

/// The steps that give `function` to another driver; none if it has it.
pub(super) fn bind(
    function: &PciFunction,
    group: &[PciFunction],
    usage: &Usage,
    wanted: &Wanted<'_>,
) -> Result<Plan, Refusal> {
    let address = function.address.clone();
    if function.driver.as_deref() == Some(wanted.driver) {
        return Ok(Plan::default());
    }
    if identity::find(function.vendor, function.device).is_none() && !wanted.force {
        let id = format!("{:04x}:{:04x}", function.vendor, function.device);
        return Err(Refusal::NotOurs { address, id });
    }
    if wanted.driver == VFIO && function.group.is_none() {
        return Err(Refusal::NoIommu { address });
    }
    let mut plan = Plan::default();
    may_change(&address, usage, wanted.holder.as_ref(), wanted.force)?;
    if usage.in_use() {
        plan.warnings.push(format!("{address} was in use: {usage}"));
    }
    let blocking = group
        .iter()
        .filter(|other| other.address != address && other.blocks_group());
    let others: Vec<_> = blocking.map(|other| other.address.clone()).collect();
    if wanted.driver == VFIO && !others.is_empty() {
        plan.warnings.push(format!(
            "{address} shares its IOMMU group with {}: it can be claimed only once they are bound \
             to vfio-pci or unbound too",
            others.join(", ")
        ));
    }
    let folder = format!("sys/bus/pci/devices/{address}");
    let write = |text: &str, path: String| Step::Write {
        text: text.into(),
        path,
    };
    // First: nothing has to be undone if the module does not exist.
    if !wanted.driver_loaded {
        plan.steps.push(Step::LoadModule(wanted.driver.into()));
    }
    plan.steps
        .push(write(wanted.driver, format!("{folder}/driver_override")));
    if function.driver.is_some() {
        plan.steps
            .push(write(&address, format!("{folder}/driver/unbind")));
    }
    plan.steps
        .push(write(&address, "sys/bus/pci/drivers_probe".into()));
    Ok(plan)
}

/// The steps that give a function, whose driver is `driver`, back to the driver that it had.
/// `driver_loaded` tells of the latter. Without a record the kernel chooses, as it does when it
/// finds a new device.
pub(super) fn unbind(
    address: &str,
    driver: Option<&str>,
    record: Option<&Record>,
    driver_loaded: bool,
) -> Vec<Step> {
    let folder = format!("sys/bus/pci/devices/{address}");
    let write = |text: &str, path: String| Step::Write {
        text: text.into(),
        path,
    };
    let earlier = record.and_then(|record| record.driver.as_deref());
    let before = record.and_then(|record| record.driver_override.as_deref());
    let mut steps = Vec::new();
    // First, as the function keeps its driver if the module does not exist.
    if let Some(earlier) = earlier.filter(|_| !driver_loaded) {
        steps.push(Step::LoadModule(earlier.into()));
    }
    steps.push(write(
        before.unwrap_or(""),
        format!("{folder}/driver_override"),
    ));
    if driver.is_some() && driver != earlier {
        steps.push(write(address, format!("{folder}/driver/unbind")));
    }
    // A function that had no driver stays so.
    if record.is_none() || earlier.is_some() {
        steps.push(write(address, "sys/bus/pci/drivers_probe".into()));
    }
    steps
}
