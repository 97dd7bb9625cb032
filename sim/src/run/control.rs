//! The control path: queues are resized and armed; objects are queried, made and dropped.

use super::Run;
use super::poll::BATCH;
use crate::rig::{Handle, QUEUES};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{
    Access, Completion, Destination, Notify, QueuePairConfig, QueuePairStage, RdmaError, WindowKind,
};

impl Run<'_> {
    pub(super) fn resize(&mut self) -> Result<(), Problem> {
        let (side, number) = (self.random.below(2), self.random.below(QUEUES));
        let completions = self.random.within(220, 600) as u32;
        self.must(side, "resizing a completion queue", |run| {
            match run.side(side).queues.get_mut(number) {
                Some(queue) => queue.queue.resize(completions),
                None => Ok(()),
            }
        })?;
        self.ledger.ring_replaced(side);
        if let Some(queue) = self.side(side).queues.get_mut(number) {
            queue.arming.resized();
        }
        Ok(())
    }

    /// Arms a queue that has nothing to poll.
    pub(super) fn arm(&mut self) -> Result<(), Problem> {
        self.poll_all()?;
        let side = self.random.below(2);
        self.take_completion_events(side)?;
        let number = self.random.below(QUEUES);
        let next = self.random.chance(800);
        let wish = if next {
            Notify::Next
        } else {
            Notify::Solicited
        };
        self.arm_empty(side, number, wish)
    }

    /// Arms a certain queue.
    pub(super) fn arm_queue(
        &mut self,
        side: usize,
        number: usize,
        wish: Notify,
    ) -> Result<(), Problem> {
        self.poll_all()?;
        self.take_completion_events(side)?;
        self.arm_empty(side, number, wish)
    }

    /// Takes completion events; false if the driver refuses, which it may in trouble. If interrupts
    /// are connected, one must have arrived for the events.
    pub(super) fn take_completion_events(&mut self, side: usize) -> Result<bool, Problem> {
        let interrupted = self.was_interrupted(side)?;
        let mut named = Vec::new();
        let taken = self.must(side, "completion events", |run| {
            run.side(side).device.poll_completion_events(&mut named)
        })?;
        self.judge_completion_events(side, &named)?;
        // It may have arrived while the last wait ended.
        if !named.is_empty() && !interrupted && !self.was_interrupted(side)? {
            self.miss_interrupt(side)?;
        }
        Ok(taken.is_some())
    }

    /// Arms a queue that has nothing to poll.
    fn arm_empty(&mut self, side: usize, number: usize, wish: Notify) -> Result<(), Problem> {
        let next = wish == Notify::Next;
        self.note(|| {
            format!(
                "side {side}: queue {number} is armed for {}",
                if next { "the next" } else { "solicited ones" }
            )
        });
        let dropped = self.dropped(side);
        if let Some(queue) = self.side(side).queues.get_mut(number) {
            queue.arming.was_not_empty();
            queue.arming.request(wish, dropped);
            queue.queue.arm(wish);
        }
        // A completion that arrived before may give no event.
        let before = self.poll_queue(side, number, BATCH)?;
        if let Some(queue) = self.side(side).queues.get_mut(number)
            && before == 0
        {
            queue.arming.was_empty(wish);
        }
        Ok(())
    }

    pub(super) fn compare(&mut self) -> Result<(), Problem> {
        self.ledger.memory.compare()?;
        for side in &self.sides {
            side.check_ungranted()?;
        }
        Ok(())
    }

    pub(super) fn query(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        match self.random.below(5) {
            0 => {
                let all =
                    self.must(side, "statistics", |run| run.side(side).device.statistics())?;
                let names: std::collections::BTreeSet<_> =
                    all.iter().flatten().map(|one| one.name).collect();
                if all.is_some_and(|all| all.len() != names.len()) {
                    return Err(Problem::new(Rule::CallRight, "a counter is there twice"));
                }
            }
            1 => {
                self.must(side, "a port's state", |run| {
                    run.side(side).device.query_port()
                })?;
            }
            2 => self.query_region(side)?,
            _ => self.query_queue_pair()?,
        }
        Ok(())
    }

    fn query_region(&mut self, side: usize) -> Result<(), Problem> {
        let number = self.random.below(3);
        let valid = self.must(side, "a region's state", |run| {
            let arena = run
                .ledger
                .memory
                .arenas
                .get(side)
                .and_then(|arenas| arenas.get(number));
            match arena.and_then(|arena| arena.region.as_ref()) {
                Some(region) => region.is_valid(),
                None => Ok(true),
            }
        })?;
        if valid == Some(false) {
            let text = format!("region {number} of side {side} is reported as invalid");
            return Err(Problem::new(Rule::CallRight, text));
        }
        Ok(())
    }

    fn query_queue_pair(&mut self) -> Result<(), Problem> {
        let Some((link, end)) = self.pick_end() else {
            return Ok(());
        };
        let report = self.must(end, "a queue pair's state", |run| {
            match run.queue_pair((link, end)) {
                Some(queue_pair) => queue_pair.query().map(Some),
                None => Ok(None),
            }
        })?;
        let Some(report) = report.flatten() else {
            return Ok(());
        };
        self.poll_all()?;
        let known = self.ledger.links.get(&link);
        let whole =
            known.is_some_and(|link| !link.ends.iter().any(|end| end.torn) && !link.is_wrong());
        let number = known
            .and_then(|link| link.ends.get(end))
            .map(|end| end.number);
        if Some(report.number) != number || (whole && report.stage != QueuePairStage::ReadyToSend) {
            let text = format!("queue pair {number:?} reports {report:?}");
            return Err(Problem::new(Rule::CallRight, text));
        }
        Ok(())
    }

    /// Makes and drops short-lived objects.
    pub(super) fn objects(&mut self) -> Result<(), Problem> {
        let side = self.random.below(2);
        let what = self.random.below(6);
        let place = self.side(side);
        let (device, domain) = (&place.device, place.domain.clone());
        let address = device
            .local_addresses()
            .ok()
            .and_then(|all| all.first().copied());
        let before = device.object_usage();
        let size = 4096 * (1 + what);
        let pages = 1 + what as u32;
        self.must(
            side,
            "objects that live for a moment",
            |run| -> Result<(), RdmaError> {
                let place = run.side(side);
                let device = &place.device;
                match what {
                    0 => drop(device.completion_queue(10)?),
                    1 => {
                        let buffer = device.allocate(size)?;
                        let made = domain.register(buffer, Access::ALL);
                        drop(made.map_err(|error| error.error)?);
                    }
                    2 => drop(domain.memory_window(WindowKind::Two)?),
                    3 => drop(domain.fast_region(pages)?),
                    4 => {
                        if let Some(queue) = place.queues.first() {
                            drop(domain.queue_pair(QueuePairConfig::reliable(&queue.queue))?);
                        }
                    }
                    _ => {
                        let made = device.protection_domain()?;
                        if let Some(address) = address {
                            let destination = Destination::new(address, [2, 0, 0, 0, 0, 9]);
                            drop(made.address_handle(&destination)?);
                        }
                    }
                }
                Ok(())
            },
        )?;
        let after = self.side(side).device.object_usage();
        let (Ok(mut before), Ok(after)) = (before, after) else {
            return Ok(());
        };
        before.host_memory_cache_bytes = after.host_memory_cache_bytes;
        if before != after && !self.is_troubled_at(side) {
            let text = format!(
                "objects of kind {what} were made and dropped: {before:?} before, {after:?} after"
            );
            return Err(Problem::new(Rule::NothingLeft, text));
        }
        Ok(())
    }

    /// Checks that no completion or event arrives once everything is destroyed.
    pub(super) fn expect_silence(&mut self) -> Result<(), Problem> {
        let dropped = self.ledger.dropped;
        for (side, dropped) in dropped.into_iter().enumerate() {
            let troubled = self.is_troubled_at(side);
            let mut strangers = 0;
            for queue in &mut self.side(side).queues {
                let mut batch = [Completion::EMPTY; 4];
                if let [first, ..] = queue.queue.poll(&mut batch) {
                    let text = format!("after everything was destroyed: {first:?}");
                    return Err(Problem::new(Rule::CompletesOnce, text));
                }
                let mut anomalies = queue.queue.anomalies();
                strangers += std::mem::take(&mut anomalies.unknown_context);
                if anomalies != Default::default() && !troubled {
                    return Err(Problem::new(
                        Rule::NoAnomaly,
                        format!("side {side}: {anomalies:?}"),
                    ));
                }
            }
            // Completions of a queue pair that were not polled before it was destroyed.
            if strangers > dropped && !troubled {
                let text = format!(
                    "side {side}: {strangers} completions of unknown queue pairs, {dropped} requests were dropped"
                );
                return Err(Problem::new(Rule::NoAnomaly, text));
            }
        }
        Ok(())
    }

    /// Resumes every drained queue pair.
    pub(super) fn resume_all(&mut self) -> Result<(), Problem> {
        let numbers: Vec<u32> = self.held.keys().copied().collect();
        for number in numbers {
            for end in 0..2 {
                let drained = self.held.get(&number).and_then(|ends| ends.get(end));
                if drained.is_some_and(|held| matches!(held.handle, Handle::Drained(_))) {
                    self.resume_end((number, end))?;
                }
            }
        }
        Ok(())
    }
}
