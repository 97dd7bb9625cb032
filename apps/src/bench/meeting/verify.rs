//! Patterns both ways, compared on both sides. The rounds are described in `docs/exchange.md`.

use super::agreement::{Task, Test};
use super::end::{End, Link, Role, Watch};
use crate::bench::verify::{clear, copied, fill, put};
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_pmd::rdma::{Completion, Flags, Operation};
use ringside_rendezvous::Step;

/// Carries out the rounds of the test; returns the number of messages that were compared here.
pub(crate) fn verify(end: &mut End<'_>, link: &mut Link, test: &Test) -> Result<u64, Failure> {
    let mut pattern = vec![0; test.size as usize];
    let mut arrived = vec![0; test.size as usize];
    for round in 0..test.rounds {
        prepare(end, link.role, test, round, &mut pattern)?;
        link.step(Step::Prepared)?;
        transfer(end, link, test, round, &mut pattern)?;
        link.step(Step::Transferred)?;
        for index in 0..test.queue_pairs {
            fill(&mut pattern, seed(test, round, link.role.other(), index));
            let landed = match test.task {
                Task::Read => &end.side.source,
                _ => &end.side.target,
            };
            copied(
                landed.read(end.slot(index as usize), &mut arrived),
                test.size,
            )?;
            compare(test, index, &pattern, &arrived)?;
        }
    }
    Ok(u64::from(test.rounds) * u64::from(test.queue_pairs))
}

/// The seed of a pattern: different for each message of a test and each side.
fn seed(test: &Test, round: u32, role: Role, index: u32) -> u64 {
    test.size << 40 | u64::from(round) << 32 | u64::from(immediate(0, role, index))
}

/// The number that goes with a message.
fn immediate(round: u32, role: Role, index: u32) -> u32 {
    u32::from(role == Role::Server) << 31 | round << 16 | index
}

/// Fills the memory that the peer gets, clears the memory for its messages, posts receives.
fn prepare(
    end: &mut End<'_>,
    role: Role,
    test: &Test,
    round: u32,
    pattern: &mut [u8],
) -> Result<(), Failure> {
    for index in 0..test.queue_pairs {
        let start = end.slot(index as usize);
        fill(pattern, seed(test, round, role, index));
        let (from, to) = match test.task {
            Task::Read => (&end.side.target, &end.side.source),
            _ => (&end.side.source, &end.side.target),
        };
        put(from, start, pattern)?;
        clear(to, start, pattern.len())?;
        let target = end.side.target.slice(start..start + pattern.len())?;
        let queue_pair = end.side.queue_pairs.get_mut(index as usize);
        if let Some(queue_pair) = queue_pair.filter(|_| test.task.takes_receives()) {
            queue_pair.receive(index.into(), &[target])?;
        }
    }
    Ok(())
}

/// One message on each queue pair, until everything has gone and come.
fn transfer(
    end: &mut End<'_>,
    link: &mut Link,
    test: &Test,
    round: u32,
    pattern: &mut [u8],
) -> Result<(), Failure> {
    for index in 0..test.queue_pairs {
        fill(pattern, seed(test, round, link.role, index));
        post(
            end,
            test,
            index,
            pattern,
            immediate(round, link.role, index),
        )?;
    }
    let expected = if test.task.takes_receives() {
        test.queue_pairs
    } else {
        0
    };
    let (mut sent, mut received) = (0, 0);
    let mut wrong = None;
    let mut watch = Watch::new();
    while sent < test.queue_pairs || received < expected {
        let taken = end.side.poll(|completion| {
            if completion.is_send() {
                sent += 1;
            } else {
                received += 1;
                let announced = immediate(round, link.role.other(), completion.id as u32);
                wrong = wrong
                    .take()
                    .or_else(|| wrong_receive(test, completion, announced));
            }
        })?;
        if taken == 0 {
            watch.idle_with(end.side.device, link)?;
        } else {
            watch.progress();
        }
    }
    wrong.map_or(Ok(()), |wrong| Err(Failure::wrong(anyhow!(wrong))))
}

