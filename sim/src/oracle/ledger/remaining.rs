//! Requests that have not completed, and those that are no longer expected to.

use super::{FormerRings, Ledger, Link};
use crate::memory::Claim;
use crate::rule::Problem;

impl Ledger {
    /// Describes an outstanding request of a side, of connections, datagrams or the pool; `None` if
    /// there is none.
    pub(crate) fn outstanding_at(&self, side: usize) -> Option<String> {
        for (number, link) in &self.links {
            let Some(end) = link.ends.get(side) else {
                continue;
            };
            if let Some(request) = end.sends.iter().find(|request| request.signalled) {
                return Some(format!(
                    "request {} of connection {number} has not completed",
                    request.id
                ));
            }
            if let Some(receive) = end.receives.front() {
                return Some(format!(
                    "receive {} of connection {number} has not completed",
                    receive.id
                ));
            }
        }
        if let Some(Some(end)) = self.datagrams.get(side) {
            if let Some(request) = end.sends.iter().find(|request| request.signalled) {
                return Some(format!("datagram {} has not completed", request.id));
            }
            if let Some(receive) = end.receives.front() {
                return Some(format!("datagram receive {} has not completed", receive.id));
            }
        }
        if self.pool_is_lost.get(side) == Some(&true) {
            return None;
        }
        let pooled = self.pools.get(side).and_then(|pool| pool.keys().next());
        pooled.map(|id| format!("shared receive {id} has not completed"))
    }

    /// Some of the receives of a shared queue were lost with a queue pair.
    pub(crate) fn lose_pool(&mut self, side: usize) {
        if let Some(lost) = self.pool_is_lost.get_mut(side) {
            *lost = true;
        }
    }

    /// The device of the claim's side may write there until it is contained.
    pub(in crate::oracle) fn keep(&mut self, claim: Claim) -> Result<(), Problem> {
        if self.contained.get(claim.side) == Some(&true) {
            return self.memory.unknown(claim, "its device is contained");
        }
        if let Some(kept) = self.kept.get_mut(claim.side) {
            kept.push(claim);
        }
        Ok(())
    }

    /// A completion queue of a side got a new ring: what is in the old one is delivered later.
    pub(crate) fn ring_replaced(&mut self, side: usize) {
        if let Some(former) = self.former.get_mut(side) {
            former.may_wait = true;
        }
    }

    /// The completion queues of a side were polled until they were empty.
    pub(crate) fn queues_empty(&mut self, side: usize) {
        if let Some(former) = self.former.get_mut(side) {
            *former = FormerRings::default();
        }
    }

    /// True if a completion of this destroyed queue pair may still be delivered.
    pub(super) fn is_late(&self, side: usize, queue_pair: u32) -> bool {
        let former = self.former.get(side);
        former.is_some_and(|former| former.destroyed.contains(&queue_pair))
    }

    /// The device of a side has failed and is contained: it no longer writes.
    pub(crate) fn contained(&mut self, side: usize) -> Result<(), Problem> {
        if let Some(contained) = self.contained.get_mut(side) {
            *contained = true;
        }
        let kept = self.kept.get_mut(side).map(std::mem::take);
        for claim in kept.unwrap_or_default() {
            self.memory.unknown(claim, "its device is contained")?;
        }
        Ok(())
    }

    /// The device of a side is in service again.
    pub(crate) fn recovered(&mut self, side: usize) {
        if let Some(contained) = self.contained.get_mut(side) {
            *contained = false;
        }
    }

    /// The shared receive queue of a side is destroyed.
    pub(crate) fn forget_pool(&mut self, side: usize) {
        if let Some(lost) = self.pool_is_lost.get_mut(side) {
            *lost = false;
        }
        let pool = self.pools.get_mut(side).map(std::mem::take);
        for receive in pool.unwrap_or_default().into_values() {
            self.over(receive.id);
            self.memory.adopt(receive.claim, receive.length);
        }
    }

    /// The connections whose last request of an end is not signalled, with that end.
    pub(crate) fn ends_with_unsignalled(&self) -> Vec<(u32, usize)> {
        let ends = self.links.iter().flat_map(|(number, link)| {
            let ends = link.ends.iter().enumerate();
            let open = ends.filter(|(_, end)| {
                let last = end.sends.back();
                !end.torn && last.is_some_and(|request| !request.signalled)
            });
            open.map(|(end, _)| (*number, end))
        });
        ends.collect()
    }

    /// True if a queue pair of a side has failed, or may fail.
    pub(crate) fn has_failed_end(&self, side: usize) -> bool {
        let failed = |link: &Link| link.may_have_failed(side, &self.weather);
        self.links.values().any(failed)
    }

    /// Describes a result that is missing on a connection of which neither end has failed; `None`
    /// if there is none.
    pub(crate) fn awaited(&self) -> Option<String> {
        for (number, link) in &self.links {
            for (side, end) in link.ends.iter().enumerate() {
                // Behind one that failed all complete, as flushed.
                let mut sends = end.sends.iter();
                let first = sends.find(|request| request.signalled || end.sends_failed);
                if let Some(request) = first {
                    return Some(format!(
                        "request {} ({:?}) of connection {number}, side {side}, has not completed",
                        request.id, request.operation
                    ));
                }
                if end.torn
                    && let Some(receive) = end.receives.front()
                {
                    return Some(format!(
                        "receive {} of connection {number}, side {side}, has not completed, though its queue pair has failed",
                        receive.id
                    ));
                }
                let whole = !link.ends.iter().any(|end| end.torn);
                if let Some(message) = end.under_way.front().filter(|_| whole) {
                    return Some(format!(
                        "the message of request {} of connection {number}, side {side}, was not received",
                        message.id
                    ));
                }
            }
        }
        None
    }
}
