//! Judgements, from facts alone.

use super::facts::{Card, Facts, Link};
use super::finding::{Finding, Weight, core_list, finding, fine};
use ringside_bus::vfio::Memlock;
use ringside_config::{Config, HugePages};

/// Locked memory below which a first benchmark does not run: with the sample configuration bring-up
/// locked 8 MiB for each function, and `ringside bench` as much again (seen over VFIO).
const LOCKED_BYTES_MIN: u64 = 16 << 20;

/// Locked memory with room for regions of some size.
const LOCKED_BYTES_GOOD: u64 = 64 << 20;

/// 2 MiB pages that hold as much.
const HUGE_PAGES_MIN: u64 = LOCKED_BYTES_GOOD >> 21;

/// The bandwidth that one port of 100 Gb/s needs from its slot, in gigabits per second.
const PORT_GBITS: f64 = 100.0;

/// Everything, in the order in which it is to be mended.
pub(super) fn all(facts: &Facts, config: &Config) -> Vec<Finding> {
    let mut found = vec![cards(facts), iommu(facts), vfio(facts)];
    for card in &facts.cards {
        found.extend(group(card));
        found.push(binding(card));
        found.extend(permission(facts, card));
        found.extend(link(card));
        found.extend(numa(facts, card, config));
    }
    found.push(memlock(facts));
    found.extend(huge_pages(facts, config));
    found.push(package(facts, config));
    found.push(isolation(facts, config));
    found.extend(interrupts::affinity(facts, config));
    found.push(clock(facts));
    found.extend(governor(facts, config));
    found
}

fn cards(facts: &Facts) -> Finding {
    let check = "card";
    if let Some(card) = facts.cards.iter().find(|card| card.part.is_none()) {
        let function = &card.function;
        let what = format!(
            "{} is {:04x}:{:04x}, which is no E810",
            function.address, function.vendor, function.device
        );
        return finding(
            check,
            Weight::Blocks,
            what,
            ["ringside devices   # lists the E810 functions".into()],
        );
    }
    if facts.cards.is_empty() {
        return finding(
            check,
            Weight::Blocks,
            "there is no E810 in this machine",
            ["ringside bench     # runs on the software model, without a card".into()],
        );
    }
    let list = facts.cards.iter().map(|card| {
        format!(
            "{} ({})",
            card.function.address,
            card.part.unwrap_or_default()
        )
    });
    fine(check, list.collect::<Vec<_>>().join(", "))
}

fn iommu(facts: &Facts) -> Finding {
    let check = "IOMMU";
    let alone = facts
        .cards
        .iter()
        .filter(|card| card.function.group.is_none());
    let alone: Vec<_> = alone.map(|card| &*card.function.address).collect();
    if facts.iommu_groups > 0 && alone.is_empty() {
        return fine(check, format!("on, {} groups", facts.iommu_groups));
    }
    let (setting, option) = match facts.processor_vendor.as_str() {
        "AuthenticAMD" => ("AMD-Vi (IOMMU)", None),
        "GenuineIntel" => ("VT-d", Some("intel_iommu=on")),
        _ => ("the IOMMU", None),
    };
    let firmware = format!("switch {setting} on in the firmware set-up");
    let missing = option.filter(|option| !facts.command_line.contains(option));
    let (state, whom) = match facts.iommu_groups {
        0 => ("off", "the card".to_owned()),
        _ => ("incomplete", alone.join(", ")),
    };
    let mut made = finding(
        check,
        Weight::Blocks,
        format!(
            "{state}: the kernel has no IOMMU group for {whom}, and without one a device can write \
             to any memory"
        ),
        [firmware],
    );
    if let Some(option) = missing {
        made.remedy.push(format!(
            "add {option} to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, restart"
        ));
    }
    made
}

fn vfio(facts: &Facts) -> Finding {
    let check = "vfio-pci";
    if facts.vfio_pci && facts.container {
        return fine(check, "loaded");
    }
    finding(
        check,
        Weight::Blocks,
        "not loaded",
        [
            "modprobe vfio-pci".into(),
            "echo vfio-pci > /etc/modules-load.d/vfio-pci.conf   # at each start".into(),
        ],
    )
}

