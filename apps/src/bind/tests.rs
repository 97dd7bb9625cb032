use super::*;
use crate::fixture::Tree;
use plan::Wanted;

mod changes;

const ADDRESS: &str = "0000:3b:00.0";

fn wanted(force: bool) -> Wanted<'static> {
    Wanted {
        driver: "vfio-pci",
        driver_loaded: true,
        holder: None,
        force,
    }
}

fn shown(steps: &[Step]) -> Vec<String> {
    steps.iter().map(ToString::to_string).collect()
}

#[test]
fn a_function_goes_from_its_driver_to_vfio_in_four_steps_and_back() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("ice"), Some(14));
    let sysfs = tree.sysfs();
    let function = sysfs.function(ADDRESS).unwrap();
    let wanted = Wanted {
        driver_loaded: false,
        ..wanted(false)
    };
    let plan = plan::bind(
        &function,
        &sysfs.group(14),
        &usage::Usage::default(),
        &wanted,
    )
    .unwrap();
    let folder = "/sys/bus/pci/devices/0000:3b:00.0";
    assert_eq!(
        shown(&plan.steps),
        [
            "modprobe vfio-pci".to_owned(),
            format!("echo vfio-pci > {folder}/driver_override"),
            format!("echo {ADDRESS} > {folder}/driver/unbind"),
            format!("echo {ADDRESS} > /sys/bus/pci/drivers_probe"),
        ]
    );
    assert_eq!(plan.warnings, Vec::<String>::new());
    let record = Record {
        driver: Some("ice".into()),
        driver_override: None,
    };
    let back = plan::unbind(ADDRESS, Some("vfio-pci"), Some(&record), false);
    assert_eq!(
        shown(&back),
        [
            "modprobe ice".to_owned(),
            format!("echo > {folder}/driver_override"),
            format!("echo {ADDRESS} > {folder}/driver/unbind"),
            format!("echo {ADDRESS} > /sys/bus/pci/drivers_probe"),
        ]
    );
}

#[test]
fn a_function_that_nobody_drove_is_left_to_nobody() {
    let record = Record {
        driver: None,
        driver_override: Some("pci-stub".into()),
    };
    let back = plan::unbind(ADDRESS, Some("vfio-pci"), Some(&record), true);
    assert_eq!(back.len(), 2);
    assert!(
        back[0].to_string().starts_with("echo pci-stub >"),
        "{}",
        back[0]
    );
}

#[test]
fn what_is_bound_already_needs_nothing() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("vfio-pci"), Some(14));
    let function = tree.sysfs().function(ADDRESS).unwrap();
    let plan = plan::bind(&function, &[], &usage::Usage::default(), &wanted(false)).unwrap();
    assert_eq!(plan, plan::Plan::default());
}

#[test]
fn what_is_in_use_is_refused_with_the_use_and_taken_by_force_with_a_warning() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("ice"), Some(14));
    let net = tree
        .path("sys/bus/pci/devices")
        .join(ADDRESS)
        .join("net/ens1");
    std::fs::create_dir_all(net).unwrap();
    tree.file(
        "proc/net/route",
        "Iface\tDestination\nens1\t0000000A\nens10\t0000000B\n",
    );
    tree.file(
        "proc/net/ipv6_route",
        "fe80 40 0 0 0 0 0 0 0 ens1\nff00 8 0 0 ens1\n20010db8 20 0 0 0 ens1\n",
    );
    tree.link("sys/class/net/ens1/master", "../bond0");
    tree.link("sys/class/net/ens1/upper_bond0", "../bond0");
    tree.file(
        &format!("sys/bus/pci/devices/{ADDRESS}/sriov_numvfs"),
        "2\n",
    );
    let sysfs = tree.sysfs();
    let function = sysfs.function(ADDRESS).unwrap();
    let addresses = [(
        "ens1".to_owned(),
        vec!["10.0.0.7".parse().unwrap(), "fe80::1".parse().unwrap()],
    )];
    let usage = usage::usage(&sysfs, &function, &addresses.into_iter().collect());
    assert_eq!(
        usage.to_string(),
        "ens1 has the address 10.0.0.7; 2 routes lead through ens1; ens1 is part of bond0; it has 2 \
         virtual functions"
    );
    let refusal = plan::bind(&function, &[], &usage, &wanted(false)).unwrap_err();
    assert!(refusal.to_string().contains("--force"), "{refusal}");
    let plan = plan::bind(&function, &[], &usage, &wanted(true)).unwrap();
    assert_eq!((plan.steps.len(), plan.warnings.len()), (3, 1));
}

