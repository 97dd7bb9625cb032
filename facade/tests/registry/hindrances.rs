//! Clients that hang, panic, keep devices, or call the registry from inside a callback.

use crate::recorder::{Hook, Log, Recorder, config, open, registry, registry_with, wait_until};
use ringside::registry::{Attached, Cause, DeviceState, DeviceUse, Registry, RegistryError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The time that each client has for a call: long for a thread of a busy machine, and the wait of
/// a test for a client that hangs.
const SHORT: Duration = Duration::from_secs(5);

/// A hook that hangs until the sender is used or dropped.
fn hanging() -> (Sender<()>, Hook) {
    let (sender, receiver) = channel();
    let receiver = Mutex::new(receiver);
    let hang = move |_: &ringside::registry::DeviceHandle| {
        let _ = receiver.lock().unwrap().recv();
        Ok(())
    };
    (sender, Box::new(hang))
}

#[test]
fn a_removal_waits_for_a_client_that_hangs_and_names_it() {
    let (registry, log) = (registry_with(SHORT), Log::default());
    let (release, hang) = hanging();
    let mut slow = Recorder::new("slow", &log);
    slow.on_uninitialise = hang;
    registry
        .register("first", Recorder::new("first", &log))
        .unwrap();
    registry.register("slow", slow).unwrap();
    registry
        .register("last", Recorder::new("last", &log))
        .unwrap();
    let handle = open(&registry, 20);
    log.take();

    let began = Instant::now();
    let error = registry.remove("m20").unwrap_err();
    assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    match &error {
        RegistryError::ClientBusy {
            client,
            callback,
            device,
            waited_ms,
        } => {
            assert_eq!(
                (&**client, *callback, &**device),
                ("slow", "uninitialise", "m20")
            );
            assert!(u128::from(*waited_ms) >= SHORT.as_millis(), "{error}");
        }
        other => panic!("{other}"),
    }
    // The client below it may be what it works with: its turn has not come, and the device is
    // there.
    assert_eq!(log.take(), ["last - m20 Removed", "slow - m20 Removed"]);
    assert_eq!(handle.state(), DeviceState::Leaving(Cause::Removed));
    assert!(handle.device().is_ok());
    let attachments = registry.attachments().unwrap();
    let slow = attachments.iter().find(|it| it.client == "slow").unwrap();
    assert_eq!(
        (&slow.state, slow.is_overdue),
        (&Attached::Uninitialising, true)
    );
    // A further call waits again and returns the same error. The other clients serve a new device.
    let error = registry.remove("m20").unwrap_err();
    assert!(matches!(error, RegistryError::ClientBusy { .. }), "{error}");
    open(&registry, 21);
    assert_eq!(log.take(), ["first + m21", "last + m21"]);

    release.send(()).unwrap();
    // The removal goes on by itself, and the client gets to know what came meanwhile.
    let told = log.wait(2);
    assert!(told.contains(&"first - m20 Removed".to_owned()), "{told:?}");
    assert!(told.contains(&"slow + m21".to_owned()), "{told:?}");
    wait_until("the shutdown", || {
        handle.state() == DeviceState::Removed(Cause::Removed)
    });
    drop(release);
    registry.close().unwrap();
}

#[test]
fn an_initialise_that_hangs_keeps_no_other_client_from_the_device() {
    let (registry, log) = (registry_with(SHORT), Log::default());
    let (release, hang) = hanging();
    let mut slow = Recorder::new("slow", &log);
    slow.on_initialise = hang;
    registry.register("slow", slow).unwrap();
    registry
        .register("other", Recorder::new("other", &log))
        .unwrap();
    open(&registry, 22);
    assert_eq!(log.take(), ["slow + m22", "other + m22"]);
    let late = &registry.attachments().unwrap()[0];
    assert_eq!(
        (&late.state, late.is_overdue),
        (&Attached::Initialising, true)
    );
    // After its `initialise` returns, it is uninitialised.
    let error = registry.remove("m22").unwrap_err();
    assert!(error.to_string().contains("slow"), "{error}");
    assert!(error.to_string().contains("initialise"), "{error}");
    release.send(()).unwrap();
    registry.remove("m22").ok();
    assert_eq!(log.wait(2).last().unwrap(), "slow - m22 Removed");
}

#[test]
fn closing_with_a_client_that_hangs_is_an_error_and_ends_later() {
    let (registry, log) = (registry_with(SHORT), Log::default());
    let (release, hang) = hanging();
    let mut slow = Recorder::new("slow", &log);
    slow.on_failed = hang;
    registry.register("slow", slow).unwrap();
    let handle = open(&registry, 23);
    handle.device().unwrap().recover().unwrap();
    let error = registry.close().unwrap_err();
    assert!(
        matches!(
            &error,
            RegistryError::ClientBusy {
                callback: "failed",
                ..
            }
        ),
        "{error}"
    );
    drop(release);
    wait_until("the end", || {
        handle.state() == DeviceState::Removed(Cause::Closed)
    });
    let told = log.take();
    assert_eq!(told.last().unwrap(), "slow - m23 Closed", "{told:?}");
}

#[test]
fn a_device_that_is_held_is_shut_down_when_it_is_not() {
    let (registry, log) = (registry_with(SHORT), Log::default());
    let kept: Arc<Mutex<Vec<DeviceUse>>> = Arc::default();
    let mut holding = Recorder::new("holding", &log);
    let keep = Arc::clone(&kept);
    holding.on_initialise = Box::new(move |handle| {
        keep.lock()
            .unwrap()
            .extend([handle.device()?, handle.device()?]);
        Ok(())
    });
    registry.register("holding", holding).unwrap();
    let handle = open(&registry, 24);
    let own = handle.device().unwrap();
    let error = registry.remove("m24").unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RegistryError::InUse { .. }), "{text}");
    assert!(
        text.contains("holding (2 times)") && text.contains("the program"),
        "{text}"
    );
    // The device works for its holders, and further uses are refused.
    assert!(own.protection_domain().is_ok());
    let refused = handle.device().unwrap_err();
    assert!(
        matches!(refused, RegistryError::Removed { .. }),
        "{refused}"
    );
    kept.lock().unwrap().clear();
    drop(own);
    wait_until("the shutdown", || {
        handle.state() == DeviceState::Removed(Cause::Removed)
    });
    assert!(registry.get("m24").is_none());
}

