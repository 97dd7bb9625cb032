//! memory ADDRESS:PORT DEVICE REGIONS: the program's own memory, used by a card through the IOMMU.
//!
//! The other side is the scene `exchange` of `tests/guest/verbs_peer`, which listens
//! (`docs/exchange.md`). For each kind of memory (bytes of a vector, unaligned; huge pages; a
//! mapped file; a memfd) it asks for writes, reads and sends of which the memory is source and
//! target, and compares. In one of the tests this process forks in the middle of each round, and
//! the child writes to its copy of the memory; in another the queue pair has an address that was
//! added for it. At last REGIONS regions are made and dropped, and the device must have what it had
//! before.
//!
//! The file is made in the current folder, which should be one of a tmpfs. Exit status 0: every
//! byte was correct, nothing was left over.
#![allow(unsafe_code)] // maps memory and forks

mod exchange;

use exchange::{ADDED, End, HUGE, LIMIT, PAGE, Result, Task, Turn, ask, offered, rights};
use ringside_bus::TscClock;
use ringside_bus::memory::Memory;
use ringside_config::{Config, LocalAddress};
use ringside_pmd::rdma::{ProtectionDomain, QueuePairConfig};
use ringside_pmd::{BringUpOptions, Device};
use ringside_rendezvous::{Greeting, Session, Step, connect};
use ringside_testkit::claim;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn one_test(
    device: &Device,
    domain: &ProtectionDomain,
    mut session: Session,
    memory: &Memory,
    (task, turn): (Task, Turn),
) -> Result<Session> {
    ask(&mut session, Some(task))?;
    let buffer = device.map_memory(memory.clone())?;
    let region = domain.register(buffer, rights())?;
    let completions = device.completion_queue(64)?;
    let mut config = QueuePairConfig::reliable(&completions);
    if turn == Turn::AddedAddress {
        let added: LocalAddress = ADDED.parse()?;
        config = config.local_address(added.address);
    }
    let queue_pair = domain.queue_pair(config)?;
    let ours = Greeting {
        endpoint: queue_pair.endpoint(),
        regions: vec![offered(&region)],
    };
    let theirs = session.greet(&ours, LIMIT)?;
    let queue_pair = queue_pair
        .connect(&theirs.endpoint)
        .map_err(|failed| failed.error)?;
    session.synchronise(Step::Connected, LIMIT)?;
    let target = *theirs.regions.first().ok_or("no region to write to")?;
    let end = End {
        session,
        task,
        turn,
        region,
        completions,
        queue_pair,
        target,
    };
    end.run()
}

fn all_tests(device: &Device, session: Session) -> Result<usize> {
    let domain = device.protection_domain()?;
    device.add_address(ADDED.parse()?)?;
    let one = |session, memory: &Memory, task, turn| {
        one_test(device, &domain, session, memory, (task, turn))
    };
    let (count, _) = exchange::all(session, one)?;
    Ok(count)
}

/// Regions of one page or two, made and dropped in turn, at ever other places of one mapping.
fn many(device: &Device, count: usize) -> Result<Duration> {
    let domain = device.protection_domain()?;
    let length = HUGE;
    // SAFETY: a new mapping, which is never unmapped.
    let first = unsafe {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, rights, MapFlags::PRIVATE)?
    };
    let first = NonNull::new(first.cast::<u8>()).ok_or("no mapping")?;
    let before = device.object_usage()?;
    let began = Instant::now();
    for number in 0..count {
        let skip = number * 97 % (length - 2 * PAGE);
        // SAFETY: a page behind `skip` is mapped, and nothing accesses it.
        let memory = unsafe { Memory::from_raw(first.add(skip), PAGE) };
        let region = domain.register(device.map_memory(memory)?, rights())?;
        drop(region);
    }
    let after = device.object_usage()?;
    match before == after {
        true => Ok(began.elapsed() / u32::try_from(count.max(1))?),
        false => Err(format!("{after:?} is in use, {before:?} was").into()),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [place, address, regions] = arguments.as_slice() else {
        return Err("usage: memory ADDRESS:PORT DEVICE REGIONS".into());
    };
    let function = claim(&address.parse()?)?;
    let device = Device::bring_up(function, &Config::default(), BringUpOptions::default());
    let device = device.map_err(|error| error.to_string())?;
    let clock = Arc::new(TscClock::new());
    let tests = all_tests(&device, connect(place.parse()?, LIMIT, clock)?)?;
    println!("{tests} tests verified");
    let count: usize = regions.parse()?;
    let each = many(&device, count)?;
    println!("{count} regions made and dropped, {each:?} each");
    let report = device.shutdown();
    match report.failures.is_empty() && report.leaked_bytes == 0 {
        true => Ok(()),
        false => Err(format!("taking down: {:?}", report.failures).into()),
    }
}
