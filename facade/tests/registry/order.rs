//! The order of calls to clients.

use crate::recorder::{Log, Recorder, open, registry, try_open};
use ringside::registry::{Attached, Cause, DeviceState, RegistryError};

#[test]
fn clients_are_called_in_order_of_registration_and_ended_in_reverse() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    registry.register("b", Recorder::new("b", &log)).unwrap();
    assert_eq!(registry.clients(), ["a", "b"]);
    let first = open(&registry, 0);
    let second = open(&registry, 1);
    assert_eq!(log.take(), ["a + m0", "b + m0", "a + m1", "b + m1"]);
    let names: Vec<_> = registry
        .devices()
        .iter()
        .map(|it| it.name().to_owned())
        .collect();
    assert_eq!(names, ["m0", "m1"]);
    assert!(first.index() < second.index());

    let report = registry.remove("m0").unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
    assert_eq!(log.take(), ["b - m0 Removed", "a - m0 Removed"]);
    assert_eq!(first.state(), DeviceState::Removed(Cause::Removed));
    assert!(registry.get("m0").is_none());

    registry.unregister("a").unwrap();
    assert_eq!(log.take(), ["a - m1 Unregistered"]);
    assert_eq!(second.state(), DeviceState::InService { life: 1 });
    registry.close().unwrap();
    assert_eq!(log.take(), ["b - m1 Closed"]);
    assert_eq!(second.state(), DeviceState::Removed(Cause::Closed));
}

#[test]
fn a_client_that_comes_late_is_told_of_the_devices_that_are_there() {
    let (registry, log) = (registry(), Log::default());
    open(&registry, 2);
    open(&registry, 3);
    registry
        .register("late", Recorder::new("late", &log))
        .unwrap();
    assert_eq!(log.take(), ["late + m2", "late + m3"]);
    registry.unregister("late").unwrap();
    // The device that was opened last is removed first.
    assert_eq!(
        log.take(),
        ["late - m3 Unregistered", "late - m2 Unregistered"]
    );
    // Its name is free again.
    registry
        .register("late", Recorder::new("late", &log))
        .unwrap();
    assert_eq!(log.take(), ["late + m2", "late + m3"]);
}

#[test]
fn a_client_that_refuses_a_device_keeps_no_other_from_it() {
    let (registry, log) = (registry(), Log::default());
    let mut refusing = Recorder::new("refusing", &log);
    refusing.on_initialise = Box::new(|_| Err("no room in the rack".into()));
    registry.register("refusing", refusing).unwrap();
    registry
        .register("other", Recorder::new("other", &log))
        .unwrap();
    open(&registry, 4);
    assert_eq!(log.take(), ["refusing + m4", "other + m4"]);
    let attachments = registry.attachments().unwrap();
    let states: Vec<_> = attachments
        .into_iter()
        .map(|it| (it.client, it.state))
        .collect();
    let reason = "no room in the rack".to_owned();
    assert_eq!(
        states,
        [
            ("refusing".to_owned(), Attached::Refused(reason)),
            ("other".to_owned(), Attached::Initialised)
        ]
    );
    registry.remove("m4").unwrap();
    assert_eq!(
        log.take(),
        ["other - m4 Removed"],
        "nothing to end for the refusing one"
    );
}

#[test]
fn dropping_a_registry_ends_everything_in_it() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    registry.register("b", Recorder::new("b", &log)).unwrap();
    let handle = open(&registry, 5);
    log.take();
    drop(registry);
    assert_eq!(log.take(), ["b - m5 Closed", "a - m5 Closed"]);
    let refused = handle.device().unwrap_err();
    assert!(
        matches!(refused, RegistryError::Removed { .. }),
        "{refused}"
    );
}

#[test]
fn a_device_that_went_and_came_back_has_its_name_index_and_port() {
    let registry = registry();
    let before = open(&registry, 6);
    let device = before.device().unwrap();
    assert_eq!(device.handle().name(), "m6");
    let port = before.ports()[0].clone();
    assert_eq!((port.name(), port.number()), ("m6/1", 1));
    assert!(port.mac().is_some());
    drop(device);

    let again = try_open(&registry, 6).unwrap_err();
    assert!(
        matches!(&again, RegistryError::AlreadyOpen { name, .. } if name == "m6"),
        "{again}"
    );
    registry.remove("m6").unwrap();
    // Another device comes first; it gets neither the name nor the index.
    let other = registry
        .open("model:7", &crate::recorder::config())
        .unwrap();
    assert_ne!(other.index(), before.index());
    let taken = registry.open_as("m6", "model:8", &crate::recorder::config());
    let taken = taken.unwrap_err();
    assert!(matches!(&taken, RegistryError::NameInUse { .. }), "{taken}");
    assert!(taken.to_string().contains("model:6"), "{taken}");

    // Without a name it has its old one, in another registry too.
    registry.remove(other.name()).unwrap();
    registry.close().unwrap();
    let registry = crate::recorder::registry();
    let after = registry
        .open("model:6", &crate::recorder::config())
        .unwrap();
    assert_eq!((after.name(), after.index()), ("m6", before.index()));
    assert_eq!(after.ports(), before.ports());
    assert_eq!(registry.by_index(after.index()).unwrap().name(), "m6");
    assert_eq!(registry.by_address(after.address()).unwrap().name(), "m6");
    assert_eq!(registry.ports()[0].1, port);
    // The old handle belongs to the removed device.
    assert!(before.device().is_err());
    assert_eq!(before.state(), DeviceState::Removed(Cause::Removed));
}

#[test]
fn unknown_and_taken_names_are_refused() {
    let (registry, log) = (registry(), Log::default());
    registry.register("a", Recorder::new("a", &log)).unwrap();
    let refused = registry
        .register("a", Recorder::new("a", &log))
        .unwrap_err();
    assert!(
        matches!(refused, RegistryError::ClientExists { .. }),
        "{refused}"
    );
    let refused = registry.unregister("nobody").unwrap_err();
    assert!(refused.to_string().contains("nobody"), "{refused}");
    let refused = registry.remove("nothing").unwrap_err();
    assert!(refused.to_string().contains("nothing"), "{refused}");
    let refused = registry
        .open("eth0", &crate::recorder::config())
        .unwrap_err();
    assert!(refused.to_string().contains("eth0"), "{refused}");
    // An address that does not open is not in use afterwards.
    for _ in 0..2 {
        let refused = registry.open("model:999", &crate::recorder::config());
        let refused = refused.unwrap_err();
        assert!(matches!(refused, RegistryError::Open(_)), "{refused}");
    }
}
