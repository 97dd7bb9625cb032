use super::*;
use crate::doctor::facts::{self, GroupFile, HugePagePool, Node};
use crate::fixture::Tree;
use ringside_bus::sysfs::{Holder, PciFunction};

const ADDRESS: &str = "0000:3b:00.0";

fn function(address: &str, driver: &str) -> PciFunction {
    PciFunction {
        address: address.into(),
        vendor: 0x8086,
        device: 0x1592,
        class: 0x02_0000,
        driver: Some(driver.into()),
        driver_override: None,
        group: Some(14),
        numa_node: Some(1),
        interfaces: Vec::new(),
    }
}

/// A machine on which nothing is left to do, for a user who is not root.
fn good() -> (Facts, Config) {
    let link = Link {
        speed: "16.0 GT/s PCIe".into(),
        lanes: 16,
    };
    let card = Card {
        function: function(ADDRESS, "vfio-pci"),
        part: Some("E810-C for QSFP"),
        group: vec![function(ADDRESS, "vfio-pci")],
        file: Some(GroupFile {
            path: "/dev/vfio/14".into(),
            mode: 0o660,
            user: 0,
            group: 77,
        }),
        holders: Vec::new(),
        link: Some(link.clone()),
        best_link: Some(link),
    };
    let node = |number: u32, first: usize| Node {
        number,
        cores: (first..first + 4).collect(),
        distances: vec![10, 21],
    };
    let facts = Facts {
        cards: vec![card],
        iommu_groups: 30,
        command_line: "quiet".into(),
        processor_vendor: "GenuineIntel".into(),
        processor_flags: vec!["constant_tsc".into(), "nonstop_tsc".into()],
        vfio_pci: true,
        container: true,
        user: 1000,
        groups: vec![1000, 77],
        memlock: Some(Memlock {
            soft: None,
            hard: None,
        }),
        huge_pages: vec![HugePagePool {
            node: 1,
            kib: 2048,
            total: 512,
            free: 512,
        }],
        nodes: vec![node(0, 0), node(1, 4)],
        isolated: vec![5, 6],
        spreads_interrupts: false,
        allowed: (0..8).collect(),
        clock_source: Some("tsc".into()),
        governors: (0..8).map(|core| (core, "performance".into())).collect(),
        package: Some("/lib/firmware/intel/ice/ddp/ice.pkg".into()),
    };
    let mut config = Config::default();
    config.worker.cores = vec![5, 6];
    (facts, config)
}

/// The findings that are not fine after `change`.
fn after(change: impl FnOnce(&mut Facts, &mut Config)) -> Vec<Finding> {
    let (mut facts, mut config) = good();
    change(&mut facts, &mut config);
    let found = all(&facts, &config).into_iter();
    found.filter(|one| one.weight != Weight::Fine).collect()
}

/// The one finding after `change`.
fn one(change: impl FnOnce(&mut Facts, &mut Config)) -> (&'static str, Weight, String) {
    let found = after(change);
    assert_eq!(found.len(), 1, "{found:#?}");
    let text = format!("{}\n{}", found[0].what, found[0].remedy.join("\n"));
    assert!(!found[0].remedy.is_empty(), "{text}");
    (found[0].check, found[0].weight, text)
}

#[test]
fn a_machine_on_which_nothing_is_left_to_do_gets_no_advice() {
    assert_eq!(after(|_, _| {}), []);
    // A core without a worker may save power.
    assert_eq!(after(|f, _| f.governors[0].1 = "powersave".into()), []);
}