fn group(card: &Card) -> Option<Finding> {
    let address = &card.function.address;
    let group = card.function.group?;
    let others = card
        .group
        .iter()
        .filter(|other| other.address != *address && !other.is_bridge());
    let (blocking, harmless): (Vec<_>, Vec<_>) = others.partition(|other| other.blocks_group());
    let check = "IOMMU group";
    if blocking.is_empty() {
        let shared = match harmless.len() {
            0 => "its own".to_owned(),
            count => format!("shared with {count} functions that have no kernel driver"),
        };
        return Some(fine(check, format!("{address}: group {group}, {shared}")));
    }
    let list = blocking.iter().map(|other| {
        let driver = other.driver.as_deref().unwrap_or("no driver");
        format!("{} ({driver})", other.address)
    });
    let what = format!(
        "{address}: group {group} is shared with {}, whose memory it could reach",
        list.collect::<Vec<_>>().join(", ")
    );
    let addresses: Vec<_> = blocking
        .iter()
        .map(|other| other.address.as_str())
        .collect();
    Some(finding(
        check,
        Weight::Blocks,
        what,
        [
            format!("ringside bind {}", addresses.join(" ")),
            "or put the card into a slot behind a port with access control services".into(),
        ],
    ))
}

fn binding(card: &Card) -> Finding {
    let (check, address) = ("driver", &card.function.address);
    let what = match card.function.driver.as_deref() {
        Some("vfio-pci") => match card.holders.first() {
            None => return fine(check, format!("{address}: vfio-pci")),
            Some(holder) => {
                let what = format!("{address}: vfio-pci, and claimed by {holder}");
                return finding(
                    check,
                    Weight::Blocks,
                    what,
                    [format!("kill {}", holder.pid)],
                );
            }
        },
        Some(driver) => format!("{address}: the kernel's {driver} has it"),
        None => format!("{address}: no driver has it"),
    };
    let mut made = finding(check, Weight::Blocks, what, []);
    // Without a group vfio-pci would not take it: another finding has the remedy.
    if card.function.group.is_some() {
        made.remedy.push(format!("ringside bind {address}"));
    }
    made
}

fn permission(facts: &Facts, card: &Card) -> Option<Finding> {
    let file = card.file.as_ref()?;
    let check = "permission";
    let (path, user) = (&file.path, facts.user);
    let may = |bits: u32| file.mode >> bits & 0o6 == 0o6;
    let allowed = user == 0
        || (file.user == user && may(6))
        || (facts.groups.contains(&file.group) && may(3))
        || may(0);
    if allowed {
        return Some(fine(check, format!("{path} is open to user {user}")));
    }
    let what = format!(
        "{path} belongs to user {} and group {}, mode {:o}: closed to user {user}",
        file.user, file.group, file.mode
    );
    Some(finding(
        check,
        Weight::Blocks,
        what,
        [
            format!("chown {user} {path}   # until it is bound again"),
            "install config/60-ringside-vfio.rules in /etc/udev/rules.d   # for good".into(),
        ],
    ))
}

fn link(card: &Card) -> Option<Finding> {
    let (check, address) = ("PCIe link", &card.function.address);
    let (now, best) = (card.link.as_ref()?, card.best_link.as_ref()?);
    let carries = gigabits(now);
    let text = format!(
        "{address}: {} x{}, {carries:.0} Gbit/s after line coding",
        now.speed, now.lanes
    );
    // The usable share after packet overhead, which is about a tenth.
    if carries > 0.0 && carries * 0.9 < PORT_GBITS && gigabits(best) > carries {
        let what = format!("{text}; the card could have {} x{}", best.speed, best.lanes);
        return Some(finding(
            check,
            Weight::Slows,
            what,
            [format!(
                "put the card into a slot with {} lanes of {}, or check the slot's bifurcation in the \
             firmware set-up; lspci -vv -s {address} shows the link",
                best.lanes, best.speed
            )],
        ));
    }
    Some(fine(check, text))
}

/// The bandwidth of a link after line coding: 8b/10b up to 5 GT/s, 128b/130b above.
fn gigabits(link: &Link) -> f64 {
    let speed = link.speed.split_whitespace().next().unwrap_or("");
    let transfers: f64 = speed.parse().unwrap_or(0.0);
    let coding = if transfers > 5.0 { 128.0 / 130.0 } else { 0.8 };
    transfers * coding * f64::from(link.lanes)
}

