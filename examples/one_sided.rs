//! Writes the program's own memory to a peer's and reads it back, without the peer's help.
//!
//! Run: `cargo run --example one_sided -- [FIRST SECOND]`
//!
//! FIRST and SECOND are addresses of devices on one network, such as `0000:3b:00.0` or
//! `vfio-user:/run/e810.sock`; default `model:0` and `model:1`.

use ringside::prelude::*;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

fn wait(completions: &mut CompletionQueue, id: u64) -> Result<(), Error> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut batch = [Completion::EMPTY; 8];
    while Instant::now() < end {
        for done in completions.poll(&mut batch) {
            if !done.is_success() {
                return Err(format!("request {}: {}", done.id, done.status()).into());
            }
            if done.id == id {
                return Ok(());
            }
        }
    }
    Err(format!("request {id} did not complete within 10 s").into())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = |index: usize, default| arguments.get(index).map_or(default, String::as_str);
    let config = Config::default();
    let left = ringside::open(address(0, "model:0"), &config)?;
    let right = ringside::open(address(1, "model:1"), &config)?;

    let domain = left.protection_domain()?;
    let mut completions = left.completion_queue(64)?;
    // Memory of the program, not of the device: mapped, and held by the region until it is
    // deregistered. The first half is sent, the second half takes the answer.
    let pattern: Vec<u8> = (0..4096_u32).map(|at| (at * 7 + 1) as u8).collect();
    let mut own = pattern.clone();
    own.resize(8192, 0);
    let local = domain.register(left.map_memory(own)?, Access::LOCAL_WRITE)?;

    let peer_domain = right.protection_domain()?;
    let peer_completions = right.completion_queue(64)?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let shared = peer_domain.register(right.map_memory(vec![0; 8192])?, rights)?;

    let queue_pair = domain.queue_pair(QueuePairConfig::reliable(&completions))?;
    let peer = peer_domain.queue_pair(QueuePairConfig::reliable(&peer_completions))?;
    let (here, there) = (queue_pair.endpoint(), peer.endpoint());
    let mut queue_pair = queue_pair.connect(&there)?;
    let _peer = peer.connect(&here)?;

    queue_pair.write(
        1,
        &[local.slice(0..4096)?],
        shared.remote().at(0),
        Flags::SIGNALLED,
    )?;
    queue_pair.ring();
    wait(&mut completions, 1)?;

    queue_pair.read(
        2,
        &[local.slice(4096..8192)?],
        shared.remote().at(0),
        Flags::SIGNALLED,
    )?;
    queue_pair.ring();
    wait(&mut completions, 2)?;

    // The device confirms that it no longer uses the memory, and the program has it back.
    let buffer = local
        .deregister()?
        .pop()
        .ok_or("the region had no buffer")?;
    let memory = buffer
        .into_memory()
        .map_err(|_| "the mapping did not end")?;
    let own = memory.into_boxed().map_err(|_| "the memory is in use")?;
    if own[..4096] != pattern || own[4096..] != pattern {
        return Err("the bytes that came back differ from those that were written".into());
    }
    println!("4096 bytes of the program's memory written to the peer and read back; all equal");
    Ok(())
}
