//! outlive FIRST SECOND SPARE: traffic between two devices until they are removed, and the process
//! continues.
//!
//! Brings up FIRST and SECOND (PCI addresses, or vfio-user:PATH), prints "under traffic" and writes
//! from one to the other until a call fails. Then it makes every kind of call once more, and prints
//! the time of each: none may hang or panic. Finally it brings SPARE up and shuts it down in the
//! same process. Exit status 0: all calls returned.

use ringside_config::Config;
use ringside_pmd::rdma::{
    Access, Completion, CompletionQueue, Connected, Flags, MemoryRegion, QueuePair, QueuePairConfig,
};
use ringside_pmd::{BringUpOptions, Device};
use ringside_testkit::claim;
use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

/// The time without progress after which the device counts as removed.
const STALL: Duration = Duration::from_secs(2);

/// The time limit of a call on a removed device.
const LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn bring_up(text: &str) -> Result<Device> {
    let config = Config::default();
    let device = Device::bring_up(claim(&text.parse()?)?, &config, BringUpOptions::default());
    Ok(device.map_err(|error| error.to_string())?)
}

struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    region: MemoryRegion,
}

fn end(device: &Device) -> Result<End> {
    let domain = device.protection_domain()?;
    let completions = device.completion_queue(256)?;
    let region = domain.register(device.allocate(1 << 16)?, Access::ALL)?;
    let queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
    Ok(End {
        queue_pair,
        completions,
        region,
    })
}

/// Writes until a call fails; returns its error.
fn until_it_fails(
    device: &Device,
    queue_pair: &mut QueuePair<Connected>,
    completions: &mut CompletionQueue,
    from: &MemoryRegion,
    to: &MemoryRegion,
) -> Result<String> {
    let fragment = from.slice(0..4096)?;
    let mut batch = [Completion::EMPTY; 16];
    let mut events = Vec::new();
    for id in 0.. {
        if let Err(error) = queue_pair.write(id, &[fragment], to.remote().at(0), Flags::SIGNALLED) {
            return Ok(format!("write {id}: {error}"));
        }
        queue_pair.ring();
        let since = Instant::now();
        loop {
            if let Some(done) = completions.poll(&mut batch).first() {
                if !done.is_success() {
                    return Ok(format!("completion {id}: {}", done.status()));
                }
                break;
            }
            if let Err(error) = device.poll_events(&mut events) {
                return Ok(format!("events after write {id}: {error}"));
            }
            if since.elapsed() > STALL {
                return Ok(format!("write {id} was not completed within {STALL:?}"));
            }
        }
        if id == 100 {
            println!("under traffic");
        }
    }
    Ok("not reached".into())
}

/// One call, timed.
fn call<T: Debug, E: Display>(
    what: &str,
    made: impl FnOnce() -> std::result::Result<T, E>,
) -> bool {
    let began = Instant::now();
    let result = made();
    let took = began.elapsed();
    match &result {
        Ok(value) => println!("{what}: {value:?} ({took:?})"),
        Err(error) => println!("{what}: {error} ({took:?})"),
    }
    took < LIMIT
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [first, second, spare] = arguments.as_slice() else {
        return Err("usage: outlive FIRST SECOND SPARE".into());
    };
    let (left, right) = (bring_up(first)?, bring_up(second)?);
    let (mut from, to) = (end(&left)?, end(&right)?);
    let (near, far) = (from.queue_pair.endpoint(), to.queue_pair.endpoint());
    let mut queue_pair = from
        .queue_pair
        .connect(&far)
        .map_err(|failed| failed.error)?;
    let peer = to
        .queue_pair
        .connect(&near)
        .map_err(|failed| failed.error)?;
    let failed = until_it_fails(
        &left,
        &mut queue_pair,
        &mut from.completions,
        &from.region,
        &to.region,
    )?;
    println!("noticed: {failed}");
    let mut events = Vec::new();
    let mut in_time = call("read a register", || left.registers().read(0x0B_8188));
    in_time &= call("read configuration space", || {
        let mut bytes = [0; 4];
        left.function().config_read(0, &mut bytes).map(|()| bytes)
    });
    in_time &= call("poll events", || left.poll_events(&mut events));
    in_time &= call("make a completion queue", || {
        left.completion_queue(16).map(drop)
    });
    in_time &= call("reset", || left.function().reset());
    drop((
        queue_pair,
        peer,
        from.region,
        to.region,
        from.completions,
        to.completions,
    ));
    for (name, device) in [(first, left), (second, right)] {
        in_time &= call(&format!("shut {name} down"), || {
            let report = device.shutdown();
            let failures: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
            Ok::<_, String>((failures, report.leaked_bytes))
        });
    }
    let other = bring_up(spare)?;
    let report = other.shutdown();
    println!("{spare} brought up and shut down: {:?}", report.failures);
    if !in_time {
        return Err("a call took longer than its limit".into());
    }
    println!("outlived");
    Ok(())
}
