//! Changes of drivers on a made-up machine, whose kernel is a thread.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The driver that the kernel chooses for a function whose driver_override is empty.
const DEFAULT: &str = "ice";

/// A tree of files with a thread that unbinds and probes functions, as the kernel does.
struct Kernel {
    tree: Arc<Tree>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kernel {
    /// Starts with these drivers loaded, of which `broken` take no function. `modprobe` does
    /// nothing and fails.
    fn start(drivers: &'static [&'static str], broken: &'static [&'static str]) -> Self {
        let tree = Arc::new(Tree::new());
        for driver in drivers {
            tree.file(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        }
        tree.file("sys/bus/pci/drivers_probe", "");
        tree.file("modprobe", "#!/bin/sh\necho no such module >&2; exit 1\n");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.path("modprobe"), executable).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (tree_of_thread, end) = (Arc::clone(&tree), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                serve(&tree_of_thread, drivers, broken);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            tree,
            ends,
            thread: Some(thread),
        }
    }

    fn card(&self, address: &str, driver: &str) {
        self.tree.card(address, None, Some(14));
        self.drive(address, driver);
    }

    fn drive(&self, address: &str, driver: &str) {
        let link = self.tree.sysfs().function_path(address).join("driver");
        let _ = fs::remove_file(&link);
        symlink(self.tree.path("sys/bus/pci/drivers").join(driver), link).unwrap();
    }

    fn machine(&self) -> Machine {
        Machine {
            sysfs: self.tree.sysfs(),
            modprobe: self.tree.path("modprobe"),
            driver_wait: Duration::from_secs(2),
        }
    }

    fn bind(&self, addresses: &[&str], driver: &str) -> Result<(), Failure> {
        let options = Bind {
            addresses: parsed(addresses),
            driver: driver.into(),
            dry_run: false,
            force: false,
        };
        bind_on(&self.machine(), &options)
    }

    fn unbind(&self, address: &str) -> Result<(), Failure> {
        let options = Unbind {
            addresses: parsed(&[address]),
            dry_run: false,
            force: false,
        };
        unbind_on(&self.machine(), &options)
    }

    /// Its driver, its driver_override, and the driver of its record.
    fn state(&self, address: &str) -> (Option<String>, Option<String>, Option<Option<String>>) {
        let sysfs = self.tree.sysfs();
        let function = sysfs.function(address).unwrap();
        let record = read_record(&sysfs, address).map(|record| record.driver);
        (function.driver, function.driver_override, record)
    }

    /// Waits until the kernel has carried out all that was written.
    fn settle(&self) {
        let file = self.tree.path("sys/bus/pci/drivers_probe");
        let probed = || fs::read_to_string(&file).unwrap().is_empty();
        let until = Instant::now() + Duration::from_secs(20);
        while !probed() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(tree: &Tree, drivers: &[&str], broken: &[&str]) {
    let folder_of = |address: &str| tree.path("sys/bus/pci/devices").join(address);
    let take = |file: &str| {
        let file = tree.path(file);
        let text = fs::read_to_string(&file).unwrap();
        if !text.is_empty() {
            fs::write(&file, "").unwrap();
        }
        text.trim().to_owned()
    };
    // The probe first: what is written before it is seen below then.
    let address = take("sys/bus/pci/drivers_probe");
    for driver in drivers {
        let address = take(&format!("sys/bus/pci/drivers/{driver}/unbind"));
        if !address.is_empty() {
            fs::remove_file(folder_of(&address).join("driver")).unwrap();
        }
    }
    if address.is_empty() {
        return;
    }
    let chosen = fs::read_to_string(folder_of(&address).join("driver_override"));
    let chosen = chosen.unwrap_or_default().trim().to_owned();
    let driver = if chosen.is_empty() { DEFAULT } else { &chosen };
    let link = folder_of(&address).join("driver");
    if !broken.contains(&driver) && drivers.contains(&driver) && !link.is_symlink() {
        symlink(tree.path("sys/bus/pci/drivers").join(driver), link).unwrap();
    }
}

fn parsed(addresses: &[&str]) -> Vec<DeviceAddress> {
    let parsed = addresses.iter().map(|address| address.parse().unwrap());
    parsed.collect()
}

fn by(driver: &str) -> Option<String> {
    Some(driver.into())
}

#[test]
fn a_function_that_vfio_does_not_take_is_driven_as_before() {
    let kernel = Kernel::start(&["ice", "vfio-pci"], &["vfio-pci"]);
    kernel.card(ADDRESS, "ice");
    let failure = kernel.bind(&[ADDRESS], "vfio-pci").unwrap_err();
    let text = failure.text();
    assert!(text.contains("not by vfio-pci"), "{text}");
    assert!(
        text.ends_with("it was given back, and is driven by ice"),
        "{text}"
    );
    assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None));
}

