use super::*;
use std::fs;
use std::os::unix::fs::symlink;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn function(&self, address: &str, driver: Option<&str>, group: Option<u32>) {
        let path = self.0.path().join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("vendor"), "0x8086\n").unwrap();
        fs::write(path.join("device"), "0x1592\n").unwrap();
        if let Some(driver) = driver {
            symlink(
                format!("/sys/bus/pci/drivers/{driver}"),
                path.join("driver"),
            )
            .unwrap();
        }
        if let Some(group) = group {
            symlink(format!("/groups/{group}"), path.join("iommu_group")).unwrap();
            let folder = self
                .0
                .path()
                .join(format!("sys/kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(&folder).unwrap();
            symlink(&path, folder.join(address)).unwrap();
        }
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.path())
    }
}

const ADDRESS: &str = "0000:3b:00.0";

#[test]
fn each_obstacle_to_a_claim_is_named_with_its_remedy() {
    let tree = Tree::new();
    let refused = look(&tree.sysfs(), ADDRESS).unwrap_err().to_string();
    assert!(refused.contains("ringside devices"), "{refused}");
    tree.function(ADDRESS, Some("ice"), None);
    let refused = look(&tree.sysfs(), ADDRESS).unwrap_err().to_string();
    assert!(refused.contains("intel_iommu=on"), "{refused}");
    tree.function("0000:3b:00.1", Some("ice"), Some(5));
    let refused = look(&tree.sysfs(), "0000:3b:00.1").unwrap_err().to_string();
    assert!(
        refused.contains("driven by ice") && refused.ends_with("ringside bind 0000:3b:00.1"),
        "{refused}"
    );
    tree.function("0000:3b:00.2", None, Some(5));
    let refused = look(&tree.sysfs(), "0000:3b:00.2").unwrap_err().to_string();
    assert!(refused.contains("driven by no driver"), "{refused}");
    tree.function("0000:3b:00.3", Some("vfio-pci"), Some(6));
    let (function, group) = look(&tree.sysfs(), "0000:3b:00.3").unwrap();
    assert_eq!((function.address.as_str(), group), ("0000:3b:00.3", 6));
}

#[test]
fn a_shared_group_names_its_other_functions_and_their_drivers() {
    let tree = Tree::new();
    tree.function(ADDRESS, Some("vfio-pci"), Some(14));
    tree.function("0000:3b:00.1", Some("ice"), Some(14));
    tree.function("0000:3b:00.2", Some("ixgbe"), Some(14));
    let error = explain(&VfioError::GroupViable, &tree.sysfs(), ADDRESS, 14).to_string();
    assert!(
        error.contains("group 14 is shared with 0000:3b:00.1 (ice), 0000:3b:00.2 (ixgbe)"),
        "{error}"
    );
}

#[test]
fn each_refusal_of_the_kernel_has_its_own_remedy() {
    let tree = Tree::new();
    let folder = tree.0.path().join("proc/321");
    fs::create_dir_all(folder.join("fd")).unwrap();
    fs::write(folder.join("comm"), "storage-node\n").unwrap();
    symlink("/dev/vfio/14", folder.join("fd/9")).unwrap();
    let os = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw_os_error());
    let group = |errno| VfioError::OpenGroup(os(errno), "14".into());
    let system = |errno: Errno| vmm_error(errno);
    for (error, wanted) in [
        (
            VfioError::OpenContainer(os(Errno::NOENT)),
            "modprobe vfio-pci",
        ),
        (group(Errno::NOENT), "/dev/vfio/14 does not exist"),
        (
            VfioError::OpenContainer(os(Errno::ACCESS)),
            "/dev/vfio/vfio: permission denied",
        ),
        (group(Errno::ACCESS), "60-ringside-vfio.rules"),
        (group(Errno::BUSY), "storage-node (pid 321)"),
        (group(Errno::MFILE), "opening /dev/vfio/14"),
        (
            VfioError::GroupGetDeviceFD(system(Errno::BUSY)),
            "storage-node (pid 321)",
        ),
        (
            VfioError::GroupGetDeviceFD(system(Errno::NODEV)),
            "ringside doctor 0000:3b:00.0",
        ),
        (
            VfioError::ContainerSetIOMMU(system(Errno::PERM)),
            "allow_unsafe_interrupts",
        ),
        (
            VfioError::ContainerSetIOMMU(system(Errno::NODEV)),
            "vfio_iommu_type1",
        ),
        (VfioError::VfioExtension, "vfio_iommu_type1"),
        (VfioError::GroupSetContainer, "IOMMU group 14"),
    ] {
        let text = explain(&error, &tree.sysfs(), ADDRESS, 14).to_string();
        assert!(text.contains(wanted), "{error:?}: {text}");
    }
}

/// Makes an error number as `vfio-ioctls` carries it. Its type has no constructor available here
/// except from the system's last error.
fn vmm_error(errno: Errno) -> vmm_sys_util::errno::Error {
    vmm_sys_util::errno::Error::new(errno.raw_os_error())
}

#[test]
fn the_holder_of_a_file_may_be_hidden_or_this_process() {
    let error = ClaimError::Busy {
        path: "/dev/vfio/3".into(),
        holders: Vec::new(),
    };
    assert!(error.to_string().contains("may not see"), "{error}");
    assert!(error.to_string().ends_with("end it first"), "{error}");
    let error = ClaimError::Busy {
        path: "/dev/vfio/3".into(),
        holders: vec![Holder {
            pid: std::process::id(),
            name: "me".into(),
        }],
    };
    assert!(error.to_string().contains("this process itself"), "{error}");
    assert!(
        error.to_string().contains("shut the device down"),
        "{error}"
    );
}
