//! A fork in the middle of traffic: the child is refused, the parent goes on.

mod pair;

use fork::Fork;
use pair::{End, LIMIT, connected};
use ringside::connect::{Closed, ConnectError, End as EndOf, Settings};
use ringside::driver::lan::PortSettings;
use ringside::driver::rdma::{Notify, PostError, RdmaError};
use ringside::prelude::*;
use ringside::registry::{DeviceState, Registry, RegistrySettings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::cell::RefCell;
use std::fmt::Display;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One test at a time: a fork copies the threads of no other, and the functions of the model are
/// opened once.
static ONE: Mutex<()> = Mutex::new(());

/// True once the descriptor is readable, within `limit`.
fn is_readable(descriptor: &impl AsFd, limit: Duration) -> bool {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

/// Runs `child` in a forked process; an error is its text, or that it did not end in time.
fn in_a_child(child: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let process = match fork::fork().unwrap() {
        Fork::Parent(process) => process,
        Fork::Child => {
            let ended = catch_unwind(AssertUnwindSafe(child));
            let ended = ended.unwrap_or_else(|_| Err("the child panicked".into()));
            let text = ended.err().unwrap_or_default();
            let _ = rustix::io::write(&writer, text.as_bytes());
            // Ends the child without running anything else.
            signal_hook::low_level::exit(i32::from(!text.is_empty()))
        }
    };
    drop(writer);
    let process = Pid::from_raw(process).unwrap();
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match waitpid(Some(process), WaitOptions::NOHANG).unwrap() {
            Some((_, status)) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
            None => {
                kill_process(process, Signal::KILL).unwrap();
                return Err("the child does not end".into());
            }
        }
    };
    let mut text = [0; 4096];
    let count = rustix::io::read(&reader, &mut text).unwrap();
    match status.exit_status() == Some(0) {
        true => Ok(()),
        false if count == 0 => Err(format!("the child ended with {status:?}")),
        false => Err(String::from_utf8_lossy(&text[..count]).into_owned()),
    }
}

/// Demands that a call was refused because of the process, with the remedy.
fn refused<T, E: Display>(what: &str, result: Result<T, E>) -> Result<(), String> {
    match result {
        Ok(_) => Err(format!("{what} was carried out")),
        Err(error) => {
            let text = error.to_string();
            match text.contains("fork") && text.contains("open") {
                true => Ok(()),
                false => Err(format!("{what}: {text}")),
            }
        }
    }
}

#[test]
fn a_child_is_refused_and_the_parent_goes_on_in_the_middle_of_traffic() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let source = left.region(64 << 10);
    let target = right.region(64 << 10);
    assert!(source.write(0, &[0x11; 64 << 10]));
    let window = left
        .domain
        .register(left.device.allocate(4096).unwrap(), Access::LOCAL_WRITE);
    let window = window.unwrap();
    let mut posted = 0_u64;
    for round in 0..10_u8 {
        // A write is under way when the process is copied.
        assert!(source.write(0, &[round; 32 << 10]));
        let place = source.slice(0..32 << 10).unwrap();
        posted += 1;
        left.queue_pair
            .write(posted, &[place], target.remote().at(0), Flags::SIGNALLED)
            .unwrap();
        left.queue_pair.ring();
        let outcome = in_a_child(|| {
            let device = &left.device;
            refused("a protection domain", device.protection_domain())?;
            refused("memory", device.allocate(4096))?;
            refused("owned memory", device.map_memory(vec![0_u8; 4096]))?;
            refused("a completion queue", device.completion_queue(16))?;
            refused("the port", device.query_port())?;
            refused("statistics", device.statistics())?;
            refused("events", device.poll_events(&mut Vec::new()))?;
            refused("a recovery", device.recover())?;
            refused("a neighbour", device.resolve("10.0.0.9".parse().unwrap()))?;
            refused("a register", device.driver().registers().read(0))?;
            Ok(())
        });
        assert_eq!(outcome, Ok(()), "round {round}");
        left.wait(posted);
        let mut arrived = vec![0; 32 << 10];
        assert!(target.read(0, &mut arrived));
        assert!(arrived.iter().all(|byte| *byte == round), "round {round}");
    }
    drop(window);

    let mut left = the_child_reaches_neither_device_nor_memory(left, source, &target);
    let again = left.region(4096);
    assert!(again.write(0, &[0x42; 4096]));
    let place = again.slice(0..4096).unwrap();
    left.queue_pair
        .write(1, &[place], target.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    left.queue_pair.ring();
    left.wait(1);

    a_child_opens_a_model_of_its_own();
    assert_eq!(left.device.life(), 1, "the parent's device did not fail");
    drop((left, right, target, again));
    a_child_has_no_part_in_a_registry();
}

/// Posts, polls, reads and drops in a child. `source` holds the value of the last round.
fn the_child_reaches_neither_device_nor_memory(
    left: End,
    source: MemoryRegion,
    target: &MemoryRegion,
) -> End {
    assert!(target.write(0, &[0x77; 4096]));
    let mut moved = Some((left, source));
    let before = moved
        .as_ref()
        .map(|(left, _)| left.device.object_usage().unwrap());
    let outcome = in_a_child(|| {
        let (mut left, source) = moved.take().ok_or("nothing")?;
        let place = source.slice(0..4096).map_err(|error| error.to_string())?;
        let posted = left
            .queue_pair
            .write(99, &[place], target.remote().at(0), Flags::SIGNALLED);
        if !matches!(posted, Err(PostError::OtherProcess)) {
            return Err(format!("post: {posted:?}"));
        }
        left.queue_pair.ring();
        let mut batch = [Completion::EMPTY; 8];
        if !left.completions.poll(&mut batch).is_empty() {
            return Err("a completion in the child".into());
        }
        let mut seen = [1; 64];
        if !(source.write(0, &[0xEE; 4096]) && source.read(8192, &mut seen) && seen == [0; 64]) {
            return Err("the child sees the parent's memory".into());
        }
        refused(
            "deregistering",
            source.deregister().map_err(|error| error.to_string()),
        )?;
        // Everything is dropped here; nothing of it may wait or touch the device.
        let began = Instant::now();
        drop(left);
        match began.elapsed() < Duration::from_secs(10) {
            true => Ok(()),
            false => Err(format!("dropping took {:?}", began.elapsed())),
        }
    });
    assert_eq!(outcome, Ok(()));
    let (left, source) = moved.take().unwrap();
    assert_eq!(
        before,
        Some(left.device.object_usage().unwrap()),
        "nothing was destroyed"
    );
    let mut seen = [0; 4096];
    assert!(source.read(0, &mut seen));
    assert_eq!(seen, [9; 4096], "as the parent left it");
    assert!(target.read(0, &mut seen));
    assert_eq!(seen, [0x77; 4096], "no write came");
    left
}

/// A child has a model of its own, and opens devices of it.
fn a_child_opens_a_model_of_its_own() {
    let outcome = in_a_child(|| {
        let text = |error: &dyn Display| error.to_string();
        let device = ringside::open("model:0", &Config::default()).map_err(|error| text(&error))?;
        let domain = device.protection_domain().map_err(|error| text(&error))?;
        let buffer = device.allocate(4096).map_err(|error| text(&error))?;
        let region = domain
            .register(buffer, Access::LOCAL_WRITE)
            .map_err(|error| text(&error))?;
        drop(region);
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

fn a_child_has_no_part_in_a_registry() {
    let config = Config::default();
    let mut registry = Some(Registry::new(&RegistrySettings::default()).unwrap());
    let parent = registry.as_ref().unwrap();
    let handle = parent.open_as("parents", "model:0", &config).unwrap();
    let mut held = Some(handle.device().unwrap());
    let outcome = in_a_child(|| {
        let registry = registry.take().ok_or("nothing")?;
        refused("a device", registry.open("model:1", &config))?;
        refused("a removal", registry.remove("parents"))?;
        refused("a client's end", registry.unregister("nobody"))?;
        refused("attachments", registry.attachments())?;
        refused("a use", handle.device())?;
        handle.request_removal();
        if !registry.devices().is_empty() || !format!("{handle:?}").contains("Removed") {
            return Err("the child has the parent's devices".into());
        }
        let began = Instant::now();
        drop((held.take(), registry));
        if began.elapsed() > Duration::from_secs(10) {
            return Err(format!("dropping took {:?}", began.elapsed()));
        }
        // A registry of its own, in which the address has the name that it had.
        let text = |error: &dyn Display| error.to_string();
        let own = Registry::new(&RegistrySettings::default()).map_err(|error| text(&error))?;
        let opened = own.open("model:0", &config).map_err(|error| text(&error))?;
        match opened.name() {
            "parents" => own.close().map_err(|error| text(&error)),
            other => Err(format!("it is called {other}")),
        }
    });
    assert_eq!(outcome, Ok(()));
    let held = held.unwrap();
    assert!(
        held.protection_domain().is_ok(),
        "the parent's device serves"
    );
    assert_eq!(handle.state(), DeviceState::InService { life: 1 });
    drop(held);
    registry.unwrap().close().unwrap();
}

/// Descriptors are shared across a fork: a signal that the child took would not wake the parent.
#[test]
fn a_child_takes_no_signal_of_its_parent() {
    let _one = ONE.lock();
    let [mut left, right] = connected(0);
    let events = left.device.events().unwrap();
    let interrupts = left.device.interrupts().unwrap();
    let open = left.device.driver().open_port(&PortSettings::default());
    let open = open.unwrap();
    let packets = open.port.receive_interrupt(&[0]).unwrap();

    let added = left.device.add_address("10.77.0.1/24".parse().unwrap());
    added.unwrap();
    let (source, target) = (left.region(4096), right.region(4096));
    left.completions.arm(Notify::Next);
    let place = source.slice(0..4096).unwrap();
    let posted = left
        .queue_pair
        .write(1, &[place], target.remote().at(0), Flags::SIGNALLED);
    posted.unwrap();
    left.queue_pair.ring();
    assert!(is_readable(&events, LIMIT), "no event");
    assert!(is_readable(&interrupts, LIMIT), "no interrupt");

    let outcome = in_a_child(|| {
        if events.take(&mut Vec::new()) > 0 || !events.is_over() {
            return Err("the child has events".into());
        }
        refused("an interrupt", interrupts.take())?;
        refused("a wait", interrupts.wait(LIMIT))?;
        refused("an interrupt for packets", packets.take())?;
        refused("a wait for packets", packets.wait(LIMIT))?;
        match packets.is_in_service() {
            true => Err("the child has an interrupt in service".into()),
            false => Ok(()),
        }
    });
    assert_eq!(outcome, Ok(()));
    assert!(is_readable(&events, Duration::ZERO), "the event's signal");
    assert!(is_readable(&interrupts, Duration::ZERO), "the interrupt");
    assert!(events.take(&mut Vec::new()) > 0 && !events.is_over());
    assert!(interrupts.wait(LIMIT).unwrap());
    left.wait(1);
    assert!(packets.is_in_service());
}

#[test]
fn a_child_has_no_part_in_a_connection_manager() {
    let _one = ONE.lock();
    let config = Config::default();
    let open = |address| ringside::open(address, &config).unwrap();
    let (left, right) = (open("model:0"), open("model:1"));
    let (client, server) = (
        left.connection_manager().unwrap(),
        right.connection_manager().unwrap(),
    );
    let address = SocketAddr::new(server.addresses()[0], 7471);
    let listener = server.listen(address, 8).unwrap();
    let pair = |device: &Device| {
        let completions = device.completion_queue(16).unwrap();
        let domain = device.protection_domain().unwrap();
        domain
            .queue_pair(QueuePairConfig::reliable(&completions))
            .unwrap()
    };
    let settings = Settings::default();
    let connect = |client: &ringside::connect::ConnectionManager,
                   listener: &ringside::connect::Listener| {
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let request = listener.next(LIMIT).expect("a request");
                request.accept(pair(&right), &settings, LIMIT)
            });
            let near = client.connect(pair(&left), address, &settings, LIMIT);
            Ok::<_, ConnectError>((near?, accepting.join().expect("the server")?))
        })
    };
    let (near, mut far) = connect(&client, &listener).unwrap();
    let mut parents = Some((server, listener, near, pair(&left)));
    let outcome = in_a_child(|| {
        let (server, listener, mut near, spare) = parents.take().ok_or("nothing")?;
        let began = Instant::now();
        refused("listening", server.listen(address, 8))?;
        refused(
            "connecting",
            client.connect(spare, address, &settings, LIMIT),
        )?;
        refused("restoring", right.restore_connections(&server))?;
        if !server.addresses().is_empty() || listener.next(LIMIT).is_some() {
            return Err("the child has the parent's manager".into());
        }
        if !matches!(listener.closed(), Some(Closed::OtherProcess { .. })) {
            return Err(format!("the listener: {:?}", listener.closed()));
        }
        let is_over = near.wait_for_end(LIMIT);
        if !(is_over && matches!(near.end(), Some(EndOf::Closed(Closed::OtherProcess { .. })))) {
            return Err(format!("the connection: {:?}", near.end()));
        }
        drop((near, listener, server));
        match began.elapsed() < LIMIT / 2 {
            true => Ok(()),
            false => Err(format!("it took {:?}", began.elapsed())),
        }
    });
    assert_eq!(outcome, Ok(()));
    let (server, listener, mut near, _spare) = parents.take().unwrap();
    assert!(!near.wait_for_end(Duration::ZERO), "the connection goes on");
    assert!(!far.wait_for_end(Duration::ZERO), "the connection goes on");
    assert!(!server.addresses().is_empty());
    connect(&client, &listener).unwrap();
}

