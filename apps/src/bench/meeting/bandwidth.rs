//! Bandwidth and message rate between two processes: many messages in flight from the client.

use super::agreement::Test;
use super::end::{End, Link, Watch};
use super::session::sleep_until_ended;
use crate::bench::bandwidth::{Flow, Run};
use crate::bench::plan::Plan;
use crate::bench::progress::Progress;
use crate::bench::report::BandwidthRow;
use crate::cli::Operation;
use crate::failure::Failure;
use anyhow::anyhow;
use ringside_pmd::rdma::{Flags, PostError};
use ringside_rendezvous::Step;

/// Measures, as the client.
pub(crate) fn measure(
    end: &mut End<'_>,
    link: &mut Link,
    test: &Test,
    plan: &Plan,
    progress: &mut Progress,
    verified: u64,
) -> Result<BandwidthRow, Failure> {
    let mut run = Run::prepare(&end.side, &end.side, &end.places(), plan, test.size)?;
    link.step(Step::Measuring)?;
    drive(&mut run, end, link, plan, progress)?;
    link.step(Step::Ended)?;
    Ok(run.row(verified))
}

/// Posts and polls until the amount is reached and everything is complete.
pub(crate) fn drive(
    run: &mut Run,
    end: &mut End<'_>,
    link: &mut Link,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<(), Failure> {
    run.begin();
    let mut stop = false;
    let mut watch = Watch::new();
    while !run.is_over(stop) {
        learn_counts(end, run)?;
        let mut worked = if stop { 0 } else { run.post(&mut end.side)? };
        worked += run.complete(&mut end.side)?;
        if let Some(over) = run.tick(&link.clock, plan.amount, progress) {
            stop = over;
            link.beat()?;
        }
        if worked > 0 {
            watch.progress();
        } else if watch.idle_with(end.side.device, link)?.is_some() {
            return Err(Failure::operation(anyhow!(
                "the peer {} ended the test before this side did",
                link.session.peer()
            )));
        }
    }
    run.end(&link.clock);
    Ok(())
}

/// The number of receives that the server has posted, so that no message finds an empty queue.
fn learn_counts(end: &End<'_>, run: &mut Run) -> Result<(), Failure> {
    let Some(counts) = &end.counts else {
        return Ok(());
    };
    let [buffer] = counts.buffers() else {
        return Err(Failure::operation(anyhow!(
            "the counts are not in one piece"
        )));
    };
    for (index, flow) in run.flows.iter_mut().enumerate() {
        let mut count = [0; 8];
        if buffer.read(8 * index, &mut count) {
            flow.granted = u64::from_le_bytes(count);
        }
    }
    Ok(())
}

/// Lets the client measure, as the server; returns how many messages it received.
pub(crate) fn serve(
    end: &mut End<'_>,
    link: &mut Link,
    test: &Test,
    plan: &Plan,
) -> Result<u64, Failure> {
    if plan.operation != Operation::Send {
        link.step(Step::Measuring)?;
        sleep_until_ended(end, link)?;
        link.step(Step::Ended)?;
        return Ok(0);
    }
    let mut run = Run::prepare(&end.side, &end.side, &end.places(), plan, test.size)?;
    run.post_receives(&mut end.side, plan.receive_depth)?;
    link.step(Step::Measuring)?;
    let mut counts = Counts {
        told: vec![0; test.queue_pairs as usize],
        least: u64::from(plan.receive_depth / 4).clamp(1, 16),
    };
    let mut watch = Watch::new();
    loop {
        counts.tell(end, &run)?;
        let taken = run.take_receives(&mut end.side)?;
        if taken > 0 {
            run.post_receives(&mut end.side, plan.receive_depth)?;
            watch.progress();
        } else if watch.idle_with(end.side.device, link)?.is_some() {
            break;
        }
    }
    link.step(Step::Ended)?;
    // The client's sends are complete, so all their messages have arrived.
    while run.take_receives(&mut end.side)? > 0 {}
    Ok(run.flows.iter().map(Flow::received).sum())
}

/// The number of posted receives that the client was notified of.
struct Counts {
    told: Vec<u64>,
    /// smallest number of receives that is reported
    least: u64,
}

impl Counts {
    fn tell(&mut self, end: &mut End<'_>, run: &Run) -> Result<(), Failure> {
        for (index, (told, flow)) in self.told.iter_mut().zip(&run.flows).enumerate() {
            let posted = flow.receives_posted();
            if posted - *told < self.least {
                continue;
            }
            let remote = end.remote_count(index);
            let both = remote.zip(end.side.queue_pairs.get_mut(index));
            if let Some((remote, queue_pair)) = both {
                let bytes = posted.to_le_bytes();
                let flags = Flags::SIGNALLED;
                match queue_pair.write_inline(u64::MAX, &bytes, remote, None, flags) {
                    Ok(()) => *told = posted,
                    // The next round tries again, with a newer count.
                    Err(PostError::QueueFull) => continue,
                    Err(error) => return Err(error.into()),
                }
                queue_pair.ring();
            }
        }
        Ok(())
    }
}