#[test]
fn a_call_from_inside_a_callback_is_refused_or_works_and_never_waits() {
    let (registry, log) = (Arc::new(registry()), Log::default());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let inside: Arc<OnceLock<Weak<Registry>>> = Arc::default();
    inside.set(Arc::downgrade(&registry)).unwrap();
    let mut nested = Recorder::new("nested", &log);
    let (said, spare) = (Arc::clone(&seen), log.clone());
    nested.on_initialise = Box::new(move |handle| {
        let registry = inside.get().unwrap().upgrade().unwrap();
        let mut said = said.lock().unwrap();
        let mut refused = |call: &str, error: RegistryError| {
            assert!(matches!(error, RegistryError::InCallback { .. }), "{error}");
            assert!(error.to_string().contains("nested"), "{error}");
            assert!(error.to_string().contains("request_removal"), "{error}");
            said.push(call.to_owned());
        };
        refused("open", registry.open("model:26", &config()).unwrap_err());
        refused("remove", registry.remove(handle.name()).unwrap_err());
        let other = Recorder::new("other", &spare);
        refused("register", registry.register("other", other).unwrap_err());
        refused("unregister", registry.unregister("nested").unwrap_err());
        // Lookups and calls that do not wait are allowed.
        assert_eq!(registry.get(handle.name()).unwrap().index(), handle.index());
        assert_eq!(registry.clients(), ["nested"]);
        assert_eq!(
            registry.attachments().unwrap()[0].state,
            Attached::Initialising
        );
        assert!(handle.device()?.protection_domain().is_ok());
        handle.request_removal();
        Ok(())
    });
    registry.register("nested", nested).unwrap();
    let handle = open(&registry, 25);
    assert_eq!(
        *seen.lock().unwrap(),
        ["open", "remove", "register", "unregister"]
    );
    wait_until("the removal", || {
        handle.state() == DeviceState::Removed(Cause::Removed)
    });
    assert_eq!(log.take(), ["nested + m25", "nested - m25 Removed"]);
}

