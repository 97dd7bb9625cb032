//! Which statuses a request may end with.

use super::ledger::{Link, Request};
use ringside_pmd::rdma::{Operation, Status};

/// So many losses stand for any number: a link that is down and a clock that jumps lose frames that
/// nobody counts.
pub(crate) const LOST_UNCOUNTED: u64 = u32::MAX as u64;

/// What went wrong in the whole run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Frames that were lost, damaged or held back.
    pub(crate) losses: u64,
    /// Frames that arrived twice.
    pub(crate) copies: u64,
    /// A function failed, or its link was down, at some time.
    pub(crate) trouble: [bool; 2],
}

impl Weather {
    fn is_troubled(&self) -> bool {
        self.trouble.contains(&true)
    }

    /// Whether the device of a side is in trouble.
    pub(crate) fn is_troubled_at(&self, side: usize) -> bool {
        self.trouble.get(side) == Some(&true)
    }

    /// Frames that were lost since there had been so many; any number once frames were lost that
    /// nobody counts.
    pub(crate) const fn lost_since(&self, before: u64) -> u64 {
        if self.losses >= LOST_UNCOUNTED {
            u64::MAX
        } else {
            self.losses.saturating_sub(before)
        }
    }
}

/// What is wrong with a status of a request of end `end`; nothing if it may be.
pub(super) fn objection(
    status: Status,
    request: &Request,
    link: &Link,
    end: usize,
    weather: &Weather,
) -> Option<&'static str> {
    let is_wrong = !request.wrong.is_empty();
    match status {
        Status::Success if is_wrong => Some("the request was wrong and must be refused"),
        Status::Success => None,
        status if request.wrong.contains(&status) => None,
        // The refusal of a later one came before the data of this one, which was lost.
        status if is_blamed(status, request, link, end, weather) => None,
        Status::Flushed if link.is_disturbed(weather) => None,
        Status::Flushed => Some("nothing has disturbed the connection"),
        Status::RetryExceeded if link.may_be_silent(end, weather, request.losses_before) => None,
        Status::RetryExceeded => Some("the peer is there, and too few frames were lost"),
        Status::ReceiverNotReady if link.may_lack_receives(end, request) => None,
        Status::ReceiverNotReady => Some("the peer had receives posted"),
        _ if weather.is_troubled() => None,
        _ => Some("nothing that was asked or went wrong leads to it"),
    }
}

/// A read without its data, ahead of a wrong request that the peer has refused: a refusal says that
/// all before it has arrived there, and nothing of what was read.
fn is_blamed(
    status: Status,
    request: &Request,
    link: &Link,
    end: usize,
    weather: &Weather,
) -> bool {
    let end = link.ends.get(end);
    let behind = end
        .iter()
        .flat_map(|end| &end.sends)
        .skip_while(|one| one.id != request.id);
    request.operation == Operation::Read
        && weather.lost_since(request.losses_before) > 0
        && behind.skip(1).any(|later| later.wrong.contains(&status))
}

#[cfg(test)]
mod tests;
