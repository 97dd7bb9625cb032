//! Facts about this machine, read from the kernel.

use ringside_bus::pinning::allowed_cores;
use ringside_bus::sysfs::{Holder, PciFunction, Sysfs};
use ringside_bus::vfio::Memlock;
use ringside_config::Config;
use ringside_spec::lan::identity;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The facts that are judged. `None`: the kernel does not report the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) cards: Vec<Card>,
    /// IOMMU groups of the machine.
    pub(super) iommu_groups: usize,
    /// The kernel's command line.
    pub(super) command_line: String,
    /// `GenuineIntel`, `AuthenticAMD`.
    pub(super) processor_vendor: String,
    /// Flags of the first processor.
    pub(super) processor_flags: Vec<String>,
    /// vfio-pci is loaded or built in.
    pub(super) vfio_pci: bool,
    /// /dev/vfio/vfio is there.
    pub(super) container: bool,
    /// Effective user and groups of this process.
    pub(super) user: u32,
    pub(super) groups: Vec<u32>,
    pub(super) memlock: Option<Memlock>,
    pub(super) huge_pages: Vec<HugePagePool>,
    /// Nodes and the cores in each.
    pub(super) nodes: Vec<Node>,
    pub(super) isolated: Vec<usize>,
    /// irqbalance runs.
    pub(super) spreads_interrupts: bool,
    /// Cores that this process may run on.
    pub(super) allowed: Vec<usize>,
    pub(super) clock_source: Option<String>,
    /// Cores and their governors, where the kernel has any.
    pub(super) governors: Vec<(usize, String)>,
    /// The path of the package for the pipeline.
    pub(super) package: Option<PathBuf>,
}

/// One E810 function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) function: PciFunction,
    pub(super) part: Option<&'static str>,
    pub(super) group: Vec<PciFunction>,
    pub(super) file: Option<GroupFile>,
    pub(super) holders: Vec<Holder>,
    pub(super) link: Option<Link>,
    pub(super) best_link: Option<Link>,
}

/// The device file of an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupFile {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
}

/// A PCI Express link, as the kernel prints it: `16.0 GT/s PCIe`, lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) speed: String,
    pub(super) lanes: u32,
}

/// Huge pages of one size on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HugePagePool {
    pub(super) node: u32,
    pub(super) kib: u64,
    pub(super) total: u64,
    pub(super) free: u64,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) cores: Vec<usize>,
    /// Distance to each node; 10 is the node itself.
    pub(super) distances: Vec<u32>,
}

/// Asks the kernel.
pub(super) fn gather(sysfs: &Sysfs, address: Option<&str>, config: &Config) -> Facts {
    let functions = match address {
        Some(address) => sysfs.function(address).into_iter().collect(),
        None => sysfs.functions(),
    };
    let cards = functions.into_iter().filter_map(|function| {
        let part = identity::find(function.vendor, function.device).map(|part| part.name);
        // A function that was requested is checked, of any kind.
        (part.is_some() || address.is_some()).then(|| card(sysfs, function, part))
    });
    let status = sysfs.text("proc/self/status").unwrap_or_default();
    let ids = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or("").split_whitespace();
        words
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u32>>()
    };
    let mut groups = ids("Groups:");
    groups.extend(ids("Gid:").get(1));
    let processor = sysfs.text("proc/cpuinfo").unwrap_or_default();
    Facts {
        cards: cards.collect(),
        iommu_groups: entries(&sysfs.path("sys/kernel/iommu_groups")).len(),
        command_line: sysfs.text("proc/cmdline").unwrap_or_default(),
        processor_vendor: cpu_field(&processor, "vendor_id").to_owned(),
        processor_flags: cpu_field(&processor, "flags")
            .split_whitespace()
            .map(Into::into)
            .collect(),
        vfio_pci: sysfs.path("sys/bus/pci/drivers/vfio-pci").is_dir(),
        container: sysfs.path("dev/vfio/vfio").exists(),
        // without /proc there is nothing to compare with; root is what passes then
        user: ids("Uid:").get(1).copied().unwrap_or(0),
        groups,
        memlock: Memlock::read(&sysfs.path("proc/self/limits")),
        huge_pages: huge_pages(sysfs),
        nodes: nodes(sysfs),
        isolated: list(
            &sysfs
                .text("sys/devices/system/cpu/isolated")
                .unwrap_or_default(),
        ),
        // Its socket; the folder stays after it has ended.
        spreads_interrupts: !entries(&sysfs.path("run/irqbalance")).is_empty(),
        allowed: allowed_cores(),
        clock_source: sysfs.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        governors: governors(sysfs),
        package: package(sysfs, config),
    }
}

