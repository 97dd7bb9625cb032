//! The files that the kernel would have about the device: `/sys/class/infiniband`, `/dev/infiniband`,
//! and of its interface `/sys/class/net/ringside0`.
//!
//! They are written into the folder that `RINGSIDE_FILES` names, when the device is opened.
//! `ringside-files.so` (`capi/preload`) has programs find them there. Counters are written again
//! whenever a program opens one.
//!
//! Source of names and forms: Linux, `Documentation/ABI/stable/sysfs-class-infiniband`.

use crate::context::port_attributes;
use crate::device::Port;
use crate::gid::gid_of;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Version of the interface of `/sys/class/infiniband_verbs`, of Linux since 2.6.
const VERBS_ABI: &str = "6";

/// Index of the interface: the kernel counts its own from 1 and does not come that far.
const INTERFACE: u32 = 1 << 20;

/// The device that the files are about.
static WRITTEN: OnceLock<Arc<Port>> = OnceLock::new();

/// The folder, if the environment names one.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("RINGSIDE_FILES").map(PathBuf::from)
}

/// Writes the files, if a folder is named. A failure is only logged: most programs read none.
pub(crate) fn write(port: &Arc<Port>) {
    let Some(folder) = folder() else { return };
    if let Err(error) = write_into(&folder, port) {
        tracing::warn!(%error, folder = %folder.display(), "no files of the kernel");
    }
    // There is one device in a process: a second call changes nothing.
    let _ = WRITTEN.set(Arc::clone(port));
}

/// Writes a line. Whole, or not at all: another program may read it at the same time.
fn line(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let written = path.with_extension(format!("{}", std::process::id()));
    let mut file = std::fs::File::create(&written)?;
    writeln!(file, "{text}")?;
    drop(file);
    std::fs::rename(written, path)
}

fn groups(bytes: &[u8]) -> String {
    let pairs = bytes.chunks(2).map(|pair| {
        let digits = pair.iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    pairs.collect::<Vec<_>>().join(":")
}

fn write_into(folder: &Path, port: &Port) -> Result<()> {
    let device = folder.join("sys/class/infiniband/ringside0");
    let guid = groups(&port.guid().to_ne_bytes());
    let facts = port.device.facts();
    let identity = facts.identity.as_ref();
    let (vendor, part) = identity.map_or((0x8086, 0), |one| (one.vendor, one.device));
    let firmware = facts.firmware.as_ref().map(|version| version.firmware);
    let (major, minor, patch) = firmware.unwrap_or_default();
    let lines = [
        ("node_type", "1: CA".to_owned()),
        ("node_guid", guid.clone()),
        ("sys_image_guid", guid),
        ("node_desc", "ringside".to_owned()),
        ("fw_ver", format!("{major}.{minor}.{patch}")),
        ("device/vendor", format!("{vendor:#06x}")),
        ("device/device", format!("{part:#06x}")),
        ("device/class", "0x020000".to_owned()),
        ("device/numa_node", "-1".to_owned()),
        ("device/local_cpus", local_cpus()),
    ];
    for (name, text) in &lines {
        line(&device.join(name), text)?;
    }
    write_port(&device.join("ports/1"), port)?;
    write_interface(&folder.join("sys/class/net/ringside0"), port)?;
    let verbs = folder.join("sys/class/infiniband_verbs");
    line(&verbs.join("abi_version"), VERBS_ABI)?;
    line(&verbs.join("uverbs0/ibdev"), "ringside0")?;
    line(&verbs.join("uverbs0/abi_version"), "1")?;
    line(&folder.join("dev/infiniband/uverbs0"), "")
}

/// Every core of this process, as a mask in groups of 32 bits.
fn local_cpus() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let full = vec!["ffffffff".to_owned(); cores / 32];
    let rest = cores % 32;
    let first = (rest > 0).then(|| format!("{:08x}", (1_u64 << rest) - 1));
    first.into_iter().chain(full).collect::<Vec<_>>().join(",")
}

fn write_port(folder: &Path, port: &Port) -> Result<()> {
    let attributes = port_attributes(port).map_err(std::io::Error::other)?;
    let state = match attributes.state {
        4 => "4: ACTIVE",
        _ => "1: DOWN",
    };
    let physical = match attributes.phys_state {
        5 => "5: LinkUp",
        _ => "3: Disabled",
    };
    let report = port.device.query_port().map_err(std::io::Error::other)?;
    let gigabits = report.megabits_per_second.unwrap_or(2500) / 1000;
    let lines = [
        ("state", state.to_owned()),
        ("phys_state", physical.to_owned()),
        ("rate", format!("{gigabits} Gb/sec")),
        ("link_layer", "Ethernet".to_owned()),
        ("lid", "0x0".to_owned()),
        ("lid_mask_count", "0".to_owned()),
        ("sm_lid", "0x0".to_owned()),
        ("sm_sl", "0".to_owned()),
        ("cap_mask", format!("{:#010x}", attributes.port_cap_flags)),
        ("pkeys/0", "0xffff".to_owned()),
    ];
    for (name, text) in &lines {
        line(&folder.join(name), text)?;
    }
    for (index, address) in port.gids().into_iter().enumerate() {
        let Some(address) = address else {
            continue;
        };
        let gid = groups(&gid_of(address).raw);
        line(&folder.join(format!("gids/{index}")), &gid)?;
        line(&folder.join(format!("gid_attrs/types/{index}")), "RoCE v2")?;
        line(
            &folder.join(format!("gid_attrs/ndevs/{index}")),
            "ringside0",
        )?;
    }
    write_counters(folder, port)
}

/// The interface by whose name programs ask for addresses (`SIOCGIFADDR`).
fn write_interface(folder: &Path, port: &Port) -> Result<()> {
    let octets = port.mac.map(|octet| format!("{octet:02x}"));
    line(&folder.join("address"), &octets.join(":"))?;
    line(
        &folder.join("mtu"),
        &port.device.config().link.mtu.to_string(),
    )?;
    line(&folder.join("ifindex"), &INTERFACE.to_string())
}

fn write_counters(folder: &Path, port: &Port) -> Result<()> {
    let counters = port.device.statistics().map_err(std::io::Error::other)?;
    for counter in counters {
        let path = folder.join("hw_counters").join(counter.name);
        line(&path, &counter.value.to_string())?;
    }
    Ok(())
}

/// Writes the counters again. `ringside-files.so` calls it when a program opens one.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_refresh_counters() {
    let (Some(folder), Some(port)) = (folder(), WRITTEN.get()) else {
        return;
    };
    let place = folder.join("sys/class/infiniband/ringside0/ports/1");
    if let Err(error) = write_counters(&place, port) {
        tracing::warn!(%error, "counters are as they were");
    }
}

#[cfg(test)]
mod tests {
    use super::{groups, local_cpus};

    #[test]
    fn gids_are_written_in_groups_of_two_bytes() {
        let gid = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 1, 2, 0xFF, 0xFE, 3, 4, 5];
        assert_eq!(groups(&gid), "fe80:0000:0000:0000:0201:02ff:fe03:0405");
    }

    #[test]
    fn a_mask_of_cores_has_a_bit_for_each() {
        let ones: u32 = local_cpus()
            .split(',')
            .map(|group| u32::from_str_radix(group, 16).unwrap().count_ones())
            .sum();
        let cores = std::thread::available_parallelism().unwrap().get();
        assert_eq!(ones as usize, cores);
    }
}
