//! What excuses a failure, and what does not.

use super::*;
use crate::oracle::End;

fn request(losses_before: u64) -> Request {
    Request {
        id: 1,
        signalled: true,
        operation: Operation::Write,
        wrong: &[],
        claims: Vec::new(),
        receives_needed: None,
        losses_before,
    }
}

fn link() -> Link {
    let ends = [7, 8].map(|number| End::new(number, (2, 7), false));
    Link::new(ends, 10)
}

fn lost(losses: u64) -> Weather {
    Weather {
        losses,
        ..Weather::default()
    }
}

#[test]
fn frames_lost_before_a_request_do_not_excuse_it() {
    let judge = |losses, before| {
        let status = Status::RetryExceeded;
        objection(status, &request(before), &link(), 0, &lost(losses)).is_none()
    };
    assert!(judge(23, 20), "three losses use up two retries");
    assert!(!judge(22, 20));
    assert!(!judge(22, 21), "though the connection has seen twelve");
    assert!(judge(LOST_UNCOUNTED, 20), "a link was down");
}

#[test]
fn frames_lost_before_a_connection_do_not_disturb_it() {
    assert!(!link().is_disturbed(&lost(12)));
    assert!(link().is_disturbed(&lost(13)));
    assert!(!link().has_lost(&lost(10)));
    assert!(link().has_lost(&lost(11)));
}

#[test]
fn only_a_device_in_trouble_excuses_other_statuses() {
    let status = Status::RemoteAccess;
    let judge = |weather| objection(status, &request(0), &link(), 0, &weather).is_none();
    assert!(!judge(lost(LOST_UNCOUNTED)));
    let trouble = [false, true];
    assert!(judge(Weather { trouble, ..lost(0) }));
}
