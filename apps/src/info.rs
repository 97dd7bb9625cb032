//! `ringside info`: what a device is and can do, as `ibv_devinfo -v` shows it, and its memory plan.

use crate::cli::Info;
use crate::failure::Failure;
use crate::open::open;
use crate::output::stdout;
use anyhow::anyhow;
use ringside_config::Config;
use ringside_pmd::ddp::{PackageFacts, PackageState};
use ringside_pmd::rdma::address::{MacAddress, eui_64};
use ringside_pmd::rdma::{Gid, MAX_GIDS, ObjectUsage};
use ringside_pmd::{BringUpOptions, Device};
use ringside_spec::rdma::fpm::ObjectType;
use ringside_spec::rdma::limits;
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;

#[derive(Serialize)]
struct Facts {
    hca_id: String,
    backend: &'static str,
    transport: &'static str,
    part: String,
    vendor_id: String,
    vendor_part_id: u16,
    hw_ver: String,
    serial_number: Option<String>,
    node_guid: Option<String>,
    fw_ver: Option<String>,
    admin_interface: Option<String>,
    package: String,
    pcie_link: Option<String>,
    interrupt_vectors: Option<u16>,
    rdma: bool,
    rdma_unavailable: Option<String>,
    limits: Limits,
    port: Port,
    host_memory_cache: Option<HostMemoryCache>,
    warnings: Vec<String>,
}

/// The limits of the device with this configuration, named as by `ibv_devinfo -v`.
#[derive(Serialize)]
struct Limits {
    max_mr_size: u64,
    page_size_cap: u64,
    max_qp: u32,
    max_qp_wr: u32,
    max_sge: u32,
    max_sge_rd: u32,
    max_cq: u32,
    max_cqe: u32,
    max_mr: u32,
    max_pd: u32,
    max_qp_rd_atom: u32,
    max_qp_init_rd_atom: u32,
    max_inline_data: u32,
    max_msg_size: u32,
    atomic_cap: &'static str,
}

#[derive(Serialize)]
struct Port {
    state: &'static str,
    max_mtu: u32,
    active_mtu: u32,
    link_layer: &'static str,
    active_speed_mbps: Option<u32>,
    mac: Option<String>,
    /// in the order of their indexes
    gids: Vec<String>,
    gid_tbl_len: usize,
    pkeys: Vec<String>,
}

#[derive(Serialize)]
struct HostMemoryCache {
    objects: Vec<Object>,
    segments_of_2_mib: u64,
    backed_bytes: u64,
}

#[derive(Serialize)]
struct Object {
    object: String,
    asked: u32,
    granted: u32,
    size_bytes: u64,
    base: u64,
    memory_bytes: u64,
}

pub(crate) fn run(options: &Info, config: &Config) -> Result<(), Failure> {
    let address = options.device.as_ref().unwrap_or(&config.device.address);
    let opened = open(address, config)?;
    let device = Device::bring_up(opened.function, config, BringUpOptions::default())
        .map_err(|error| Failure::claim(anyhow!("{error}")))?;
    let facts = gather(&device)?;
    let shown = if options.json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&facts)?)
    } else {
        print(&mut stdout(), &facts)
    };
    let down = device.shutdown();
    match down.failures.first() {
        Some(failure) => Err(Failure::operation(anyhow!(
            "{address} was not left as it was found: {failure}"
        ))),
        None => Ok(shown?),
    }
}

/// The identifier of the RDMA device that programs of verbs see: its MAC address in the form of
/// EUI-64. Source: RFC 4291, appendix A.
fn node_guid(mac: MacAddress) -> String {
    let id = eui_64(mac);
    let groups = id.as_chunks().0.iter();
    let groups = groups.map(|group| format!("{:04x}", u16::from_be_bytes(*group)));
    groups.collect::<Vec<_>>().join(":")
}

