//! `ringside devices`: lists the cards and functions of the model.

use crate::bind::{system_addresses, usage};
use crate::cli::Devices;
use crate::failure::Failure;
use crate::output::stdout;
use ringside_bus::sysfs::{PciFunction, Sysfs};
use ringside_config::Config;
use ringside_spec::lan::identity;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;

/// One device.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Device {
    address: String,
    part: String,
    driver: Option<String>,
    iommu_group: Option<u32>,
    numa_node: Option<u32>,
    interfaces: Vec<String>,
    in_use: Option<String>,
    usable: bool,
    note: String,
}

pub(crate) fn run(options: &Devices, config: &Config) -> Result<(), Failure> {
    let mut devices = cards(&Sysfs::default(), &system_addresses());
    devices.extend((0..config.model.functions).map(|index| Device {
        address: format!("model:{index}"),
        part: "E810-C QSFP, software model".into(),
        driver: None,
        iommu_group: None,
        numa_node: None,
        interfaces: Vec::new(),
        in_use: None,
        usable: true,
        note: "always here; no hardware needed".into(),
    }));
    let mut out = stdout();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&devices)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<14} {:<28} {:<9} {:<6} {:<5} {:<10} {:<7} Note",
        "Address", "Part", "Driver", "Group", "NUMA", "Interface", "Usable"
    )?;
    let number = |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
    for device in &devices {
        let interfaces = match device.interfaces.join(",") {
            none if none.is_empty() => "-".into(),
            list => list,
        };
        writeln!(
            out,
            "{:<14} {:<28} {:<9} {:<6} {:<5} {:<10} {:<7} {}",
            device.address,
            device.part,
            device.driver.as_deref().unwrap_or("-"),
            number(device.iommu_group),
            number(device.numa_node),
            interfaces,
            if device.usable { "yes" } else { "no" },
            device.note
        )?;
    }
    Ok(())
}

/// E810 functions on the PCI bus, in the order of their addresses.
fn cards(sysfs: &Sysfs, addresses: &BTreeMap<String, Vec<IpAddr>>) -> Vec<Device> {
    let functions = sysfs.functions();
    let cards = functions.iter().filter_map(|function| {
        let part = identity::find(function.vendor, function.device)?;
        Some(card(sysfs, function, part.name, addresses))
    });
    cards.collect()
}

fn card(
    sysfs: &Sysfs,
    function: &PciFunction,
    part: &str,
    addresses: &BTreeMap<String, Vec<IpAddr>>,
) -> Device {
    let holders = sysfs.claimants(function);
    let usage = usage(sysfs, function, addresses);
    let in_use = match holders.first() {
        Some(holder) => Some(format!("claimed by {holder}")),
        None => usage.in_use().then(|| usage.to_string()),
    };
    let obstacle = obstacle(sysfs, function);
    let usable = obstacle.is_none() && holders.is_empty();
    Device {
        address: function.address.clone(),
        part: part.into(),
        driver: function.driver.clone(),
        iommu_group: function.group,
        numa_node: function.numa_node,
        interfaces: function.interfaces.clone(),
        usable,
        note: [obstacle, in_use.clone()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; "),
        in_use,
    }
}

/// The obstacles to a claim, in the order in which to remove them.
fn obstacle(sysfs: &Sysfs, function: &PciFunction) -> Option<String> {
    let address = &function.address;
    let Some(group) = function.group else {
        return Some(format!("no IOMMU group: ringside doctor {address}"));
    };
    if function.driver.as_deref() != Some("vfio-pci") {
        return Some(format!("to use it: ringside bind {address}"));
    }
    let members = sysfs.group(group);
    let others = members
        .iter()
        .filter(|other| other.address != *address && other.blocks_group());
    let others: Vec<_> = others.map(|other| other.address.as_str()).collect();
    (!others.is_empty()).then(|| format!("its IOMMU group is shared with {}", others.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn only_e810_functions_are_listed_in_order_with_what_to_do_about_each() {
        let tree = Tree::new();
        tree.card("0000:3b:00.1", Some("vfio-pci"), Some(15));
        tree.card("0000:3b:00.0", Some("ice"), Some(14));
        tree.card("0000:5e:00.0", Some("vfio-pci"), Some(20));
        tree.card("0000:5e:00.1", Some("ice"), Some(20));
        tree.card("0000:86:00.0", None, None);
        tree.function("0000:00:02.0", 0x8086, 0x100E, None, None);
        tree.function("0000:00:03.0", 0x1AF4, 0x1592, None, None);
        let found = cards(&tree.sysfs(), &BTreeMap::new());
        let shown: Vec<_> = found
            .iter()
            .map(|card| (card.address.as_str(), card.usable, card.note.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (
                    "0000:3b:00.0",
                    false,
                    "to use it: ringside bind 0000:3b:00.0"
                ),
                ("0000:3b:00.1", true, ""),
                (
                    "0000:5e:00.0",
                    false,
                    "its IOMMU group is shared with 0000:5e:00.1"
                ),
                (
                    "0000:5e:00.1",
                    false,
                    "to use it: ringside bind 0000:5e:00.1"
                ),
                (
                    "0000:86:00.0",
                    false,
                    "no IOMMU group: ringside doctor 0000:86:00.0"
                ),
            ]
        );
        assert_eq!(found[0].numa_node, Some(0));
        assert_eq!(found[0].driver.as_deref(), Some("ice"));
    }

    #[test]
    fn a_card_that_a_process_has_claimed_is_not_usable_and_names_it() {
        let tree = Tree::new();
        tree.card("0000:3b:00.1", Some("vfio-pci"), Some(15));
        tree.file("proc/99/comm", "storage-node\n");
        tree.link("proc/99/fd/4", "/dev/vfio/15");
        let found = cards(&tree.sysfs(), &BTreeMap::new());
        assert!(!found[0].usable);
        assert_eq!(
            found[0].in_use.as_deref(),
            Some("claimed by storage-node (pid 99)")
        );
    }
}