/// Cores that would poll: those that are configured, else those that are allowed.
fn workers(facts: &Facts, config: &Config) -> Vec<usize> {
    match config.worker.cores.as_slice() {
        [] => facts.allowed.clone(),
        cores => cores.iter().map(|&core| core as usize).collect(),
    }
}

fn numa(facts: &Facts, card: &Card, config: &Config) -> Option<Finding> {
    let check = "NUMA";
    let address = &card.function.address;
    if facts.nodes.len() < 2 {
        return None;
    }
    let Some(number) = card.function.numa_node else {
        let what = format!("{address}: the kernel does not report the node of the card");
        return Some(finding(
            check,
            Weight::Slows,
            what,
            ["switch the node of the slot (SRAT, _PXM) on in the firmware set-up".into()],
        ));
    };
    let node = facts.nodes.iter().find(|node| node.number == number)?;
    let far: Vec<_> = workers(facts, config)
        .into_iter()
        .filter(|core| !node.cores.contains(core))
        .collect();
    if far.is_empty() {
        return Some(fine(
            check,
            format!("{address}: card and cores are on node {number}"),
        ));
    }
    let distance = node.distances.iter().max().copied().unwrap_or(0);
    let what = format!(
        "{address} is on node {number}, the cores {far:?} are not (distance up to {distance}, 10 is near)"
    );
    let near: Vec<_> = node.cores.iter().take(4).collect();
    Some(finding(
        check,
        Weight::Slows,
        what,
        [format!(
            "worker.cores = {near:?} in the configuration   # cores of node {number}: {:?}",
            node.cores
        )],
    ))
}

fn memlock(facts: &Facts) -> Finding {
    let check = "locked memory";
    if facts.user == 0 {
        return fine(check, "root has no limit of locked memory");
    }
    match facts.memlock.map(|limit| limit.soft) {
        None => fine(check, "the kernel does not report the limit"),
        Some(None) => fine(check, "unlimited"),
        Some(Some(soft)) if soft < LOCKED_BYTES_GOOD => finding(
            check,
            if soft < LOCKED_BYTES_MIN {
                Weight::Blocks
            } else {
                Weight::Slows
            },
            format!("limited to {soft} bytes, and DMA memory counts as locked"),
            [Memlock::remedy(LOCKED_BYTES_GOOD)],
        ),
        Some(Some(soft)) => fine(check, format!("limited to {soft} bytes")),
    }
}

fn huge_pages(facts: &Facts, config: &Config) -> Vec<Finding> {
    let check = "huge pages";
    let mut nodes: Vec<_> = facts
        .cards
        .iter()
        .filter_map(|card| card.function.numa_node)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        nodes = facts.nodes.iter().map(|node| node.number).take(1).collect();
    }
    let wanted = match config.memory.hugepages {
        HugePages::None => return vec![fine(check, "not requested by the configuration")],
        HugePages::OneGib => 1 << 20,
        HugePages::TwoMib | HugePages::Auto => 2048,
    };
    let insists = config.memory.hugepages != HugePages::Auto;
    let mut found = Vec::new();
    for node in nodes {
        let pools = facts.huge_pages.iter().filter(|pool| pool.node == node);
        let mut list: Vec<_> = pools
            .clone()
            .map(|pool| {
                format!(
                    "{} of {} pages of {} KiB free",
                    pool.free, pool.total, pool.kib
                )
            })
            .collect();
        if list.is_empty() {
            list.push("no pool of huge pages".into());
        }
        let needed = if wanted == 2048 { HUGE_PAGES_MIN } else { 1 };
        let enough = pools
            .clone()
            .any(|pool| pool.kib >= wanted && pool.free * pool.kib >= needed * wanted);
        let text = format!("node {node}: {}", list.join(", "));
        if enough {
            found.push(fine(check, text));
            continue;
        }
        let weight = if insists {
            Weight::Blocks
        } else {
            Weight::Slows
        };
        let total = pools
            .filter(|pool| pool.kib == wanted)
            .map(|pool| pool.total)
            .sum::<u64>();
        let file = format!(
            "/sys/devices/system/node/node{node}/hugepages/hugepages-{wanted}kB/nr_hugepages"
        );
        found.push(finding(
            check,
            weight,
            text,
            [format!("echo {} > {file}", total + needed)],
        ));
    }
    found
}

