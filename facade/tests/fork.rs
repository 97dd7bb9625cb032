//! A fork in the middle of traffic: the child is refused, the parent goes on.

mod pair;

use fork::Fork;
use pair::{End, LIMIT, connected};
use ringside::driver::rdma::PostError;
use ringside::prelude::*;
use ringside::registry::{DeviceState, Registry, RegistrySettings};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Runs `child` in a forked process; an error is its text, or that it did not end in time.
fn in_a_child(child: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let process = match fork::fork().unwrap() {
        Fork::Parent(process) => process,
        Fork::Child => {
            let text = child().err().unwrap_or_default();
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
        match began.elapsed() < Duration::from_secs(2) {
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

/// Part of the only test: a fork copies the threads of no other.
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
        if began.elapsed() > Duration::from_secs(2) {
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
