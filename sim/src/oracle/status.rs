//! Which statuses a request may end with.

use super::ledger::{Link, Request};
use ringside_pmd::rdma::{Operation, Status};

/// What went wrong in the whole run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Frames that were lost, damaged or held back.
    pub(crate) losses: u64,
    /// A function failed, or its link was down, at some time.
    pub(crate) trouble: [bool; 2],
}

impl Weather {
    fn is_troubled(&self) -> bool {
        self.trouble.contains(&true)
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
        Status::RetryExceeded if link.may_be_silent(end, weather) => None,
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
        && weather.losses > 0
        && behind.skip(1).any(|later| later.wrong.contains(&status))
}
