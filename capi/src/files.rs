//! The files that the kernel would have about the device: `/sys/class/infiniband`,
//! `/dev/infiniband`, and of its interface `/sys/class/net/ringside0`.
//!
//! They are written into the folder that `RINGSIDE_FILES` names, when the device is opened.
//! `ringside-files.so` (`capi/preload`) has programs find them there. Counters are written again
//! whenever a program opens one.
//!
//! Source of names and forms: Linux, `Documentation/ABI/stable/sysfs-class-infiniband`.

use crate::cancel::Uncancelled;
use crate::context::{port_attributes, revision};
use crate::device::{Port, lock, present};
use crate::gid::gid_of;
use crate::interface::INTERFACE;
pub(crate) use crate::interface::folder;
use crate::machine::InService;
use ringside_bus::PerProcess;
use ringside_config::LocalAddress;
use ringside_pmd::rdma::{MAX_GIDS, PortState};
use std::io::{Result, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The folder of the device's only port.
const PORT: &str = "sys/class/infiniband/ringside0/ports/1";

/// Version of the interface of `/sys/class/infiniband_verbs`, of Linux since 2.6.
const VERBS_ABI: &str = "6";

/// Version of the interface of `/sys/class/infiniband_mad`, which `ibstat` asks for.
const MAD_ABI: &str = "5";

/// The files are there.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Their absence was spoken of.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Held by the thread that writes: each file has one temporary name in a process.
static WRITER: PerProcess<Mutex<()>> = PerProcess::new();

fn writer() -> MutexGuard<'static, ()> {
    lock(WRITER.get_or_init(Mutex::default))
}

/// Writes the files, if a folder is named. Of a failure it only speaks, once: most programs read
/// none.
pub(crate) fn write(port: &Port) {
    let Some(folder) = folder() else { return };
    let _writer = writer();
    // First: a change from now on writes them again.
    IS_WRITTEN.store(true, Ordering::Relaxed);
    if let Err(error) = write_into(&folder, port)
        && !IS_TOLD.swap(true, Ordering::Relaxed)
    {
        let text = format!(
            "the files of /sys/class/infiniband are not all there, so that programs which look there \
             miss the device: {}: {error}; make room, or name another folder with XDG_RUNTIME_DIR",
            folder.display()
        );
        crate::diagnosis::say("ringside0", &text);
    }
}

/// Writes the state and the GIDs of the port again, if the files are there.
pub(crate) fn write_port_again(port: &Port) {
    let Some(folder) = folder().filter(|_| IS_WRITTEN.load(Ordering::Relaxed)) else {
        return;
    };
    let _writer = writer();
    let written =
        write_port(&folder.join(PORT), port).and_then(|()| write_interfaces(&folder, port));
    if let Err(error) = written {
        tracing::warn!(%error, "the files of the port are as they were");
    }
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

fn in_service(port: &Port) -> Result<InService<'_>> {
    port.device().map_err(std::io::Error::from_raw_os_error)
}

