//! Checks whether a function is in use.

use ringside_bus::sysfs::{PciFunction, Sysfs};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// The uses of its interfaces; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage(Vec<String>);

impl Usage {
    pub(crate) fn in_use(&self) -> bool {
        !self.0.is_empty()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// IP addresses by interface.
pub(crate) type Addresses = BTreeMap<String, Vec<IpAddr>>;

/// The addresses of this machine.
pub(crate) fn system_addresses() -> Addresses {
    let mut found = Addresses::new();
    for entry in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = entry.address else {
            continue;
        };
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        let six = address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip()));
        if let Some(ip) = four.or(six) {
            found.entry(entry.interface_name).or_default().push(ip);
        }
    }
    found
}

/// The uses of a function's interfaces: addresses, routes, a bond or bridge above them, virtual
/// functions beneath. An interface that is merely up, with the address that it gave itself, is not
/// in use.
pub(crate) fn usage(sysfs: &Sysfs, function: &PciFunction, addresses: &Addresses) -> Usage {
    let mut found = Vec::new();
    for name in &function.interfaces {
        let own = |ip: &&IpAddr| match ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(six) => !six.is_unicast_link_local(),
        };
        let list = addresses.get(name).map(Vec::as_slice).unwrap_or(&[]);
        let list: Vec<_> = list.iter().filter(own).map(IpAddr::to_string).collect();
        if !list.is_empty() {
            found.push(format!("{name} has the address {}", list.join(", ")));
        }
        let routes = routes(sysfs, name);
        if routes > 0 {
            found.push(format!("{routes} routes lead through {name}"));
        }
        let folder = sysfs.path("sys/class/net").join(name);
        match std::fs::read_link(folder.join("master")) {
            Ok(master) => {
                let master = master.file_name().unwrap_or_default().to_string_lossy();
                found.push(format!("{name} is part of {master}"));
            }
            Err(_) => found.extend(above(&folder, name)),
        }
    }
    let functions = sysfs.function_path(&function.address).join("sriov_numvfs");
    let functions = std::fs::read_to_string(functions).unwrap_or_default();
    if let Ok(count @ 1..) = functions.trim().parse::<u32>() {
        found.push(format!("it has {count} virtual functions"));
    }
    Usage(found)
}

/// Interfaces on top of another, such as VLANs.
fn above(folder: &Path, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|entry| {
            Some(format!(
                "{} stands on {name}",
                entry.strip_prefix("upper_")?
            ))
        })
        .collect()
}

/// Counts the routes through an interface that were configured: neither link-local nor multicast.
/// Source: `/proc/net/route` (interface in the first column) and `/proc/net/ipv6_route`
/// (destination in the first, interface in the last).
fn routes(sysfs: &Sysfs, interface: &str) -> usize {
    let four = sysfs.text("proc/net/route").unwrap_or_default();
    let four = four
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(interface))
        .count();
    let six = sysfs.text("proc/net/ipv6_route").unwrap_or_default();
    let by_itself = |line: &str| line.starts_with("fe80") || line.starts_with("ff");
    let six = six
        .lines()
        .filter(|line| line.split_whitespace().last() == Some(interface) && !by_itself(line))
        .count();
    four + six
}
