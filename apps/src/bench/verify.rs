//! The separate pass in which every byte is compared.

use super::pair::{Pair, Watch};
use super::plan::Plan;
use crate::cli::Operation;
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_pmd::rdma::{Flags, Fragment, MemoryRegion};

/// Bytes compared for one size, at most; at least one message on each queue pair.
const MAX_VERIFIED_BYTES: u64 = 64 << 20;

/// Messages on one queue pair, at most.
const MAX_VERIFIED_MESSAGES: u64 = 16;

/// Messages of a size that are compared on each queue pair.
pub(crate) fn verified_messages(size: u64, queue_pairs: u32) -> u64 {
    let bytes = size.max(1) * u64::from(queue_pairs);
    (MAX_VERIFIED_BYTES / bytes).clamp(1, MAX_VERIFIED_MESSAGES)
}

/// Transfers patterns and compares the received bytes; returns the number of compared messages.
pub(crate) fn verify(pair: &mut Pair<'_>, plan: &Plan, size: u64) -> Result<u64, Failure> {
    let messages = verified_messages(size, plan.queue_pairs);
    let mut pattern = vec![0; size as usize];
    let mut arrived = vec![0; size as usize];
    for message in 0..messages {
        for index in 0..plan.queue_pairs as usize {
            fill(&mut pattern, message << 32 | index as u64 | size << 40);
            transfer(pair, plan, index, &pattern)?;
            let start = pair.slot(index);
            let landed = match plan.operation {
                Operation::Read => &pair.client.source,
                _ => &pair.server.target,
            };
            copied(landed.read(start, &mut arrived), size)?;
            compare(plan, index, &pattern, &arrived)?;
        }
    }
    Ok(messages * u64::from(plan.queue_pairs))
}

/// One message on one queue pair, from a cleared target to its completion.
fn transfer(pair: &mut Pair<'_>, plan: &Plan, index: usize, pattern: &[u8]) -> Result<(), Failure> {
    let start = pair.slot(index);
    let range = start..start + pattern.len();
    let read = plan.operation == Operation::Read;
    let (from, to) = if read {
        (&pair.server.target, &pair.client.source)
    } else {
        (&pair.client.source, &pair.server.target)
    };
    put(from, start, pattern)?;
    clear(to, start, pattern.len())?;
    let source = pair.client.source.slice(range.clone())?;
    let target = pair.server.target.slice(range)?;
    let remote = pair.server.remote().at(start as u64);
    let fragments = [source];
    if plan.operation == Operation::Send {
        pair.server.queue_pairs[index].receive(0, &[target])?;
    }
    let queue_pair = &mut pair.client.queue_pairs[index];
    let inline = pattern.len() <= plan.inline as usize;
    let flags = Flags::SIGNALLED;
    match (plan.operation, inline) {
        (Operation::Read, _) => queue_pair.read(0, &fragments, remote, flags)?,
        (Operation::Write, true) => queue_pair.write_inline(0, pattern, remote, None, flags)?,
        (Operation::Write, false) => queue_pair.write(0, &fragments, remote, flags)?,
        (Operation::Send, true) => queue_pair.send_inline(0, pattern, None, flags)?,
        (Operation::Send, false) => queue_pair.send(0, &fragments, flags)?,
    }
    queue_pair.ring();
    wait(pair, plan.operation == Operation::Send, target)
}

/// Waits until the client has its completion and, for a send, the server too.
fn wait(pair: &mut Pair<'_>, receive: bool, target: Fragment) -> Result<(), Failure> {
    let (mut sent, mut received) = (false, !receive);
    let mut length = None;
    let mut watch = Watch::new();
    while !sent || !received {
        pair.client
            .poll(|completion| sent |= completion.is_send())?;
        pair.server.poll(|completion| {
            if !completion.is_send() {
                received = true;
                length = Some(completion.byte_length());
            }
        })?;
        watch.idle(pair)?;
    }
    match length {
        Some(length) if length != target.length_bytes => Err(Failure::wrong(anyhow!(
            "a receive completed with {length} bytes where {} were sent",
            target.length_bytes
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn put(region: &MemoryRegion, at: usize, bytes: &[u8]) -> Result<(), Failure> {
    copied(region.write(at, bytes), bytes.len() as u64)
}

/// Clears memory, so that its later content can only come from the device.
pub(crate) fn clear(region: &MemoryRegion, at: usize, length: usize) -> Result<(), Failure> {
    let [buffer] = region.buffers() else {
        return Err(Failure::operation(anyhow!(
            "the region has several buffers"
        )));
    };
    copied(buffer.fill(at, length, 0), length as u64)
}

pub(crate) fn copied(done: bool, size: u64) -> Result<(), Failure> {
    if done {
        Ok(())
    } else {
        Err(Failure::operation(anyhow!(
            "{size} bytes exceed their region"
        )))
    }
}

fn compare(plan: &Plan, index: usize, sent: &[u8], arrived: &[u8]) -> Result<(), Failure> {
    match sent
        .iter()
        .zip(arrived)
        .position(|(sent, arrived)| sent != arrived)
    {
        None => Ok(()),
        Some(at) => Err(Failure::wrong(anyhow!(
            "{} of {} bytes on queue pair {index}: byte {at} arrived as {:#04x}, sent was {:#04x}",
            plan.operation.title(),
            sent.len(),
            arrived[at],
            sent[at]
        ))),
    }
}

/// Fills with a sequence that depends on `seed` and never holds a zero byte: cleared memory then
/// differs in every place.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = (state | 0x0101_0101_0101_0101).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}
