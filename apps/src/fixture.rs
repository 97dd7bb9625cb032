//! A tree of files as the kernel shows them, for tests.

use ringside_bus::sysfs::Sysfs;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(crate) struct Tree(tempfile::TempDir);

impl Tree {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.path())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn make_folder_of(path: &Path) {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).unwrap();
        }
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        Self::make_folder_of(&path);
        fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        Self::make_folder_of(&path);
        symlink(target, path).unwrap();
    }

    pub(crate) fn card(&self, address: &str, driver: Option<&str>, group: Option<u32>) {
        self.function(address, 0x8086, 0x1592, driver, group);
    }

    pub(crate) fn function(
        &self,
        address: &str,
        vendor: u16,
        device: u16,
        driver: Option<&str>,
        group: Option<u32>,
    ) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/vendor"), &format!("{vendor:#06x}\n"));
        self.file(&format!("{folder}/device"), &format!("{device:#06x}\n"));
        self.file(&format!("{folder}/class"), "0x020000\n");
        self.file(&format!("{folder}/numa_node"), "0\n");
        if let Some(driver) = driver {
            self.link(&format!("{folder}/driver"), &format!("/drivers/{driver}"));
        }
        if let Some(group) = group {
            self.link(
                &format!("{folder}/iommu_group"),
                &format!("/groups/{group}"),
            );
            let member = format!("sys/kernel/iommu_groups/{group}/devices/{address}");
            let target = self.path(&folder);
            self.link(&member, &target.to_string_lossy());
        }
    }
}