#[test]
fn an_interface_that_is_merely_up_is_not_in_use() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("ice"), Some(14));
    let net = tree
        .path("sys/bus/pci/devices")
        .join(ADDRESS)
        .join("net/ens1");
    std::fs::create_dir_all(net).unwrap();
    tree.file("proc/net/ipv6_route", "fe80 40 0 0 0 ens1\n");
    let sysfs = tree.sysfs();
    let function = sysfs.function(ADDRESS).unwrap();
    let addresses = [("ens1".to_owned(), vec!["fe80::1".parse().unwrap()])];
    let usage = usage::usage(&sysfs, &function, &addresses.into_iter().collect());
    assert!(!usage.in_use(), "{usage}");
}

#[test]
fn other_devices_and_machines_without_iommu_are_refused_and_shared_groups_are_told() {
    let tree = Tree::new();
    tree.card(ADDRESS, Some("ice"), Some(14));
    tree.card("0000:3b:00.1", Some("ice"), Some(14));
    tree.card("0000:3b:00.2", Some("ice"), None);
    tree.function("0000:00:1f.0", 0x8086, 0x2918, Some("lpc_ich"), Some(3));
    let sysfs = tree.sysfs();
    let idle = usage::Usage::default();
    let plan_of = |address: &str, force: bool| {
        let function = sysfs.function(address).unwrap();
        let group = function
            .group
            .map(|group| sysfs.group(group))
            .unwrap_or_default();
        plan::bind(&function, &group, &idle, &wanted(force))
    };
    let warned = plan_of(ADDRESS, false).unwrap().warnings;
    assert!(warned[0].contains("0000:3b:00.1"), "{warned:?}");
    let refusal = plan_of("0000:3b:00.2", true).unwrap_err();
    assert!(matches!(refusal, Refusal::NoIommu { .. }));
    let refusal = plan_of("0000:00:1f.0", false).unwrap_err();
    assert!(refusal.to_string().contains("8086:2918"), "{refusal}");
    assert!(plan_of("0000:00:1f.0", true).is_ok());
}

#[test]
fn the_record_survives_a_second_bind_and_a_step_that_fails_names_its_file() {
    let tree = Tree::new();
    let sysfs = tree.sysfs();
    let first = Record {
        driver: Some("ice".into()),
        driver_override: None,
    };
    let second = Record {
        driver: Some("uio_pci_generic".into()),
        driver_override: Some("uio_pci_generic".into()),
    };
    write_record(&sysfs, ADDRESS, &first).unwrap();
    write_record(&sysfs, ADDRESS, &second).unwrap();
    assert_eq!(read_record(&sysfs, ADDRESS), Some(first));
    // It has a driver that no bind chose: it was given back by other means.
    let given_back = Record {
        driver: Some("e1000e".into()),
        driver_override: None,
    };
    write_record(&sysfs, ADDRESS, &given_back).unwrap();
    assert_eq!(read_record(&sysfs, ADDRESS), Some(given_back));
    assert_eq!(read_record(&sysfs, "0000:3b:00.1"), None);
    let step = Step::Write {
        text: ADDRESS.into(),
        path: "sys/nowhere/unbind".into(),
    };
    let machine = Machine {
        sysfs,
        ..Machine::default()
    };
    let failure = format!("{:?}", do_step(&machine, &step).unwrap_err());
    assert!(failure.contains("sys/nowhere/unbind"), "{failure}");
}