#[test]
fn each_obstacle_alone_is_found_and_mended_by_a_command() {
    type Change = fn(&mut Facts, &mut Config);
    let cases: [(Change, &str, Weight, &str); 19] = [
        (
            |f, _| f.cards.clear(),
            "card",
            Weight::Blocks,
            "ringside bench",
        ),
        (
            |f, _| f.cards[0].part = None,
            "card",
            Weight::Blocks,
            "8086:1592",
        ),
        (
            |f, _| f.iommu_groups = 0,
            "IOMMU",
            Weight::Blocks,
            "intel_iommu=on",
        ),
        (
            |f, _| f.vfio_pci = false,
            "vfio-pci",
            Weight::Blocks,
            "modprobe vfio-pci",
        ),
        (
            |f, _| f.cards[0].group.push(function("0000:3b:00.1", "ice")),
            "IOMMU group",
            Weight::Blocks,
            "ringside bind 0000:3b:00.1",
        ),
        (
            |f, _| f.cards[0].function.driver = Some("ice".into()),
            "driver",
            Weight::Blocks,
            "ringside bind 0000:3b:00.0",
        ),
        (
            |f, _| f.cards[0].function.driver = None,
            "driver",
            Weight::Blocks,
            "no driver",
        ),
        (
            |f, _| {
                f.cards[0].holders = vec![Holder {
                    pid: 42,
                    name: "other".into(),
                }];
            },
            "driver",
            Weight::Blocks,
            "kill 42",
        ),
        (
            |f, _| f.groups = vec![1000],
            "permission",
            Weight::Blocks,
            "chown 1000 /dev/vfio/14",
        ),
        (
            |f, _| f.cards[0].file.as_mut().unwrap().mode = 0o640,
            "permission",
            Weight::Blocks,
            "60-ringside-vfio.rules",
        ),
        (
            |f, _| f.memlock.as_mut().unwrap().soft = Some(8 << 20),
            "locked memory",
            Weight::Blocks,
            "ulimit -l unlimited",
        ),
        (
            |f, _| f.huge_pages[0].free = 3,
            "huge pages",
            Weight::Slows,
            "echo 544 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        (
            |_, c| c.memory.hugepages = HugePages::OneGib,
            "huge pages",
            Weight::Blocks,
            "hugepages-1048576kB/nr_hugepages",
        ),
        (
            |f, _| f.cards[0].link.as_mut().unwrap().speed = "5.0 GT/s PCIe".into(),
            "PCIe link",
            Weight::Slows,
            "lspci -vv -s 0000:3b:00.0",
        ),
        (
            |f, _| f.cards[0].function.numa_node = Some(0),
            "NUMA",
            Weight::Slows,
            "worker.cores = [0, 1, 2, 3]",
        ),
        (
            |f, _| f.package = None,
            "DDP package",
            Weight::Slows,
            "firmware-intel-misc",
        ),
        (
            |f, _| f.isolated.clear(),
            "core isolation",
            Weight::Slows,
            "isolcpus=managed_irq,domain,5,6",
        ),
        (
            |f, _| f.clock_source = Some("hpet".into()),
            "clock",
            Weight::Slows,
            "tsc=reliable",
        ),
        (
            |f, _| f.governors[5].1 = "powersave".into(),
            "CPU governor",
            Weight::Slows,
            "cpu$c/cpufreq/scaling_governor",
        ),
    ];
    for (change, check, weight, text) in cases {
        // A card on another node has no pages there either.
        let also = |facts: &mut Facts, config: &mut Config| {
            change(facts, config);
            let mut other = facts.huge_pages[0].clone();
            other.node = 0;
            facts.huge_pages.push(other);
        };
        let found = one(also);
        assert_eq!((found.0, found.1), (check, weight), "{}", found.2);
        assert!(found.2.contains(text), "{check}: {}", found.2);
    }
}

#[test]
fn interrupts_are_bound_by_root_where_no_daemon_moves_them() {
    let asks = |config: &mut Config| config.worker.bind_interrupts = true;
    let sleeping = one(|_, config| config.worker.polling = ringside_config::Polling::BusyThenSleep);
    assert_eq!(
        (sleeping.0, sleeping.1),
        ("interrupt affinity", Weight::Slows)
    );
    assert!(
        sleeping.2.contains("worker.bind_interrupts = true"),
        "{}",
        sleeping.2
    );
    let user = one(|_, config| asks(config));
    assert!(user.2.contains("run as root"), "{}", user.2);
    let moved = one(|facts, config| {
        asks(config);
        (facts.user, facts.spreads_interrupts) = (0, true);
    });
    assert!(
        moved.2.contains("IRQBALANCE_BANNED_CPULIST=5,6"),
        "{}",
        moved.2
    );
    let bound = after(|facts, config| {
        asks(config);
        facts.user = 0;
    });
    assert_eq!(bound, []);
}

#[test]
fn a_link_is_judged_by_what_a_port_needs_of_it() {
    let speed = |speed: &str, lanes: u32| {
        let link = Link {
            speed: speed.into(),
            lanes,
        };
        gigabits(&link)
    };
    assert!((speed("16.0 GT/s PCIe", 16) - 252.06).abs() < 0.1);
    assert!((speed("5.0 GT/s PCIe", 8) - 32.0).abs() < 0.1);
    assert!(speed("Unknown", 16).abs() < f64::EPSILON);
    // 8 GT/s x16 carries a port of 100 Gb/s, though the card could have more
    let found =
        after(|facts, _| facts.cards[0].link.as_mut().unwrap().speed = "8.0 GT/s PCIe".into());
    assert_eq!(found, []);
}

