//! Making, draining, failing and destroying connections.

use super::Run;
use crate::oracle::{End, Link};
use crate::rig::{Handle, Held, LINKS, QUEUES, RECEIVES, SENDS};
use crate::rule::{Problem, Rule};
use ringside_pmd::rdma::{QueuePair, QueuePairConfig, SharedReceiveConfig};

/// Receives that a shared queue holds.
pub(super) const SHARED_RECEIVES: u32 = 32;

/// Bytes of each of them.
pub(super) const SHARED_RECEIVE_BYTES: usize = 256;

/// Bytes of the receives of a queue pair that takes long messages; others take short ones.
const LONG_RECEIVE_BYTES: usize = 5_000;

/// The values that both ends of a connection share.
struct Terms {
    mtu: u32,
    retries: u8,
    not_ready_retries: u8,
}

impl Run<'_> {
    pub(super) fn connect(&mut self) -> Result<(), Problem> {
        if self.held.len() >= LINKS {
            return Ok(());
        }
        let terms = Terms {
            mtu: self
                .random
                .pick(&[256, 512, 1024, 2048, 4096])
                .unwrap_or(1024),
            retries: self.random.pick(&[2, 5, 7, 7]).unwrap_or(7),
            not_ready_retries: self.random.pick(&[2, 6, 7, 7, 7]).unwrap_or(7),
        };
        let Some((first, first_end)) = self.make_end(0, &terms)? else {
            return Ok(());
        };
        let Some((second, second_end)) = self.make_end(1, &terms)? else {
            return Ok(());
        };
        let (to_first, to_second) = (first.endpoint(), second.endpoint());
        let first = self.must(0, "connecting", |_| first.connect(&to_second))?;
        let second = self.must(1, "connecting", |_| second.connect(&to_first))?;
        let (Some(first), Some(second)) = (first, second) else {
            return Ok(());
        };
        let number = self.next_link;
        self.next_link += 1;
        let ends = [&first, &second].map(|queue_pair| queue_pair.number());
        let retries = (terms.retries, terms.not_ready_retries);
        let mut held = [first_end, second_end];
        let mut fed = [false; 2];
        for ((side, queue_pair), held) in [first, second].into_iter().enumerate().zip(&mut held) {
            let mut queue_pair = queue_pair;
            if self.random.chance(250) {
                fed[side] = self.attach(side, &mut queue_pair)?;
            }
            if fed[side] {
                held.receive_bytes = SHARED_RECEIVE_BYTES;
            }
            held.handle = Handle::Ready(queue_pair);
        }
        let [a, b] = ends;
        let [fed_a, fed_b] = fed;
        let ends = [End::new(a, retries, fed_a), End::new(b, retries, fed_b)];
        let link = Link::new(ends);
        self.note(|| format!("connection {number}: queue pairs {a} and {b}, fed {fed:?}, path MTU {}, {retries:?} retries", terms.mtu));
        self.ledger.add_link(number, link);
        self.held.insert(number, held);
        Ok(())
    }

    fn attach(
        &mut self,
        side: usize,
        queue_pair: &mut QueuePair<ringside_pmd::rdma::Connected>,
    ) -> Result<bool, Problem> {
        let config = SharedReceiveConfig {
            receives: SHARED_RECEIVES,
            fragments: 1,
            window: 4,
        };
        if self.side(side).shared.is_none() {
            let domain = self.side(side).domain.clone();
            let made = self.must(side, "a shared receive queue", |_| {
                domain.shared_receive_queue(&config)
            })?;
            self.side(side).shared = made;
        }
        let attached = self.must(
            side,
            "attaching to a shared receive queue",
            |run| match &mut run.side(side).shared {
                Some(shared) => shared.attach(queue_pair).map(|()| true),
                None => Ok(false),
            },
        )?;
        Ok(attached.unwrap_or(false))
    }

    fn make_end(
        &mut self,
        side: usize,
        terms: &Terms,
    ) -> Result<Option<(QueuePair, Held)>, Problem> {
        let inline = self.random.pick(&[8, 48, 101]).unwrap_or(8);
        let fragments = self.random.pick(&[1, 3, 6]).unwrap_or(1);
        let is_long = self.random.chance(300);
        let (send, receive) = (self.random.below(QUEUES), self.random.below(QUEUES));
        let place = self.side(side);
        let (Some(send), Some(receive)) = (place.queues.get(send), place.queues.get(receive))
        else {
            return Ok(None);
        };
        let config = QueuePairConfig::reliable(&send.queue)
            .receives_report_to(receive.queue.target())
            .send_requests(SENDS as u32)
            .receive_requests(RECEIVES as u32)
            .send_fragments(fragments as u32)
            .receive_fragments(2)
            .inline_bytes(inline as u32)
            .path_mtu(terms.mtu)
            .retries(terms.retries)
            .receiver_not_ready_retries(terms.not_ready_retries)
            .outbound_reads(8)
            .inbound_reads(8);
        let domain = place.domain.clone();
        let queue_pair = self.must(side, "a queue pair", |_| domain.queue_pair(config))?;
        let held = Held {
            handle: Handle::Gone,
            inline,
            fragments,
            receive_bytes: if is_long { LONG_RECEIVE_BYTES } else { 256 },
            receives: if is_long { 2 } else { RECEIVES },
        };
        Ok(queue_pair.map(|queue_pair| (queue_pair, held)))
    }

    /// Picks any connection.
    fn pick_link(&mut self) -> Option<u32> {
        let numbers: Vec<u32> = self.held.keys().copied().collect();
        self.random.pick(&numbers)
    }

    pub(super) fn destroy(&mut self) -> Result<(), Problem> {
        // Failed connections first: they take places.
        let failed = self
            .ledger
            .links
            .iter()
            .find(|(_, link)| link.ends.iter().all(|end| end.torn));
        let failed = failed.map(|(number, _)| *number);
        match failed.or_else(|| self.pick_link()) {
            Some(number) => self.destroy_link(number),
            None => Ok(()),
        }
    }

    /// Checks that no end of a connection has waited in full for an answer: where nothing is lost
    /// and both ends are whole, an answer that stays away would be healed by a repetition alone.
    fn check_answers(&self, number: u32) -> Result<(), Problem> {
        let whole = self.ledger.links.get(&number).filter(|link| {
            let torn = link.ends.iter().any(|end| end.torn);
            !link.is_wrong() && !torn
        });
        let Some(link) = whole.filter(|_| self.quiet_wire && !self.is_troubled()) else {
            return Ok(());
        };
        for (side, end) in link.ends.iter().enumerate() {
            let timeouts = self
                .world
                .with(|world| world.function(side)?.rdma().timeouts(end.number));
            if timeouts.is_some_and(|timeouts| timeouts > 0) {
                let text = format!(
                    "connection {number}, side {side}: {timeouts:?} time-outs on a wire that loses nothing"
                );
                return Err(Problem::new(Rule::AnsweredInTime, text));
            }
        }
        Ok(())
    }

    pub(super) fn destroy_link(&mut self, number: u32) -> Result<(), Problem> {
        self.check_answers(number)?;
        let Some(ends) = self.held.remove(&number) else {
            return Ok(());
        };
        let mut sides: Vec<(usize, Held)> = ends.into_iter().enumerate().collect();
        if self.random.chance(500) {
            sides.reverse();
        }
        for (side, held) in sides {
            self.note(|| format!("connection {number}: side {side} is destroyed"));
            let fed = self.ledger.end_mut(number, side).is_some_and(|end| end.fed);
            // The shared queue notices some later.
            let by_queue = fed && !number.is_multiple_of(3);
            let destroyed = self.must(side, "destroying a queue pair", |run| {
                match (held.handle, by_queue) {
                    (Handle::Ready(queue_pair), true) => match &mut run.side(side).shared {
                        Some(shared) => shared.destroy(queue_pair).map(|_| ()),
                        None => Ok(()),
                    },
                    (Handle::Ready(queue_pair), false) => queue_pair.destroy(),
                    (Handle::Drained(queue_pair), false) => queue_pair.destroy(),
                    (Handle::Drained(queue_pair), true) => match &mut run.side(side).shared {
                        Some(shared) => shared.destroy(queue_pair).map(|_| ()),
                        None => Ok(()),
                    },
                    (Handle::Gone, _) => Ok(()),
                }
            })?;
            if fed && destroyed.is_none() {
                // The device did not confirm: receives of the shared queue in the queue pair are
                // lost.
                self.ledger.lose_pool(side);
            }
            self.ledger.destroyed(number, side, destroyed.is_some())?;
            if self.random.chance(300) {
                self.pass()?;
            }
        }
        self.ledger.buried(number)
    }

    pub(super) fn fail(&mut self) -> Result<(), Problem> {
        let Some((link, end)) = self.pick_end() else {
            return Ok(());
        };
        if let Some(end) = self.ledger.end_mut(link, end) {
            end.torn = true;
        }
        self.must(end, "failing a queue pair", |run| {
            match run.queue_pair((link, end)) {
                Some(queue_pair) => queue_pair.fail(),
                None => Ok(()),
            }
        })?;
        Ok(())
    }

    pub(super) fn drain(&mut self) -> Result<(), Problem> {
        let Some((link, end)) = self.pick_end() else {
            return Ok(());
        };
        // A device in trouble does not answer within the five seconds.
        if !self.feed((link, end))? || self.is_troubled() {
            return Ok(());
        }
        let Some(held) = self.held.get_mut(&link).and_then(|ends| ends.get_mut(end)) else {
            return Ok(());
        };
        let Handle::Ready(queue_pair) = std::mem::replace(&mut held.handle, Handle::Gone) else {
            return Ok(());
        };
        queue_pair.ring();
        self.look_at_wire();
        let before = self.ledger.weather.moment();
        let result = self.call("draining a queue pair", |_| queue_pair.drain())?;
        let (handle, error) = match result {
            Ok(drained) => (Handle::Drained(drained), None),
            Err(error) => {
                let cause = error.error.clone();
                (Handle::Ready(error.into_queue_pair()), Some(cause))
            }
        };
        if let Some(held) = self.held.get_mut(&link).and_then(|ends| ends.get_mut(end)) {
            held.handle = handle;
        }
        let Some(error) = error else {
            return Ok(());
        };
        self.note(|| format!("connection {link}, side {end}: {error}"));
        self.look_at_wire();
        let weather = self.ledger.weather;
        let link = self.ledger.links.get(&link);
        // Draining does not poll: a shared receive queue of the peer is not refilled meanwhile.
        let starves = link
            .and_then(|link| link.ends.get(1 - end))
            .is_some_and(|peer| peer.fed);
        let hindered = |link: &Link| {
            link.may_have_failed(end, &weather) || link.has_lost(end, &weather, before)
        };
        if self.is_troubled_at(end) || starves || link.is_none_or(hindered) {
            return Ok(());
        }
        Err(Problem::new(
            Rule::CallRight,
            format!("draining a queue pair: {error}"),
        ))
    }

    pub(super) fn resume(&mut self) -> Result<(), Problem> {
        let drained: Vec<(u32, usize)> = self
            .held
            .iter()
            .flat_map(|(link, ends)| {
                let numbered = ends.iter().enumerate();
                let drained =
                    numbered.filter(|(_, held)| matches!(held.handle, Handle::Drained(_)));
                drained.map(|(end, _)| (*link, end))
            })
            .collect();
        match self.random.pick(&drained) {
            Some(place) => self.resume_end(place),
            None => Ok(()),
        }
    }

    pub(super) fn resume_end(&mut self, (link, end): (u32, usize)) -> Result<(), Problem> {
        let Some(held) = self.held.get_mut(&link).and_then(|ends| ends.get_mut(end)) else {
            return Ok(());
        };
        let Handle::Drained(queue_pair) = std::mem::replace(&mut held.handle, Handle::Gone) else {
            return Ok(());
        };
        let result = self.call("resuming a queue pair", |_| queue_pair.resume())?;
        let (handle, error) = match result {
            Ok(ready) => (Handle::Ready(ready), None),
            Err(error) => {
                let cause = error.error.clone();
                (Handle::Drained(error.into_queue_pair()), Some(cause))
            }
        };
        if let Some(held) = self.held.get_mut(&link).and_then(|ends| ends.get_mut(end)) {
            held.handle = handle;
        }
        let Some(error) = error else {
            return Ok(());
        };
        self.look_at_wire();
        let weather = self.ledger.weather;
        let link = self.ledger.links.get(&link);
        // A device that left a command unanswered is sent no other.
        if self.is_troubled_at(end) || link.is_none_or(|link| link.may_have_failed(end, &weather)) {
            return Ok(());
        }
        Err(Problem::new(
            Rule::CallRight,
            format!("resuming a queue pair: {error}"),
        ))
    }
}