fn package(facts: &Facts, config: &Config) -> Finding {
    let check = "DDP package";
    if let Some(path) = &facts.package {
        return fine(check, path.display().to_string());
    }
    let weight = if config.ddp.require {
        Weight::Blocks
    } else {
        Weight::Slows
    };
    let what = format!(
        "{} is in none of the folders of ddp.search: unless the card has one already, it runs in \
         safe mode, without RDMA",
        config.ddp.file.display()
    );
    finding(
        check,
        weight,
        what,
        ["apt-get install firmware-intel-misc   # Debian; linux-firmware elsewhere".into()],
    )
}

fn isolation(facts: &Facts, config: &Config) -> Finding {
    let check = "core isolation";
    let wanted: Vec<_> = config
        .worker
        .cores
        .iter()
        .map(|&core| core as usize)
        .collect();
    let shared: Vec<_> = wanted
        .iter()
        .filter(|core| !facts.isolated.contains(core))
        .collect();
    if !wanted.is_empty() && shared.is_empty() {
        return fine(check, format!("{wanted:?} are isolated"));
    }
    let what = match wanted.is_empty() {
        true if facts.isolated.is_empty() => "no core is set aside for polling".to_owned(),
        true => format!(
            "{:?} are isolated, and worker.cores names none of them",
            facts.isolated
        ),
        false => format!("the scheduler gives the cores {shared:?} to others too"),
    };
    let cores = match (wanted.is_empty(), facts.isolated.as_slice()) {
        (true, []) => core_list(&last_two(&facts.allowed)),
        (true, isolated) => core_list(isolated),
        (false, _) => core_list(&wanted),
    };
    let boot = format!(
        "add isolcpus=managed_irq,domain,{cores} nohz_full={cores} rcu_nocbs={cores} to the kernel's \
         command line, restart"
    );
    let name = format!("worker.cores = [{cores}] in the configuration");
    match facts.isolated.is_empty() {
        true => finding(check, Weight::Slows, what, [boot, name]),
        false => finding(check, Weight::Slows, what, [name]),
    }
}

/// Two cores to poll on, or one: the last ones, since the first does the kernel's housekeeping.
fn last_two(cores: &[usize]) -> Vec<usize> {
    let others = cores.get(1..).unwrap_or(&[]);
    others
        .get(others.len().saturating_sub(2)..)
        .unwrap_or(&[])
        .to_vec()
}

fn clock(facts: &Facts) -> Finding {
    let check = "clock";
    let steady = ["constant_tsc", "nonstop_tsc"];
    let has = |flag: &&str| facts.processor_flags.iter().any(|known| known == flag);
    let missing: Vec<_> = steady.iter().filter(|flag| !has(flag)).collect();
    match facts.clock_source.as_deref() {
        Some("tsc") if missing.is_empty() => fine(check, "tsc, at a constant rate"),
        Some("tsc") => finding(
            check,
            Weight::Slows,
            format!("tsc, but the processor does not promise {missing:?}: latencies may be wrong"),
            ["in a virtual machine: have the hypervisor pass the invariant TSC through".into()],
        ),
        other => finding(
            check,
            Weight::Slows,
            format!(
                "{}: the kernel does not trust the processor's time stamp counter",
                other.unwrap_or("unknown")
            ),
            [
                "dmesg | grep -i tsc   # shows the reason".into(),
                "add tsc=reliable to the kernel's command line if the machine's counters agree"
                    .into(),
            ],
        ),
    }
}

fn governor(facts: &Facts, config: &Config) -> Option<Finding> {
    let check = "CPU governor";
    // A machine without frequency scaling, or a guest.
    facts.governors.first()?;
    let workers = workers(facts, config);
    let slow: Vec<_> = facts
        .governors
        .iter()
        .filter(|(core, governor)| workers.contains(core) && governor != "performance")
        .collect();
    if slow.is_empty() {
        return Some(fine(check, "performance"));
    }
    let cores: Vec<_> = slow.iter().map(|(core, _)| *core).collect();
    let names = slow.first().map_or("", |(_, governor)| governor.as_str());
    Some(finding(
        check,
        Weight::Slows,
        format!("{names} on the cores {cores:?}"),
        [format!(
            "for c in {}; do echo performance > /sys/devices/system/cpu/cpu$c/cpufreq/scaling_governor; done",
            core_list(&cores).replace(',', " ")
        )],
    ))
}

mod interrupts;

#[cfg(test)]
mod tests;