#[test]
fn a_callback_that_waits_for_another_thread_in_the_registry_ends_with_an_error() {
    let (registry, log) = (Arc::new(registry_with(SHORT)), Log::default());
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let (inside, said) = (Arc::downgrade(&registry), Arc::clone(&errors));
    let mut nested = Recorder::new("nested", &log);
    nested.on_failed = Box::new(move |handle| {
        let (inside, name) = (inside.upgrade().unwrap(), handle.name().to_owned());
        let removal = std::thread::spawn(move || inside.remove(&name).unwrap_err().to_string());
        said.lock().unwrap().push(removal.join().unwrap());
        Ok(())
    });
    registry.register("nested", nested).unwrap();
    let handle = open(&registry, 27);
    handle.device().unwrap().recover().unwrap();
    wait_until("the removal", || {
        handle.state() == DeviceState::Removed(Cause::Removed)
    });
    let errors = errors.lock().unwrap();
    assert!(
        errors[0].contains("nested") && errors[0].contains("failed"),
        "{errors:?}"
    );
}

#[test]
fn the_registry_may_be_dropped_by_a_client() {
    let log = Log::default();
    let registry = Arc::new(registry());
    let mut owner = Recorder::new("owner", &log);
    let held: Arc<Mutex<Option<Arc<Registry>>>> = Arc::new(Mutex::new(Some(Arc::clone(&registry))));
    owner.on_failed = Box::new(move |_| {
        drop(held.lock().unwrap().take());
        Ok(())
    });
    registry.register("owner", owner).unwrap();
    let handle = open(&registry, 28);
    drop(registry);
    handle.device().unwrap().recover().unwrap();
    wait_until("the end", || {
        handle.state() == DeviceState::Removed(Cause::Closed)
    });
    assert_eq!(log.take().last().unwrap(), "owner - m28 Closed");
}

#[test]
fn a_panic_of_a_client_stays_with_it() {
    let (registry, log) = (registry(), Log::default());
    let mut first = Recorder::new("first", &log);
    first.on_initialise = Box::new(|_| panic!("the first {}", "one"));
    let mut second = Recorder::new("second", &log);
    second.on_failed = Box::new(|_| panic!("the second one"));
    second.on_uninitialise = Box::new(|_| panic!("the second one again"));
    registry.register("first", first).unwrap();
    registry.register("second", second).unwrap();
    registry
        .register("third", Recorder::new("third", &log))
        .unwrap();
    let handle = open(&registry, 29);
    assert_eq!(log.take(), ["first + m29", "second + m29", "third + m29"]);
    match &registry.attachments().unwrap()[0].state {
        Attached::Refused(reason) => assert!(reason.contains("the first one"), "{reason}"),
        other => panic!("{other:?}"),
    }
    handle.device().unwrap().recover().unwrap();
    let mut told = log.wait(4);
    told.sort();
    assert_eq!(
        told,
        [
            "second ! m29 requested",
            "second ^ m29 2",
            "third ! m29 requested",
            "third ^ m29 2"
        ]
    );
    registry.remove("m29").unwrap();
    assert_eq!(log.take(), ["third - m29 Removed", "second - m29 Removed"]);
}

/// Threads open, remove, register and unregister; each `+` (initialise) of a client has one `-`
/// (uninitialise).
#[test]
fn every_initialise_has_one_uninitialise_whatever_threads_do() {
    let (registry, log) = (registry(), Log::default());
    let names = ["p", "q", "r"];
    let removals = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 30..33 {
            let (registry, removals) = (&registry, &removals);
            scope.spawn(move || {
                for _ in 0..5 {
                    let handle = open(registry, number);
                    std::thread::sleep(Duration::from_millis(5));
                    registry.remove(handle.name()).unwrap();
                    removals.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for name in names {
            let (registry, removals, log) = (&registry, &removals, &log);
            scope.spawn(move || {
                while removals.load(Ordering::Relaxed) < 15 {
                    registry.register(name, Recorder::new(name, log)).unwrap();
                    std::thread::sleep(Duration::from_millis(4));
                    registry.unregister(name).unwrap();
                }
            });
        }
    });
    registry.close().unwrap();
    let told = log.take();
    let mut begun = 0;
    for name in names {
        for device in ["m30", "m31", "m32"] {
            let mut is_at_work = false;
            for line in &told {
                let words: Vec<_> = line.split(' ').collect();
                if words[0] == name && words[2] == device {
                    assert_eq!(words[1] == "-", is_at_work, "{line} in {told:?}");
                    is_at_work = words[1] == "+";
                    begun += 1;
                }
            }
            assert!(!is_at_work, "{name} {device}: {told:?}");
        }
    }
    assert!(begun > 0, "no client ever met a device");
}
