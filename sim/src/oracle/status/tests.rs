//! The faults that permit a failure.

use super::*;
use crate::oracle::{End, Harm, Moment};
use ringside_bus::Instant;
use ringside_pmd::rdma::Operation;

/// Long enough for every retry.
const LATE: Instant = Instant(10_000_000_000);

fn request(posted: Moment) -> Request {
    Request {
        id: 1,
        signalled: true,
        operation: Operation::Write,
        wrong: &[],
        key_dies: false,
        claims: Vec::new(),
        receives_needed: None,
        posted,
    }
}

fn link() -> Link {
    Link::new([7, 8].map(|number| End::new(number, (2, 7), false)))
}

/// A connection whose first end waits for an answer.
fn waiting(posted: Moment) -> Link {
    let mut link = link();
    link.ends[0].sends.push_back(request(posted));
    link
}

fn lost(losses: u64) -> Weather {
    Weather {
        now: LATE,
        losses,
        ..Weather::default()
    }
}

fn harmed(side: usize, harm: Harm) -> Weather {
    let mut weather = lost(0);
    weather.harm[side] = harm;
    weather.trouble[side] = true;
    weather
}

const STOPPED: Harm = Harm {
    stops: true,
    lacks_memory: false,
    given_up: false,
};

const GIVEN_UP: Harm = Harm {
    stops: false,
    lacks_memory: false,
    given_up: true,
};

fn allows(status: Status, posted: Moment, weather: &Weather) -> bool {
    objection(status, &request(posted), &waiting(posted), 0, weather).is_none()
}

#[test]
fn frames_lost_before_a_request_do_not_excuse_it() {
    let judge = |losses, before| {
        let posted = lost(before).moment();
        let posted = Moment {
            at: Instant(0),
            ..posted
        };
        allows(Status::RetryExceeded, posted, &lost(losses))
    };
    assert!(judge(23, 20), "three losses use up two retries");
    assert!(!judge(22, 20));
    assert!(!judge(22, 21), "though the connection has seen twelve");
}

#[test]
fn a_link_that_was_down_excuses_requests_that_waited_then_and_none_later() {
    let before = Moment::default();
    let mut weather = lost(0);
    assert!(!allows(Status::RetryExceeded, before, &weather));
    weather.outages = 1;
    weather.link_down[1] = true;
    assert!(allows(Status::RetryExceeded, before, &weather));
    let during = Moment {
        at: Instant(0),
        ..weather.moment()
    };
    weather.outages = 2;
    weather.link_down[1] = false;
    assert!(allows(Status::RetryExceeded, during, &weather));
    let after = Moment {
        at: Instant(0),
        ..weather.moment()
    };
    assert!(!allows(Status::RetryExceeded, after, &weather));
    assert!(!allows(Status::Flushed, after, &weather));
}

/// Each retry of a request takes a time-out, except for one that an answer may have started. A
/// requester that counts a time-out and a late answer twice gives up too soon.
#[test]
fn retries_that_are_used_up_too_soon_are_found() {
    let retries = 2;
    let whole = RETRANSMISSION * retries;
    let posted = Moment::default();
    for (waited, allowed) in [(whole, true), (whole - Duration::from_nanos(1), false)] {
        let weather = Weather {
            now: Instant(0).plus(waited),
            ..lost(100)
        };
        assert_eq!(allows(Status::RetryExceeded, posted, &weather), allowed);
    }
}

#[test]
fn flushed_needs_a_reason_on_its_own_end() {
    let posted = lost(10).moment();
    assert!(!allows(Status::Flushed, posted, &lost(12)));
    assert!(allows(Status::Flushed, posted, &lost(13)), "three losses");
    // The queue pair waits for no answer: losses fail nothing.
    let judge = |link: &Link| objection(Status::Flushed, &request(posted), link, 0, &lost(99));
    assert!(judge(&link()).is_some());
    // The other end is destroyed: that fails only requests that wait for it.
    let mut torn = link();
    torn.ends[1].torn = true;
    assert!(judge(&torn).is_some());
    torn.ends[0].torn = true;
    assert!(judge(&torn).is_none());
}

#[test]
fn only_harm_excuses_other_statuses_and_only_where_it_is() {
    let now = Moment::default();
    let commands_only = harmed(1, Harm::default());
    for status in [
        Status::RemoteAccess,
        Status::LocalProtection,
        Status::Flushed,
        Status::RetryExceeded,
    ] {
        assert!(!allows(status, now, &commands_only), "{status:?}");
    }
    assert!(allows(Status::RemoteAccess, now, &harmed(1, STOPPED)));
    assert!(!allows(Status::LocalProtection, now, &harmed(1, STOPPED)));
    assert!(allows(Status::LocalProtection, now, &harmed(0, STOPPED)));
    assert!(!allows(Status::RemoteAccess, now, &lost(u64::MAX)));
}

/// A refusal belongs to the wrong request, not to an earlier read.
#[test]
fn a_read_is_not_blamed_for_a_later_refusal() {
    let mut link = waiting(Moment::default());
    let mut later = request(Moment::default());
    later.wrong = &[Status::RemoteAccess];
    link.ends[0].sends.push_back(later);
    link.wrong = [true; 2];
    let mut read = request(Moment::default());
    read.operation = Operation::Read;
    let judge = |status| objection(status, &read, &link, 0, &lost(50));
    assert!(judge(Status::RemoteAccess).is_some());
    assert!(judge(Status::RetryExceeded).is_none());
}

/// A mistake in a request's own memory fails its end alone; the other one loses its answers.
#[test]
fn a_mistake_of_one_end_does_not_excuse_a_flush_of_the_other() {
    let mut link = link();
    link.wrong = [true, false];
    let posted = Moment::default();
    let judge = |end| objection(Status::Flushed, &request(posted), &link, end, &lost(0));
    assert!(judge(0).is_none());
    assert!(judge(1).is_some());
    link.ends[1].sends.push_back(request(posted));
    let judge = |status| objection(status, &request(posted), &link, 1, &lost(0));
    assert!(judge(Status::Flushed).is_none());
    assert!(judge(Status::RetryExceeded).is_none());
}

#[test]
fn a_device_that_was_declared_failed_flushes_and_reports_no_mistake() {
    let posted = Moment::default();
    assert!(allows(Status::Flushed, posted, &harmed(0, GIVEN_UP)));
    for status in [Status::LocalProtection, Status::WindowBind] {
        assert!(!allows(status, posted, &harmed(0, GIVEN_UP)));
        assert!(allows(status, posted, &harmed(0, STOPPED)));
    }
    assert!(GIVEN_UP.explains(Status::Flushed));
    assert!(!GIVEN_UP.explains(Status::LocalProtection));
}

/// The memory that a write names is deregistered while the write waits for an answer.
#[test]
fn a_request_whose_key_dies_may_be_refused_and_may_succeed() {
    let mut dying = request(Moment::default());
    let judge = |status, request: &Request| objection(status, request, &link(), 0, &lost(0));
    assert!(judge(Status::RemoteAccess, &dying).is_some());
    dying.key_dies = true;
    assert!(judge(Status::RemoteAccess, &dying).is_none());
    assert!(judge(Status::Success, &dying).is_none());
    assert!(judge(Status::LocalProtection, &dying).is_some());
    dying.operation = Operation::FastRegister;
    assert!(judge(Status::LocalProtection, &dying).is_none());
    dying.key_dies = false;
    assert!(judge(Status::LocalProtection, &dying).is_some());
}
