//! The end of a run: all outstanding requests end, all objects are destroyed, and nothing is left.

use super::Run;
use super::transfers::Plan;
use crate::rig::{Side, usage};
use crate::rule::{Problem, Rule};
use ringside_model::Stepped;
use ringside_model::left_over::left_over;
use ringside_pmd::Device;
use ringside_pmd::rdma::{Flags, ObjectUsage, Operation};
use std::time::Duration;

/// The model's name for the overflow of a completion queue.
const OVERFLOW: &str = "a completion queue has overflown";

impl Run<'_> {
    /// Ends all faults, waits for all outstanding requests, and destroys all objects.
    pub(super) fn settle_down(&mut self, last: u32) -> Result<(), Problem> {
        self.progress.step = None;
        self.limit_time();
        self.let_interfere(last);
        self.note(|| "the workload is over".to_owned());
        self.wire.book().quiet = true;
        self.end_faults(u32::MAX)?;
        self.resume_all()?;
        self.follow_unsignalled()?;
        self.settle()?;
        if self.world.has_mapped_doorbells() {
            // The device sees a plain store only when it polls.
            for _ in 0..4 {
                self.clock.pause(Duration::from_micros(100));
            }
            self.poll_all()?;
        }
        if let Some(missing) = self.ledger.missing_datagram() {
            return Err(Problem::new(Rule::Completes, missing));
        }
        self.compare()?;
        self.close_ports()?;
        self.end_reuse()?;
        let links: Vec<u32> = self.held.keys().copied().collect();
        for link in links {
            self.destroy_link(link)?;
        }
        self.close_datagrams()?;
        self.expect_silence()?;
        // Frames that were held back find no receiver any more.
        self.clock.pause(Duration::from_millis(1));
        self.ledger
            .memory
            .arenas
            .iter_mut()
            .flatten()
            .for_each(|arena| arena.settle_all());
        self.compare()
    }

    /// Posts a signalled request behind the last unsignalled ones: its success says that they have
    /// happened.
    fn follow_unsignalled(&mut self) -> Result<(), Problem> {
        self.poll_all()?;
        for place in self.ledger.ends_with_unsignalled() {
            let mut plan = Plan::new(Operation::Nop, Vec::new());
            plan.flags = Flags::SIGNALLED | Flags::LOCAL_FENCE;
            self.post(place, plan, |queue_pair, id, flags| {
                queue_pair.no_operation(id, flags)
            })?;
        }
        Ok(())
    }
}

fn check_usage(
    device: &Device,
    at_first: &(ObjectUsage, usize),
    number: usize,
) -> Result<(), Problem> {
    let now = usage(device);
    let mut now =
        now.map_err(|error| Problem::new(Rule::CallRight, format!("object usage: {error}")))?;
    if device.life() > 1 {
        // Memory that was allocated before a recovery stays as it is.
        now.1 = at_first.1;
    }
    if now == *at_first {
        return Ok(());
    }
    let text = format!("side {number}: {at_first:?} at first, {now:?} at the end");
    Err(Problem::new(Rule::NothingLeft, text))
}

/// Drops the objects of a side.
fn empty(side: &mut Side) {
    side.shared = None;
    side.interrupts = None;
    side.queues.clear();
}

/// Shuts both devices down and checks that nothing is left and that no rule of the interface was
/// broken.
pub(super) fn take_down(
    world: &Stepped,
    sides: [Side; 2],
    troubled: [bool; 2],
    overflowed: [bool; 2],
) -> Result<(), Problem> {
    let states = troubled.into_iter().zip(overflowed);
    for ((number, mut side), (troubled, overflowed)) in sides.into_iter().enumerate().zip(states) {
        empty(&mut side);
        let Side {
            domain,
            ungranted,
            device,
            before,
            at_first,
            ..
        } = side;
        drop((domain, ungranted));
        if !troubled {
            check_usage(&device, &at_first, number)?;
        }
        let report = device.shutdown();
        if !report.failures.is_empty() && !troubled {
            let text = format!("side {number}, shutdown: {:?}", report.failures);
            return Err(Problem::new(Rule::NothingLeft, text));
        }
        if report.leaked_bytes > 0 && !troubled {
            let text = format!(
                "side {number}: the shutdown leaked {} bytes",
                report.leaked_bytes
            );
            return Err(Problem::new(Rule::NothingLeft, text));
        }
        let after = world.with(|world| {
            world.clear_faults(number);
            world.snapshot(number)
        });
        let left = after
            .map(|after| left_over(&before, &after))
            .unwrap_or_default();
        if !left.is_empty() {
            return Err(Problem::new(
                Rule::NothingLeft,
                format!("side {number}: left in the device: {left:?}"),
            ));
        }
        let mut breaches = world.with(|world| world.breaches(number));
        // The mistake of a program, which a run makes on purpose only.
        let mut overflows = world.with(|world| world.remarks(number));
        overflows.retain(|remark| !overflowed && remark.kind == OVERFLOW);
        breaches.append(&mut overflows);
        if !breaches.is_empty() {
            return Err(Problem::new(
                Rule::NoBreach,
                format!("side {number}: {breaches:?}"),
            ));
        }
    }
    Ok(())
}
