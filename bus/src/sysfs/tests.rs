use super::*;
use std::os::unix::fs::symlink;

/// A tree in the form of sysfs, with two ports of a card and a bridge in one group.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn function(&self, address: &str, id: u16, class: u32, driver: Option<&str>) {
        let path = self.0.path().join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(path.join("net")).unwrap();
        fs::write(path.join("vendor"), "0x8086\n").unwrap();
        fs::write(path.join("device"), format!("{id:#06x}\n")).unwrap();
        fs::write(path.join("class"), format!("{class:#08x}\n")).unwrap();
        fs::write(path.join("numa_node"), "-1\n").unwrap();
        fs::write(path.join("driver_override"), "(null)\n").unwrap();
        if let Some(driver) = driver {
            symlink(
                format!("../../../bus/pci/drivers/{driver}"),
                path.join("driver"),
            )
            .unwrap();
        }
        symlink("../../../kernel/iommu_groups/14", path.join("iommu_group")).unwrap();
        let group = self.0.path().join("sys/kernel/iommu_groups/14/devices");
        fs::create_dir_all(&group).unwrap();
        symlink(&path, group.join(address)).unwrap();
    }
}

#[test]
fn a_function_is_decoded_from_its_files() {
    let tree = Tree::new();
    tree.function("0000:3b:00.1", 0x1592, 0x02_0000, Some("ice"));
    let sysfs = Sysfs::at(tree.0.path());
    let path = sysfs.function_path("0000:3b:00.1");
    fs::create_dir_all(path.join("net/ens1f1")).unwrap();
    let found = sysfs.function("0000:3b:00.1").unwrap();
    assert_eq!(
        found,
        PciFunction {
            address: "0000:3b:00.1".into(),
            vendor: 0x8086,
            device: 0x1592,
            class: 0x02_0000,
            driver: Some("ice".into()),
            driver_override: None,
            group: Some(14),
            numa_node: None,
            interfaces: vec!["ens1f1".into()],
        }
    );
    assert_eq!(sysfs.function("0000:3b:00.2"), None);
    fs::write(path.join("vendor"), "no number\n").unwrap();
    assert_eq!(sysfs.function("0000:3b:00.1"), None);
}

#[test]
fn a_group_is_blocked_by_drivers_that_do_dma_and_not_by_ports() {
    let tree = Tree::new();
    tree.function("0000:3b:00.0", 0x1592, 0x02_0000, Some("vfio-pci"));
    tree.function("0000:3b:00.1", 0x1592, 0x02_0000, Some("ice"));
    tree.function("0000:3a:00.0", 0x2030, 0x06_0400, Some("pcieport"));
    tree.function("0000:3b:00.2", 0x1592, 0x02_0000, None);
    let group = Sysfs::at(tree.0.path()).group(14);
    let blocking: Vec<_> = group
        .iter()
        .filter(|function| function.blocks_group())
        .map(|function| function.address.as_str())
        .collect();
    assert_eq!(group.len(), 4);
    assert_eq!(blocking, ["0000:3b:00.1"]);
    assert!(group[0].is_bridge() && !group[1].is_bridge());
}

#[test]
fn the_processes_that_hold_a_file_are_named() {
    let tree = Tree::new();
    for (pid, target) in [
        ("41", "/dev/vfio/14"),
        ("7", "/dev/vfio/14"),
        ("8", "/dev/null"),
    ] {
        let folder = tree.0.path().join("proc").join(pid);
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), "qemu\n").unwrap();
        symlink(target, folder.join("fd/3")).unwrap();
    }
    fs::create_dir_all(tree.0.path().join("proc/self")).unwrap();
    let holders = Sysfs::at(tree.0.path()).holders("/dev/vfio/14");
    let shown: Vec<_> = holders.iter().map(Holder::to_string).collect();
    assert_eq!(shown, ["qemu (pid 7)", "qemu (pid 41)"]);
    // and the real one, for a file that this process has open
    let file = tree.0.path().join("held");
    let _held = fs::File::create(&file).unwrap();
    let found = Sysfs::default().holders(file.to_str().unwrap());
    let pids: Vec<_> = found.iter().map(|holder| holder.pid).collect();
    assert_eq!(pids, [std::process::id()]);
}
