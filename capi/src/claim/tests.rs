use super::*;
use ringside_bus::sysfs::Holder;

#[test]
fn each_reason_of_a_refused_claim_has_an_errno_of_its_own_kind() {
    let address = || "0000:3b:00.0".to_owned();
    let path = || "/dev/vfio/7".to_owned();
    let pairs = [
        (
            ClaimError::NoSuchFunction { address: address() },
            libc::ENODEV,
        ),
        (ClaimError::NotPci { address: address() }, libc::EINVAL),
        (
            ClaimError::NotBound {
                address: address(),
                driver: None,
            },
            libc::ENODEV,
        ),
        (
            ClaimError::NoIommuGroup { address: address() },
            libc::ENODEV,
        ),
        (ClaimError::NoVfio { path: path() }, libc::ENODEV),
        (ClaimError::Permission { path: path() }, libc::EACCES),
        (
            ClaimError::GroupNotViable {
                group: 7,
                others: Vec::new(),
            },
            libc::ENODEV,
        ),
        (
            ClaimError::Busy {
                path: path(),
                holders: Vec::new(),
            },
            libc::EBUSY,
        ),
        (ClaimError::NoInterruptRemapping, libc::EPERM),
        (ClaimError::NoType1 { what: "v2".into() }, libc::ENODEV),
        (
            ClaimError::System {
                address: address(),
                operation: path(),
                error: path(),
            },
            libc::EIO,
        ),
    ];
    for (error, errno) in pairs {
        assert_eq!(of_claim(&error), errno, "{error}");
    }
}

#[test]
fn a_function_that_another_process_has_is_busy_and_the_message_names_that_process() {
    let holder = Holder {
        pid: 4711,
        name: "ib_write_bw".into(),
    };
    let named = "ib_write_bw (pid 4711)";
    let busy = ClaimError::Busy {
        path: "/dev/vfio/7".into(),
        holders: vec![holder.clone()],
    };
    assert!(busy.to_string().contains(named), "{busy}");
    let device = DeviceAddress::VfioUser("/run/a.sock".into());
    let in_use = FunctionError::InUse {
        device,
        owner: Some(holder),
    };
    assert_eq!(of_server(&in_use), libc::EBUSY);
    let text = in_use.to_string();
    assert!(
        text.contains(named) && text.contains("/run/a.sock"),
        "{text}"
    );
}

#[test]
fn a_socket_without_permission_is_told_from_one_without_a_server() {
    for (refused, errno) in [
        (libc::EACCES, libc::EACCES),
        (libc::EPERM, libc::EPERM),
        (libc::ENOENT, libc::ENODEV),
        (libc::ECONNREFUSED, libc::ENODEV),
    ] {
        let error = FunctionError::NoServer {
            path: "/run/a.sock".into(),
            errno: refused,
            error: "refused".into(),
            remedy: "none",
        };
        assert_eq!(of_server(&error), errno, "{refused}");
    }
}

#[test]
fn a_pci_function_is_listed_if_the_kernel_has_one_at_the_address() {
    let root = std::env::temp_dir().join(format!("ringside-claim-{}", std::process::id()));
    let (here, gone) = ("0000:3b:00.0", "0000:3b:00.1");
    let sysfs = Sysfs::at(&root);
    std::fs::create_dir_all(sysfs.function_path(here)).unwrap();
    let found = [here, gone].map(|name| look_in(&sysfs, name));
    std::fs::remove_dir_all(&root).unwrap();
    let [Ok(()), Err(failure)] = found else {
        panic!("{:?}", found.map(|one| one.map_err(|failure| failure.text)));
    };
    assert_eq!(failure.errno, libc::ENODEV);
    assert!(failure.text.contains(gone), "{}", failure.text);
}