#[test]
fn root_needs_neither_permission_nor_limit() {
    let found = after(|facts, _| {
        facts.user = 0;
        facts.groups = vec![0];
        facts.memlock.as_mut().unwrap().soft = Some(1);
    });
    assert_eq!(found, []);
}

#[test]
fn facts_are_gathered_from_the_files_of_the_kernel() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("vfio-pci"), Some(14));
    tree.function("0000:00:1f.0", 0x8086, 0x2918, None, Some(3));
    let folder = format!("sys/bus/pci/devices/{ADDRESS}");
    for (file, text) in [
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "8\n"),
        ("max_link_speed", "16.0 GT/s PCIe\n"),
        ("max_link_width", "16\n"),
    ] {
        tree.file(&format!("{folder}/{file}"), text);
    }
    tree.file("dev/vfio/vfio", "");
    tree.file("dev/vfio/14", "");
    tree.file("sys/bus/pci/drivers/vfio-pci/bind", "");
    tree.file("proc/cmdline", "quiet intel_iommu=on\n");
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu constant_tsc\n\nprocessor\t: 1\n",
    );
    tree.file(
        "proc/self/status",
        "Uid:\t1000\t1001\t0\t0\nGid:\t5\t6\t0\t0\nGroups:\t7 8 \n",
    );
    tree.file("sys/devices/system/node/node0/cpulist", "0-2,5\n");
    tree.file("sys/devices/system/node/node0/distance", "10 21\n");
    let pages = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";
    tree.file(&format!("{pages}/nr_hugepages"), "64\n");
    tree.file(&format!("{pages}/free_hugepages"), "60\n");
    tree.file("sys/devices/system/cpu/isolated", "2,4-5\n");
    tree.file(
        "sys/devices/system/cpu/cpu10/cpufreq/scaling_governor",
        "powersave\n",
    );
    tree.file("lib/firmware/intel/ice/ddp/ice.pkg.xz", "");
    let found = facts::gather(&tree.sysfs(), None, &Config::default());
    assert_eq!(found.cards.len(), 1);
    let card = &found.cards[0];
    assert_eq!(card.link.as_ref().unwrap().lanes, 8);
    assert_eq!(card.best_link.as_ref().unwrap().speed, "16.0 GT/s PCIe");
    assert_eq!(card.file.as_ref().unwrap().path, "/dev/vfio/14");
    assert!(found.vfio_pci && found.container);
    assert_eq!((found.user, found.groups), (1001, vec![7, 8, 6]));
    assert_eq!(found.processor_vendor, "GenuineIntel");
    assert_eq!(found.processor_flags, ["fpu", "constant_tsc"]);
    assert_eq!(found.nodes[0].cores, [0, 1, 2, 5]);
    assert_eq!(found.isolated, [2, 4, 5]);
    assert_eq!(
        (found.huge_pages[0].total, found.huge_pages[0].free),
        (64, 60)
    );
    assert_eq!(found.governors, [(10, "powersave".to_owned())]);
    assert!(found.package.unwrap().ends_with("ice.pkg.xz"));
    let asked = facts::gather(&tree.sysfs(), Some("0000:00:1f.0"), &Config::default());
    assert_eq!(asked.cards[0].part, None);
}

#[test]
fn a_list_of_cores_that_claims_too_much_is_not_believed() {
    assert_eq!(facts::list("0-99999999999").len(), 8192);
    assert_eq!(facts::list("x,3,7-5,"), [3]);
}

#[test]
fn a_card_without_a_group_among_others_is_named_and_not_to_be_bound() {
    let found = after(|facts, _| {
        let mut alone = facts.cards[0].clone();
        alone.function = function("0000:af:00.0", "ice");
        alone.function.group = None;
        facts.cards.push(alone);
    });
    let iommu = found.iter().find(|one| one.check == "IOMMU").unwrap();
    assert!(iommu.what.starts_with("incomplete"), "{iommu:?}");
    assert!(iommu.what.contains("0000:af:00.0"), "{iommu:?}");
    let driver = found.iter().find(|one| one.check == "driver").unwrap();
    assert_eq!(driver.remedy, [] as [String; 0]);
}

#[test]
fn a_node_without_huge_pages_is_told() {
    let (_, _, text) = one(|facts, _| facts.huge_pages.clear());
    assert!(text.contains("node 1: no pool of huge pages"), "{text}");
}