fn post(
    end: &mut End<'_>,
    test: &Test,
    index: u32,
    pattern: &[u8],
    immediate: u32,
) -> Result<(), Failure> {
    let start = end.slot(index as usize);
    let fragments = [end.side.source.slice(start..start + pattern.len())?];
    let remote = end.remote(index as usize)?;
    let inline = pattern.len() <= test.inline as usize;
    let number = test.task.has_immediate().then_some(immediate);
    let flags = Flags::SIGNALLED;
    let Some(queue_pair) = end.side.queue_pairs.get_mut(index as usize) else {
        return Err(Failure::operation(anyhow!(
            "there is no queue pair {index}"
        )));
    };
    let id = u64::from(index);
    match (test.task, inline) {
        (Task::Read, _) => queue_pair.read(id, &fragments, remote, flags)?,
        (Task::Write | Task::WriteImmediate, true) => {
            queue_pair.write_inline(id, pattern, remote, number, flags)?;
        }
        (Task::Write, false) => queue_pair.write(id, &fragments, remote, flags)?,
        (Task::WriteImmediate, false) => {
            queue_pair.write_with_immediate(id, &fragments, remote, immediate, flags)?;
        }
        (Task::Send | Task::SendImmediate, true) => {
            queue_pair.send_inline(id, pattern, number, flags)?;
        }
        (Task::Send, false) => queue_pair.send(id, &fragments, flags)?,
        (Task::SendImmediate, false) => {
            queue_pair.send_with_immediate(id, &fragments, immediate, flags)?;
        }
    }
    queue_pair.ring();
    Ok(())
}

/// The error of a receive completion, if there is one.
fn wrong_receive(test: &Test, completion: &Completion, announced: u32) -> Option<String> {
    let operation = match test.task {
        Task::WriteImmediate => Operation::ReceiveWriteImmediate,
        _ => Operation::Receive,
    };
    let immediate = test.task.has_immediate().then_some(announced);
    let found = (
        completion.operation(),
        completion.byte_length(),
        completion.immediate(),
    );
    let expected = (operation, test.size as u32, immediate);
    (found != expected).then(|| {
        format!(
            "{} of {} bytes on queue pair {}: the receive completed with {found:?} (operation, bytes, immediate), expected {expected:?}",
            test.task.title(),
            test.size,
            completion.id
        )
    })
}

fn compare(test: &Test, index: u32, expected: &[u8], arrived: &[u8]) -> Result<(), Failure> {
    let differs = |(place, (expected, arrived)): (usize, (&u8, &u8))| {
        (expected != arrived).then_some((place, *expected, *arrived))
    };
    let mut both = expected.iter().zip(arrived).enumerate();
    match both.find_map(differs) {
        None => Ok(()),
        Some((place, expected, arrived)) => Err(Failure::wrong(anyhow!(
            "{} of {} bytes on queue pair {index}: byte {place} arrived as {arrived:#04x}, the peer's pattern has {expected:#04x}",
            test.task.title(),
            test.size
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Amount;

    /// Worked out apart from this code, from the text of docs/exchange.md.
    #[test]
    fn the_pattern_is_the_one_that_the_document_describes() {
        let test = Test {
            task: Task::Write,
            measure: None,
            mtu: 4096,
            size: 20,
            amount: Amount::Messages(0),
            queue_pairs: 4,
            rounds: 8,
            send_depth: 1,
            receive_depth: 1,
            inline: 0,
            by_manager: false,
        };
        let mut bytes = [0; 20];
        fill(&mut bytes, seed(&test, 7, Role::Server, 3));
        assert_eq!(bytes, GOLDEN);
        assert_eq!(immediate(7, Role::Server, 3), 0x8007_0003);
        assert_eq!(immediate(7, Role::Client, 3), 0x0007_0003);
    }

    const GOLDEN: [u8; 20] = [
        0x17, 0x25, 0x51, 0xbd, 0x97, 0x9d, 0xc9, 0xd7, 0x9d, 0x21, 0xbb, 0x81, 0xab, 0x3f, 0xa3,
        0xb9, 0x9d, 0xd1, 0x5b, 0x7d,
    ];
}