fn card(sysfs: &Sysfs, function: PciFunction, part: Option<&'static str>) -> Card {
    let path = function.group.map(|group| format!("/dev/vfio/{group}"));
    let file = path.as_ref().and_then(|path| {
        let data = std::fs::metadata(sysfs.path(path)).ok()?;
        Some(GroupFile {
            path: path.clone(),
            mode: data.permissions().mode() & 0o777,
            user: data.uid(),
            group: data.gid(),
        })
    });
    let link = |kind: &str| {
        let folder = format!("sys/bus/pci/devices/{}", function.address);
        Some(Link {
            speed: sysfs.text(&format!("{folder}/{kind}_link_speed"))?,
            lanes: sysfs
                .text(&format!("{folder}/{kind}_link_width"))?
                .parse()
                .ok()?,
        })
    };
    Card {
        part,
        group: function
            .group
            .map(|group| sysfs.group(group))
            .unwrap_or_default(),
        holders: sysfs.claimants(&function),
        file,
        link: link("current"),
        best_link: link("max"),
        function,
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A field of the first processor in /proc/cpuinfo.
fn cpu_field<'t>(text: &'t str, name: &str) -> &'t str {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or("", |(_, value)| value.trim())
}

/// A list as the kernel prints sets: `0-3,8`.
pub(super) fn list(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            // No machine has more; a list that claims so is not believed.
            found.extend(first..=last.min(first.saturating_add(8191)));
        }
    }
    found
}

fn nodes(sysfs: &Sysfs) -> Vec<Node> {
    let folder = "sys/devices/system/node";
    let names = entries(&sysfs.path(folder));
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let mut found: Vec<_> = numbers
        .map(|number: u32| {
            let text = |file: &str| sysfs.text(&format!("{folder}/node{number}/{file}"));
            let distances = text("distance").unwrap_or_default();
            Node {
                number,
                cores: list(&text("cpulist").unwrap_or_default()),
                distances: distances
                    .split_whitespace()
                    .filter_map(|word| word.parse().ok())
                    .collect(),
            }
        })
        .collect();
    found.sort_by_key(|node| node.number);
    found
}

fn huge_pages(sysfs: &Sysfs) -> Vec<HugePagePool> {
    let mut found = Vec::new();
    for node in nodes(sysfs).iter().map(|node| node.number) {
        let folder = format!("sys/devices/system/node/node{node}/hugepages");
        for name in entries(&sysfs.path(&folder)) {
            let kib = name
                .strip_prefix("hugepages-")
                .and_then(|name| name.strip_suffix("kB"));
            let count = |file: &str| {
                let text = sysfs.text(&format!("{folder}/{name}/{file}"));
                text.and_then(|text| text.parse().ok()).unwrap_or(0)
            };
            if let Some(kib) = kib.and_then(|kib| kib.parse().ok()) {
                found.push(HugePagePool {
                    node,
                    kib,
                    total: count("nr_hugepages"),
                    free: count("free_hugepages"),
                });
            }
        }
    }
    found
}

fn governors(sysfs: &Sysfs) -> Vec<(usize, String)> {
    let folder = "sys/devices/system/cpu";
    let names = entries(&sysfs.path(folder));
    let cores = names
        .iter()
        .filter_map(|name| name.strip_prefix("cpu")?.parse().ok());
    let mut found: Vec<_> = cores
        .filter_map(|core: usize| {
            let text = sysfs.text(&format!("{folder}/cpu{core}/cpufreq/scaling_governor"))?;
            Some((core, text))
        })
        .collect();
    found.sort();
    found
}

/// The first package file that bring-up would find.
fn package(sysfs: &Sysfs, config: &Config) -> Option<PathBuf> {
    let file = &config.ddp.file;
    let folders = config.ddp.search.iter().map(|folder| folder.join(file));
    let candidates: Vec<_> = match file.is_absolute() {
        true => vec![file.clone()],
        false => folders.collect(),
    };
    let packed = |path: &PathBuf| {
        let named = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        ["", ".xz", ".zst"].map(named)
    };
    candidates
        .iter()
        .flat_map(packed)
        .find(|path| sysfs.path(&path.to_string_lossy()).is_file())
}
