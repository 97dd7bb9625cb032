//! The events that an armed queue must give, and may give.

use super::*;

const PLAIN: Taken = Taken {
    any: true,
    notable: false,
    of_device: true,
    notable_of_device: false,
};

const SOLICITED: Taken = Taken {
    notable: true,
    notable_of_device: true,
    ..PLAIN
};

const FLUSHED: Taken = Taken {
    any: true,
    notable: true,
    of_device: false,
    notable_of_device: false,
};

fn armed(notify: Notify) -> Arming {
    let mut queue = Arming::default();
    queue.request(notify, 0);
    queue.was_empty(notify);
    queue
}

#[test]
fn an_event_is_due_for_completions_of_the_kind_that_was_asked_for() {
    for (taken, next, solicited) in [
        (PLAIN, true, false),
        (SOLICITED, true, true),
        (FLUSHED, false, false),
        (Taken::default(), false, false),
    ] {
        assert_eq!(armed(Notify::Next).polled(taken), next, "{taken:?}");
        assert_eq!(
            armed(Notify::Solicited).polled(taken),
            solicited,
            "{taken:?}"
        );
    }
}

#[test]
fn a_queue_that_was_not_armed_gives_no_event_and_one_request_gives_one() {
    assert!(Arming::default().told().is_some());
    let mut queue = armed(Notify::Next);
    queue.polled(PLAIN);
    assert_eq!(queue.told(), None);
    assert!(queue.told().is_some());
}

#[test]
fn an_event_needs_a_completion_of_its_kind() {
    for (notify, taken, good) in [
        (Notify::Next, PLAIN, true),
        (Notify::Next, Taken::default(), false),
        (Notify::Solicited, PLAIN, false),
        (Notify::Solicited, SOLICITED, true),
        (Notify::Solicited, FLUSHED, true),
    ] {
        // The event comes before the poll, or behind it.
        let mut before = armed(notify);
        assert_eq!(before.told(), None);
        before.polled(taken);
        assert_eq!(
            before.was_emptied(0).is_none(),
            good,
            "{notify:?} {taken:?}"
        );
        let mut behind = armed(notify);
        behind.polled(taken);
        assert_eq!(behind.told(), None);
        assert_eq!(
            behind.was_emptied(0).is_none(),
            good,
            "{notify:?} {taken:?}"
        );
        // It may have been that of a queue pair that was destroyed.
        let mut dropped = armed(notify);
        assert_eq!(dropped.told(), None);
        assert_eq!(dropped.was_emptied(1), None);
    }
}

#[test]
fn a_request_that_waits_serves_a_narrower_one() {
    let mut queue = armed(Notify::Next);
    queue.request(Notify::Solicited, 0);
    queue.was_empty(Notify::Solicited);
    assert!(queue.polled(PLAIN));
    assert_eq!(queue.told(), None);
    // A completion behind the request may be of before: no event is due, and one may come.
    let mut unsure = Arming::default();
    unsure.request(Notify::Next, 0);
    unsure.was_not_empty();
    assert!(!unsure.polled(PLAIN));
    assert_eq!(unsure.told(), None);
}

#[test]
fn a_resized_queue_may_give_an_event_more() {
    let mut queue = armed(Notify::Next);
    queue.resized();
    queue.polled(PLAIN);
    assert_eq!(queue.told(), None);
    assert_eq!(queue.told(), None);
    assert!(queue.told().is_some());
    Arming::default().resized();
}