fn gather(device: &Device) -> Result<Facts, Failure> {
    let found = device.facts();
    let usage = match &found.rdma_unavailable {
        None => Some(device.object_usage()?),
        Some(_) => None,
    };
    let identity = found.identity.as_ref();
    let version = |parts: (u8, u8, u8)| format!("{}.{}.{}", parts.0, parts.1, parts.2);
    let warnings = device.trace().warnings();
    Ok(Facts {
        hca_id: device.function().address().to_string(),
        backend: device.function().backend().name(),
        transport: "RoCEv2, reliable connections",
        part: identity.map_or("unknown".into(), |identity| identity.name.into()),
        vendor_id: identity.map_or(String::new(), |identity| {
            format!("{:#06x}", identity.vendor)
        }),
        vendor_part_id: identity.map_or(0, |identity| identity.device),
        hw_ver: identity.map_or(String::new(), |identity| {
            format!("{:#x}", identity.revision)
        }),
        serial_number: identity
            .and_then(|identity| identity.serial_number)
            .map(|number| format!("{number:016x}")),
        node_guid: found.mac.map(node_guid),
        fw_ver: found.rdma.firmware_version(),
        admin_interface: found.firmware.as_ref().map(|firmware| {
            format!(
                "firmware {}, interface {}",
                version(firmware.firmware),
                version(firmware.interface)
            )
        }),
        package: found.package.as_ref().map_or("none".into(), package_text),
        pcie_link: found.bus.as_ref().and_then(|bus| bus.link.clone()),
        interrupt_vectors: found.bus.as_ref().map(|bus| bus.vectors),
        rdma: found.rdma_unavailable.is_none(),
        rdma_unavailable: found.rdma_unavailable.clone(),
        limits: limits(usage.as_ref()),
        port: port(device)?,
        host_memory_cache: usage.as_ref().and_then(|usage| plan(device, usage)),
        warnings: warnings
            .map(|(stage, text)| format!("{stage}: {text}"))
            .collect(),
    })
}

fn package_text(package: &PackageFacts) -> String {
    let how = match &package.state {
        PackageState::Downloaded => "downloaded by this bring-up".to_owned(),
        PackageState::AlreadyLoaded => "already loaded".to_owned(),
        PackageState::SafeMode(reason) => return format!("none, safe mode: {reason}"),
    };
    match &package.active {
        Some(active) => {
            let version = active.version.map(|part| part.to_string()).join(".");
            format!("{} {version}, {how}", active.name)
        }
        None => how,
    }
}

fn limits(usage: Option<&ObjectUsage>) -> Limits {
    let of = |count: fn(&ObjectUsage) -> u32| usage.map_or(0, count);
    Limits {
        max_mr_size: limits::MAX_REGION_BYTES,
        page_size_cap: limits::PAGE_SIZES,
        max_qp: of(|usage| usage.queue_pairs.limit),
        max_qp_wr: limits::MAX_WORK_REQUESTS,
        max_sge: limits::MAX_FRAGMENTS,
        max_sge_rd: limits::MAX_READ_FRAGMENTS,
        max_cq: of(|usage| usage.completion_queues.limit),
        max_cqe: limits::MAX_CQ_ENTRIES,
        max_mr: of(|usage| usage.memory_regions.limit),
        max_pd: of(|usage| usage.protection_domains.limit),
        max_qp_rd_atom: limits::MAX_INBOUND_READS,
        max_qp_init_rd_atom: limits::MAX_OUTBOUND_READS,
        max_inline_data: limits::MAX_INLINE_BYTES,
        max_msg_size: limits::MAX_MESSAGE_BYTES,
        atomic_cap: "ATOMIC_NONE",
    }
}

fn port(device: &Device) -> Result<Port, Failure> {
    let found = device.facts();
    let gids = match found.rdma_unavailable {
        None => device.verbs_gids()?,
        Some(_) => Vec::new(),
    };
    let gid = |gid: &Gid| match gid.address.address {
        IpAddr::V4(four) => format!("::ffff:{four}, RoCE v2"),
        IpAddr::V6(six) => format!("{six}, RoCE v2"),
    };
    let up = found.link.as_ref().is_some_and(|link| link.up);
    Ok(Port {
        state: if up { "PORT_ACTIVE" } else { "PORT_DOWN" },
        max_mtu: 4096,
        active_mtu: device.config().rdma.path_mtu.bytes(),
        link_layer: "Ethernet",
        active_speed_mbps: found
            .link
            .as_ref()
            .and_then(|link| link.megabits_per_second),
        mac: found
            .mac
            .map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
        gid_tbl_len: MAX_GIDS,
        gids: gids.iter().map(gid).collect(),
        pkeys: vec!["0xffff".into()],
    })
}

fn plan(device: &Device, usage: &ObjectUsage) -> Option<HostMemoryCache> {
    let layout = device.facts().rdma.layout.as_ref()?;
    let plan = layout.plan();
    let objects = ObjectType::ALL
        .iter()
        .filter(|&&object| plan.count(object) > 0)
        .map(|&object| {
            let placed = layout.placement(object);
            Object {
                object: format!("{object:?}"),
                asked: plan.count(object),
                granted: placed.count,
                size_bytes: placed.size_bytes,
                base: placed.base.0,
                memory_bytes: u64::from(placed.count) * placed.size_bytes,
            }
        });
    Some(HostMemoryCache {
        objects: objects.collect(),
        segments_of_2_mib: u64::from(layout.segments()),
        backed_bytes: usage.host_memory_cache_bytes,
    })
}

