//! `ringside devices`: what there is to drive.

use crate::cli::Devices;
use crate::failure::Failure;
use ringside_config::Config;
use serde::Serialize;
use std::path::Path;

/// One device.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Device {
    address: String,
    part: String,
    driver: Option<String>,
    numa_node: Option<i32>,
    usable: bool,
    note: String,
}

/// Device ids of E810 parts. Source: reference table of PCI identities, Linux `ice_devids.h`.
const PARTS: [(u16, &str); 6] = [
    (0x1591, "E810-C backplane"),
    (0x1592, "E810-C QSFP"),
    (0x1593, "E810-C SFP"),
    (0x1599, "E810-XXV backplane"),
    (0x159A, "E810-XXV QSFP"),
    (0x159B, "E810-XXV SFP"),
];

pub(crate) fn run(options: &Devices, config: &Config) -> Result<(), Failure> {
    let mut devices = cards(Path::new("/sys/bus/pci/devices"));
    devices.extend((0..config.model.functions).map(|index| Device {
        address: format!("model:{index}"),
        part: "E810-C QSFP, software model in this process".into(),
        driver: None,
        numa_node: None,
        usable: true,
        note: "always here; no hardware needed".into(),
    }));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&devices)?);
        return Ok(());
    }
    println!(
        "{:<16} {:<45} {:<12} {:<5} {:<7} Note",
        "Address", "Part", "Driver", "NUMA", "Usable"
    );
    for device in &devices {
        println!(
            "{:<16} {:<45} {:<12} {:<5} {:<7} {}",
            device.address,
            device.part,
            device.driver.as_deref().unwrap_or("-"),
            device.numa_node.map_or("-".into(), |node| node.to_string()),
            if device.usable { "yes" } else { "no" },
            device.note
        );
    }
    Ok(())
}

/// E810 functions on the PCI bus, in the order of their addresses.
fn cards(bus: &Path) -> Vec<Device> {
    let entries = std::fs::read_dir(bus).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| card(&entry.path())).collect();
    found.sort_by(|one, other| one.address.cmp(&other.address));
    found
}

fn card(path: &Path) -> Option<Device> {
    let hexadecimal = |name: &str| {
        let text = std::fs::read_to_string(path.join(name)).ok()?;
        u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let id = hexadecimal("device")?;
    let (_, part) = PARTS.iter().find(|(known, _)| *known == id)?;
    if hexadecimal("vendor")? != 0x8086 {
        return None;
    }
    let link = std::fs::read_link(path.join("driver")).ok();
    let driver = link.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    let node = std::fs::read_to_string(path.join("numa_node")).ok();
    Some(Device {
        address: path.file_name()?.to_string_lossy().into_owned(),
        part: (*part).into(),
        driver,
        numa_node: node.and_then(|node| node.trim().parse().ok()),
        usable: false,
        note: "this version has no VFIO backend yet".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_e810_functions_are_listed_in_order_with_their_driver() {
        let root = std::env::temp_dir().join(format!("ringside-devices-{}", std::process::id()));
        for (address, vendor, device) in [
            ("0000:3b:00.1", "0x8086", "0x1592"),
            ("0000:3b:00.0", "0x8086", "0x1592"),
            ("0000:00:02.0", "0x8086", "0x100e"),
            ("0000:00:03.0", "0x1af4", "0x1592"),
        ] {
            let path = root.join(address);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(path.join("device"), format!("{device}\n")).unwrap();
            fs::write(path.join("numa_node"), "-1\n").unwrap();
        }
        std::os::unix::fs::symlink("/drivers/ice", root.join("0000:3b:00.0/driver")).unwrap();
        let found = cards(&root);
        fs::remove_dir_all(&root).unwrap();
        let addresses: Vec<_> = found.iter().map(|device| device.address.as_str()).collect();
        assert_eq!(addresses, ["0000:3b:00.0", "0000:3b:00.1"]);
        assert_eq!(found[0].driver.as_deref(), Some("ice"));
        assert_eq!(
            (found[1].driver.as_deref(), found[1].numa_node),
            (None, Some(-1))
        );
    }
}
