//! The statuses that a request may end with.

use super::requests::{Link, Request};
use super::weather::Weather;
use ringside_pmd::rdma::{Operation, Status};
use std::time::Duration;

/// The time that a requester waits for an answer. A request without an answer ends after its last
/// retry has waited as long; only one of the retries can be earlier, because an answer reported a
/// gap.
/// Source: `docs/hardware.md`, the least retransmission timeout.
const RETRANSMISSION: Duration = Duration::from_nanos(4096 << 14);

/// Returns the objection to a status of a request of end `end`; `None` if the status is permitted.
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
        Status::Success if link.end(end).sends_failed => {
            Some("one before it failed, and so did its queue pair")
        }
        Status::Success => None,
        status if request.wrong.contains(&status) => None,
        Status::RemoteAccess if request.key_dies => None,
        Status::LocalProtection | Status::WindowBind if request.key_dies && is_own_key(request) => {
            None
        }
        Status::Flushed if link.may_have_failed(end, weather) => None,
        Status::Flushed => Some("its queue pair has no reason to fail"),
        Status::RetryExceeded if !has_waited(request, link, end, weather) => {
            Some("there was not enough time for its retries")
        }
        Status::RetryExceeded if link.may_be_silent(end, weather, request.posted) => None,
        Status::RetryExceeded => Some("the peer responds, and too few frames were lost"),
        Status::ReceiverNotReady if link.may_lack_receives(end, request) => None,
        Status::ReceiverNotReady => Some("the peer had receives posted"),
        Status::RemoteAccess | Status::RemoteOperation | Status::RemoteInvalidRequest
            if weather.harm_at(1 - end).is_any() =>
        {
            None
        }
        _ if weather.harm_at(end).may_mislead() => None,
        _ => Some("no request or fault explains it"),
    }
}

/// True if a key that a request names is one of its own side.
const fn is_own_key(request: &Request) -> bool {
    matches!(
        request.operation,
        Operation::FastRegister
            | Operation::LocalInvalidate
            | Operation::BindWindow
            | Operation::Read
    )
}

/// True if there was time for all retries since the request was posted.
fn has_waited(request: &Request, link: &Link, end: usize, weather: &Weather) -> bool {
    let retries = link.ends.get(end).map_or(0, |end| end.retries);
    weather.now.since(request.posted.at) >= RETRANSMISSION * retries.into()
}

#[cfg(test)]
mod tests;
