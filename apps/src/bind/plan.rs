//! Plans of binding and unbinding, made from facts alone.

use super::usage::Usage;
use ringside_bus::sysfs::PciFunction;
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
    if usage.in_use() {
        let usage = usage.to_string();
        if !wanted.force {
            return Err(Refusal::InUse { address, usage });
        }
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

/// The steps that give a function back to the driver that it had. Without a record the kernel
/// chooses, as it does when it finds a new device.
pub(super) fn unbind(address: &str, driver: Option<&str>, record: Option<&Record>) -> Vec<Step> {
    let folder = format!("sys/bus/pci/devices/{address}");
    let write = |text: &str, path: String| Step::Write {
        text: text.into(),
        path,
    };
    let before = record.and_then(|record| record.driver_override.as_deref());
    let mut steps = vec![write(
        before.unwrap_or(""),
        format!("{folder}/driver_override"),
    )];
    if driver.is_some() {
        steps.push(write(address, format!("{folder}/driver/unbind")));
    }
    match record {
        // It had no driver, and stays so.
        Some(Record { driver: None, .. }) => {}
        Some(Record {
            driver: Some(driver),
            ..
        }) => {
            steps.push(Step::LoadModule(driver.clone()));
            steps.push(write(address, "sys/bus/pci/drivers_probe".into()));
        }
        None => steps.push(write(address, "sys/bus/pci/drivers_probe".into())),
    }
    steps
}