/// Prints one line of a device's facts.
fn fact(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "\t{name:<24}{value}")
}

fn print(out: &mut dyn Write, facts: &Facts) -> io::Result<()> {
    let maybe = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    writeln!(out, "hca_id: {}", facts.hca_id)?;
    fact(out, "backend:", facts.backend)?;
    fact(out, "transport:", facts.transport)?;
    fact(out, "part:", &facts.part)?;
    fact(out, "fw_ver:", &maybe(&facts.fw_ver))?;
    fact(out, "admin queue:", &maybe(&facts.admin_interface))?;
    fact(out, "package:", &facts.package)?;
    fact(out, "node_guid:", &maybe(&facts.node_guid))?;
    fact(out, "serial number:", &maybe(&facts.serial_number))?;
    fact(out, "vendor_id:", &facts.vendor_id)?;
    fact(out, "vendor_part_id:", &facts.vendor_part_id.to_string())?;
    fact(out, "hw_ver:", &facts.hw_ver)?;
    fact(out, "pcie_link:", &maybe(&facts.pcie_link))?;
    fact(
        out,
        "interrupt_vectors:",
        &facts
            .interrupt_vectors
            .map_or("unknown".into(), |count| count.to_string()),
    )?;
    if let Some(reason) = &facts.rdma_unavailable {
        fact(out, "RDMA:", &format!("not available: {reason}"))?;
    }
    let limits = &facts.limits;
    fact(out, "max_mr_size:", &format!("{:#x}", limits.max_mr_size))?;
    fact(
        out,
        "page_size_cap:",
        &format!("{:#x}", limits.page_size_cap),
    )?;
    for (name, value) in [
        ("max_qp:", limits.max_qp),
        ("max_qp_wr:", limits.max_qp_wr),
        ("max_sge:", limits.max_sge),
        ("max_sge_rd:", limits.max_sge_rd),
        ("max_cq:", limits.max_cq),
        ("max_cqe:", limits.max_cqe),
        ("max_mr:", limits.max_mr),
        ("max_pd:", limits.max_pd),
        ("max_qp_rd_atom:", limits.max_qp_rd_atom),
        ("max_qp_init_rd_atom:", limits.max_qp_init_rd_atom),
        ("max_inline_data:", limits.max_inline_data),
        ("max_msg_size:", limits.max_msg_size),
    ] {
        fact(out, name, &value.to_string())?;
    }
    fact(out, "atomic_cap:", limits.atomic_cap)?;
    print_port(out, &facts.port)?;
    if let Some(cache) = &facts.host_memory_cache {
        print_plan(out, cache)?;
    }
    for warning in &facts.warnings {
        writeln!(out, "\twarning: {warning}")?;
    }
    Ok(())
}

fn print_port(out: &mut dyn Write, port: &Port) -> io::Result<()> {
    writeln!(out, "\t\tport:\t1")?;
    let mut line = |name: &str, value: &str| writeln!(out, "\t\t\t{name:<24}{value}");
    line("state:", port.state)?;
    line("max_mtu:", &port.max_mtu.to_string())?;
    line("active_mtu:", &port.active_mtu.to_string())?;
    line("link_layer:", port.link_layer)?;
    line(
        "active_speed:",
        &port
            .active_speed_mbps
            .map_or("unknown".into(), |speed| format!("{speed} Mb/s")),
    )?;
    line("mac:", port.mac.as_deref().unwrap_or("unknown"))?;
    line("gid_tbl_len:", &port.gid_tbl_len.to_string())?;
    for (index, gid) in port.gids.iter().enumerate() {
        line(&format!("GID[{index}]:"), gid)?;
    }
    for (index, key) in port.pkeys.iter().enumerate() {
        line(&format!("P_Key[{index}]:"), key)?;
    }
    Ok(())
}

fn print_plan(out: &mut dyn Write, cache: &HostMemoryCache) -> io::Result<()> {
    writeln!(
        out,
        "\thost memory cache: {} segments of 2 MiB, {} bytes backed now",
        cache.segments_of_2_mib, cache.backed_bytes
    )?;
    writeln!(
        out,
        "\t\t{:<32} {:>9} {:>9} {:>6} {:>12} {:>12}",
        "object", "asked", "granted", "size", "base", "memory"
    )?;
    for object in &cache.objects {
        writeln!(
            out,
            "\t\t{:<32} {:>9} {:>9} {:>6} {:>#12x} {:>12}",
            object.object,
            object.asked,
            object.granted,
            object.size_bytes,
            object.base,
            object.memory_bytes
        )?;
    }
    Ok(())
}