/// A recovery holds the lock that each use of the device takes: in a child it stays held.
#[test]
fn a_fork_during_a_recovery_leaves_no_call_of_the_child_waiting() {
    let _one = ONE.lock();
    let device = ringside::open("model:0", &Config::default()).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let recovering = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                device.recover().unwrap();
            }
        });
        let mut outcome = Ok(());
        for _ in 0..30 {
            outcome = in_a_child(|| {
                refused("a protection domain", device.protection_domain())?;
                refused("memory", device.allocate(4096))?;
                refused("owned memory", device.map_memory(vec![0_u8; 4096]))?;
                refused("the port", device.query_port())?;
                refused("events", device.poll_events(&mut Vec::new()))?;
                match (device.failure(), device.life()) {
                    (None, 1..) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
            if outcome.is_err() {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        recovering.join().unwrap();
        assert_eq!(outcome, Ok(()));
    });
    assert!(device.life() > 1 && device.failure().is_none());
}

/// Another thread holds the engine's lock while the process is copied: in the child it stays held.
#[test]
fn a_child_does_not_wait_for_the_lock_of_the_engine_that_feeds_a_queue_pair() {
    let _one = ONE.lock();
    let device = ringside::open("model:0", &Config::default()).unwrap();
    let domain = device.protection_domain().unwrap();
    let mut queue = device.completion_queue(64).unwrap();
    let mut shared = domain
        .shared_receive_queue(&SharedReceiveConfig::default())
        .unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let memory = device.allocate(4096).unwrap();
                drop(domain.register(memory, Access::LOCAL_WRITE).unwrap());
            }
        });
        let text = |error: RdmaError| error.to_string();
        let mut round = || {
            let mut fed = [None, None];
            for place in &mut fed {
                let made = domain.queue_pair(QueuePairConfig::reliable(&queue));
                shared
                    .attach(place.insert(made.map_err(text)?))
                    .map_err(text)?;
            }
            let outcome = in_a_child(|| {
                let [one, other] = fed.each_mut().map(Option::take);
                if domain.failure().is_some() {
                    return Err("a failure".to_owned());
                }
                refused("destroying", shared.destroy(one.unwrap()))?;
                let reset = shared.reset(other.unwrap());
                refused("a reset", reset.map(drop).map_err(|error| error.error))
            });
            for pair in fed.into_iter().flatten() {
                shared.destroy(pair).map_err(text)?;
            }
            // Ends of the queue pairs wait in its inbox.
            queue.poll(&mut [Completion::EMPTY; 16]);
            outcome
        };
        let outcome = (0..50).try_for_each(|_| round());
        is_done.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        assert_eq!(outcome, Ok(()));
    });
}

thread_local! {
    static OWN: RefCell<Option<Registry>> = const { RefCell::new(None) };
}

/// In a process of its own: a panic in the destructor of a thread-local aborts it.
#[test]
fn a_registry_in_a_thread_local_ends_with_its_thread() {
    let _one = ONE.lock();
    let outcome = in_a_child(|| {
        let text = |error: &dyn Display| error.to_string();
        let config = Config::default();
        let thread = std::thread::spawn(move || {
            OWN.with_borrow_mut(|own| {
                let new = Registry::new(&RegistrySettings::default()).unwrap();
                let opened = own.insert(new).open("model:0", &config);
                opened.map(drop).map_err(|error| text(&error))
            })
        });
        thread.join().map_err(|_| "the thread panicked")??;
        // Its device was shut down: the function is free.
        let again = ringside::open("model:0", &Config::default());
        again.map(drop).map_err(|error| error.to_string())
    });
    assert_eq!(outcome, Ok(()));
}