#[test]
fn a_module_that_cannot_be_loaded_changes_nothing() {
    let kernel = Kernel::start(&["ice"], &[]);
    kernel.card(ADDRESS, "ice");
    let failure = kernel.bind(&[ADDRESS], "vfio-pci").unwrap_err();
    assert!(failure.text().contains("no such module"), "{failure:?}");
    assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None));
    let folder = kernel.tree.sysfs().function_path(ADDRESS);
    assert!(!folder.join("driver_override").exists());
}

#[test]
fn a_function_that_could_not_be_given_back_keeps_its_record() {
    let kernel = Kernel::start(&["ice", "vfio-pci"], &["vfio-pci", "ice"]);
    kernel.card(ADDRESS, "ice");
    let failure = kernel.bind(&[ADDRESS], "vfio-pci").unwrap_err();
    let text = failure.text();
    assert!(text.contains("could not be given back"), "{text}");
    assert!(text.contains("ringside unbind 0000:3b:00.0"), "{text}");
    assert_eq!(kernel.state(ADDRESS), (None, None, Some(by("ice"))));
}

#[test]
fn a_second_bind_that_fails_leaves_the_state_of_the_first() {
    let kernel = Kernel::start(&["ice", "vfio-pci", "pci-stub"], &["pci-stub"]);
    kernel.card(ADDRESS, "ice");
    kernel.bind(&[ADDRESS], "vfio-pci").unwrap();
    let bound = (by("vfio-pci"), by("vfio-pci"), Some(by("ice")));
    assert_eq!(kernel.state(ADDRESS), bound);
    for driver in ["nosuch", "pci-stub"] {
        kernel.bind(&[ADDRESS], driver).unwrap_err();
        assert_eq!(kernel.state(ADDRESS), bound, "{driver}");
    }
    kernel.unbind(ADDRESS).unwrap();
    assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None));
}

#[test]
fn a_driver_that_is_loaded_needs_no_modprobe_and_one_that_is_not_is_loaded_first() {
    let kernel = Kernel::start(&["ice", "vfio-pci"], &[]);
    kernel.card(ADDRESS, "ice");
    kernel.bind(&[ADDRESS], "vfio-pci").unwrap();
    kernel.unbind(ADDRESS).unwrap();
    assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None));
    // a record of a driver that is not there
    kernel.bind(&[ADDRESS], "vfio-pci").unwrap();
    let record = Record {
        driver: by("tg3"),
        driver_override: None,
    };
    let file = record_path(&kernel.tree.sysfs(), ADDRESS);
    fs::write(file, serde_json::to_string(&record).unwrap()).unwrap();
    let failure = kernel.unbind(ADDRESS).unwrap_err();
    assert!(failure.text().contains("modprobe tg3"), "{failure:?}");
    let bound = (by("vfio-pci"), by("vfio-pci"), Some(by("tg3")));
    assert_eq!(kernel.state(ADDRESS), bound);
}

#[test]
fn a_function_that_was_given_back_by_other_means_is_not_touched() {
    let kernel = Kernel::start(&["ice", "vfio-pci"], &["ice"]);
    kernel.card(ADDRESS, "ice");
    kernel.bind(&[ADDRESS], "vfio-pci").unwrap();
    kernel.drive(ADDRESS, "ice");
    // The driver takes no function: once unbound, it would have no driver.
    kernel.unbind(ADDRESS).unwrap();
    kernel.settle();
    assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None));
}

#[test]
fn all_functions_are_looked_at_before_the_first_one_changes() {
    let kernel = Kernel::start(&["ice", "vfio-pci"], &[]);
    kernel.card(ADDRESS, "ice");
    let other = "0000:00:1f.0";
    kernel.tree.function(other, 0x8086, 0x2918, None, Some(3));
    for second in [other, "0000:3b:00.7"] {
        kernel.bind(&[ADDRESS, second], "vfio-pci").unwrap_err();
        kernel.settle();
        assert_eq!(kernel.state(ADDRESS), (by("ice"), None, None), "{second}");
    }
}

#[test]
fn a_function_that_a_process_has_claimed_by_either_file_stays_at_its_driver() {
    for file in ["/dev/vfio/14", "/dev/vfio/devices/vfio3"] {
        let kernel = Kernel::start(&["ice", "vfio-pci", "pci-stub"], &[]);
        kernel.card(ADDRESS, "ice");
        kernel.bind(&[ADDRESS], "vfio-pci").unwrap();
        let own = format!("sys/bus/pci/devices/{ADDRESS}/vfio-dev/vfio3/dev");
        kernel.tree.file(&own, "511:3\n");
        kernel.tree.file("proc/77/comm", "qemu\n");
        kernel.tree.link("proc/77/fd/5", file);
        let bound = kernel.state(ADDRESS);
        for refused in [kernel.unbind(ADDRESS), kernel.bind(&[ADDRESS], "pci-stub")] {
            let text = refused.unwrap_err().text();
            assert!(text.contains("in use by qemu (pid 77)"), "{text}");
        }
        kernel.settle();
        assert_eq!(kernel.state(ADDRESS), bound);
    }
}