fn write_into(folder: &Path, port: &Port) -> Result<()> {
    let device = folder.join("sys/class/infiniband/ringside0");
    let guid = groups(&port.guid().to_ne_bytes());
    let ((vendor, part), revision, firmware) = {
        let device = in_service(port)?;
        let facts = device.facts();
        let identity = facts.identity.as_ref();
        (
            identity.map_or((0x8086, 0), |one| (one.vendor, one.device)),
            revision(facts),
            facts.rdma.firmware_version().unwrap_or_default(),
        )
    };
    let lines = [
        ("node_type", "1: CA".to_owned()),
        ("node_guid", guid.clone()),
        ("sys_image_guid", guid),
        ("node_desc", "ringside".to_owned()),
        ("fw_ver", firmware),
        ("hw_rev", format!("{revision:x}")),
        ("device/vendor", format!("{vendor:#06x}")),
        ("device/device", format!("{part:#06x}")),
        ("device/class", "0x020000".to_owned()),
        ("device/numa_node", "-1".to_owned()),
        ("device/local_cpus", local_cpus()),
    ];
    for (name, text) in &lines {
        line(&device.join(name), text)?;
    }
    write_port(&folder.join(PORT), port)?;
    write_counters(&folder.join(PORT), port)?;
    write_interfaces(folder, port)?;
    let verbs = folder.join("sys/class/infiniband_verbs");
    line(&verbs.join("abi_version"), VERBS_ABI)?;
    line(&verbs.join("uverbs0/ibdev"), "ringside0")?;
    line(&verbs.join("uverbs0/abi_version"), "1")?;
    line(
        &folder.join("sys/class/infiniband_mad/abi_version"),
        MAD_ABI,
    )?;
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
    let attributes = port_attributes(port).map_err(std::io::Error::from_raw_os_error)?;
    let state = match attributes.state {
        4 => "4: ACTIVE",
        _ => "1: DOWN",
    };
    let physical = match attributes.phys_state {
        5 => "5: LinkUp",
        _ => "3: Disabled",
    };
    let lines = [
        ("state", state.to_owned()),
        ("phys_state", physical.to_owned()),
        (
            "rate",
            rate(attributes.active_width, attributes.active_speed),
        ),
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
    for index in 0..MAX_GIDS {
        write_gid(folder, index, port.gid(index))?;
    }
    Ok(())
}

/// The lanes of a link, and of each lane the megabits a second and their name.
fn speed(width: u8, speed: u8) -> (u32, u32, &'static str) {
    let lanes = match width {
        2 => 4,
        16 => 2,
        _ => 1,
    };
    let (megabits, name) = match speed {
        8 => (10_000, "FDR10"),
        32 => (25_000, "EDR"),
        64 => (50_000, "HDR"),
        _ => (2500, "SDR"),
    };
    (lanes, megabits, name)
}

/// The rate of a link in the form of the kernel: `100 Gb/sec (4X EDR)`.
fn rate(width: u8, of_lane: u8) -> String {
    let (lanes, megabits, name) = speed(width, of_lane);
    let (gigabits, rest) = (megabits * lanes / 1000, megabits * lanes % 1000);
    let half = if rest > 0 { ".5" } else { "" };
    format!("{gigabits}{half} Gb/sec ({lanes}X {name})")
}

fn write_gid(folder: &Path, index: usize, own: Option<LocalAddress>) -> Result<()> {
    let gid = folder.join(format!("gids/{index}"));
    let [kind, device] =
        ["types", "ndevs"].map(|of| folder.join(format!("gid_attrs/{of}/{index}")));
    if let Some(own) = own {
        // For the netmask of the interface; the kernel has no file of it.
        line(
            &folder.join(format!("prefixes/{index}")),
            &own.prefix_bits.to_string(),
        )?;
        line(&gid, &groups(&gid_of(own.address).raw))?;
        line(&kind, "RoCE v2")?;
        return line(&device, "ringside0");
    }
    // The kernel says zero for an entry without an address, whose attributes cannot be read.
    line(&gid, &groups(&[0; 16]))?;
    std::fs::remove_file(kind).or_else(unless_gone)?;
    std::fs::remove_file(device).or_else(unless_gone)
}

fn unless_gone(error: std::io::Error) -> Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// The interface by whose name programs ask for addresses (`SIOCGIFADDR`), also where they look for
/// the interfaces of a device.
fn write_interfaces(folder: &Path, port: &Port) -> Result<()> {
    for place in [
        "sys/class/net/ringside0",
        "sys/class/infiniband/ringside0/device/net/ringside0",
    ] {
        write_interface(&folder.join(place), port)?;
    }
    Ok(())
}

/// Megabits a second of the link; `None` if it is down, or its speed is not known.
fn megabits(port: &Port) -> Option<u32> {
    let report = in_service(port).ok()?.query_port().ok()?;
    let is_up = report.state == PortState::Active;
    is_up.then_some(report.megabits_per_second).flatten()
}

/// Source of names and forms: Linux, `Documentation/ABI/testing/sysfs-class-net`.
fn write_interface(folder: &Path, port: &Port) -> Result<()> {
    /// `IFF_UP`, `IFF_BROADCAST`, `IFF_MULTICAST`
    const FLAGS: &str = "0x1003";
    let octets = port.mac.map(|octet| format!("{octet:02x}"));
    let mtu = in_service(port)?.config().link.mtu;
    let attributes = port_attributes(port).map_err(std::io::Error::from_raw_os_error)?;
    // As the kernel's for a link that is down, or whose speed is not known.
    let speed = megabits(port).map_or("-1".to_owned(), |speed| speed.to_string());
    let (state, carrier) = match attributes.state {
        4 => ("up", "1"),
        _ => ("down", "0"),
    };
    let lines = [
        ("address", octets.join(":")),
        ("addr_len", "6".to_owned()),
        ("type", "1".to_owned()),
        ("mtu", mtu.to_string()),
        ("ifindex", INTERFACE.to_string()),
        ("iflink", INTERFACE.to_string()),
        ("flags", FLAGS.to_owned()),
        ("operstate", state.to_owned()),
        ("carrier", carrier.to_owned()),
        ("speed", speed),
        ("duplex", "full".to_owned()),
        ("dev_id", "0x0".to_owned()),
        ("dev_port", "0".to_owned()),
    ];
    for (name, text) in &lines {
        line(&folder.join(name), text)?;
    }
    Ok(())
}

fn write_counters(folder: &Path, port: &Port) -> Result<()> {
    let counters = in_service(port)?
        .statistics()
        .map_err(std::io::Error::other)?;
    for counter in counters {
        let path = folder.join("hw_counters").join(counter.name);
        line(&path, &counter.value.to_string())?;
    }
    Ok(())
}

/// Writes the counters again. `ringside-files.so` calls it when a program opens one.
#[unsafe(no_mangle)]
pub extern "C" fn ringside_refresh_counters() {
    let _call = Uncancelled::new();
    let (Some(folder), Some(port)) = (folder(), present()) else {
        return;
    };
    let _writer = writer();
    if let Err(error) = write_counters(&folder.join(PORT), &port) {
        tracing::warn!(%error, "counters are as they were");
    }
}

#[cfg(test)]
mod tests {
    use super::{groups, local_cpus, rate};

    #[test]
    fn rates_name_lanes_and_speed() {
        assert_eq!(rate(2, 32), "100 Gb/sec (4X EDR)");
        assert_eq!(rate(16, 32), "50 Gb/sec (2X EDR)");
        assert_eq!(rate(1, 1), "2.5 Gb/sec (1X SDR)");
    }

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
