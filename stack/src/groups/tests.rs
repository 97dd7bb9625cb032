//! The times of reports.

use super::*;
use crate::MacAddress;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAC: MacAddress = [2, 0, 0, 0, 0, 9];
const BEGIN: Instant = Instant(1_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn group(text: &str, vlan: Option<u16>) -> Group {
    (text.parse().unwrap(), vlan)
}

fn groups(own: &[Group]) -> Groups {
    let mut groups = Groups::new(7);
    groups.set_own(own.iter().copied().collect());
    groups
}

fn set(groups: &mut Groups, own: &[Group], now: Instant) -> Option<Changes> {
    groups.set_own(own.iter().copied().collect());
    groups.changes(now)
}

fn due(groups: &mut Groups, now: Instant) -> Vec<(Group, Membership)> {
    let all = std::iter::from_fn(|| groups.due(now));
    all.map(|due| (due.group, due.membership)).collect()
}

fn before(now: Instant) -> Instant {
    Instant(now.0 - 1)
}

/// A query of IGMP for all groups, of version 2 with this many tenths of a second, or of version 1
/// with none.
fn query_v4(tenths: u8) -> Vec<u8> {
    let member = (Ipv4Addr::UNSPECIFIED, false);
    let own = Ipv4Addr::new(192, 0, 2, 254);
    // A departure has the form of a query, and another type.
    let mut frame = igmp::report(MAC, own, Membership::Leaves, member).unwrap();
    frame[38..40].copy_from_slice(&[0x11, tenths]);
    frame[40..42].copy_from_slice(&(!(0x1100 | u16::from(tenths))).to_be_bytes());
    frame
}

#[test]
fn a_joined_group_is_reported_twice_then_each_minute_and_when_it_is_left() {
    let (first, second) = (group("239.1.1.1", None), group("ff05::7", Some(9)));
    let mut groups = groups(&[first, second]);
    let changes = groups.changes(BEGIN).unwrap();
    assert_eq!((changes.joined.len(), changes.closed.len()), (2, 0));
    assert_eq!(groups.changes(BEGIN), None, "no other groups");
    groups.opened(first);
    let both = |membership| [(first, membership), (second, membership)];
    assert_eq!(due(&mut groups, BEGIN), both(Membership::Joins));
    let again = BEGIN.plus(INTERVAL);
    assert_eq!(due(&mut groups, before(again)), []);
    assert_eq!(due(&mut groups, again), both(Membership::Joins));
    let later = again.plus(PERIOD);
    assert_eq!(due(&mut groups, before(later)), []);
    assert_eq!(due(&mut groups, later), both(Membership::Member));

    // The departure of IPv6 is repeated.
    let changes = set(&mut groups, &[], later).unwrap();
    assert_eq!((changes.joined, changes.closed), (vec![], vec![first]));
    assert_eq!(due(&mut groups, later), both(Membership::Leaves));
    let again = later.plus(INTERVAL);
    assert_eq!(due(&mut groups, before(again)), []);
    assert_eq!(due(&mut groups, again), [(second, Membership::Leaves)]);
    assert_eq!(due(&mut groups, again.plus(PERIOD)), []);
}

#[test]
fn a_group_that_is_joined_again_is_left_no_more() {
    let one = group("ff05::7", None);
    let mut groups = groups(&[one]);
    groups.changes(BEGIN);
    due(&mut groups, BEGIN);
    set(&mut groups, &[], BEGIN);
    assert_eq!(due(&mut groups, BEGIN), [(one, Membership::Leaves)]);
    set(&mut groups, &[one], BEGIN);
    let joins = [(one, Membership::Joins)];
    assert_eq!(due(&mut groups, BEGIN), joins);
    assert_eq!(due(&mut groups, BEGIN.plus(INTERVAL)), joins);
    groups.report_again(BEGIN.plus(SECOND * 9));
    assert_eq!(due(&mut groups, BEGIN.plus(SECOND * 9)), joins);
    assert_eq!(due(&mut groups, BEGIN.plus(SECOND * 10)), joins);
}

#[test]
fn a_stack_that_ends_leaves_each_group_of_rdma_once_and_for_ever() {
    let all = [group("239.1.1.1", None), group("ff05::7", Some(9))];
    let own = group("ff02::1:ff00:1", None);
    let mut groups = groups(&[own]);
    groups.listed = all.to_vec();
    groups.changes(BEGIN);
    groups.listed = all[..1].to_vec();
    groups.update(BEGIN);
    assert!(groups.leave_all(BEGIN));
    let left = all.map(|one| (one, Membership::Leaves));
    assert_eq!(due(&mut groups, BEGIN), left);
    assert!(groups.leave_all(BEGIN));
    assert_eq!(set(&mut groups, &all, BEGIN), None);
    groups.hear(&query_v4(1), None, BEGIN);
    groups.report_again(BEGIN);
    assert_eq!(due(&mut groups, BEGIN.plus(PERIOD + PERIOD)), []);

    let mut without = self::groups(&[own]);
    without.changes(BEGIN);
    assert!(!without.leave_all(BEGIN));
    assert_eq!(due(&mut without, BEGIN), []);
}

/// Thirty groups whose first reports are over, at the time that is returned.
fn settled() -> (Groups, Instant) {
    let all: Vec<Group> = (1..=30)
        .map(|last| (IpAddr::from([239, 1, 1, last]), None))
        .collect();
    let mut groups = groups(&all);
    let later = BEGIN.plus(INTERVAL);
    groups.changes(BEGIN);
    assert_eq!(due(&mut groups, BEGIN).len(), 30);
    assert_eq!(due(&mut groups, later).len(), 30);
    (groups, later.plus(SECOND * 5))
}

#[test]
fn the_answers_to_a_query_are_spread_over_three_quarters_of_its_time() {
    let (mut groups, now) = settled();
    groups.hear(&query_v4(100), None, now);
    let counts: Vec<usize> = (0..=10)
        .map(|step| due(&mut groups, now.plus(step * SECOND * 3 / 4)).len())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 30, "{counts:?}");
    assert!(counts.iter().all(|count| *count < 15), "{counts:?}");
    // A query of a VLAN asks for that VLAN alone.
    groups.hear(&query_v4(100), Some(5), now.plus(SECOND * 20));
    assert_eq!(due(&mut groups, now.plus(SECOND * 30)), []);
}

/// A host that asks without end, for an answer in a tenth of a second.
#[test]
fn queries_have_an_answer_for_each_group_in_their_time_and_at_most_ten_in_a_second() {
    let (mut groups, begin) = settled();
    let mut count = 0;
    for step in 0..1000 {
        let now = begin.plus(step * SECOND / 1000);
        groups.hear(&query_v4(1), None, now);
        count += due(&mut groups, now).len();
    }
    assert!((30..=300).contains(&count), "{count} reports");
}

#[test]
fn a_router_of_version_1_gets_reports_of_version_1_until_it_is_silent() {
    let four = group("239.1.1.1", None);
    let other = group("239.1.1.1", Some(5));
    let six = group("ff05::7", None);
    let mut groups = groups(&[four, other, six]);
    groups.changes(BEGIN);
    groups.hear(&query_v4(0), None, BEGIN);
    let mut first_version = |now| -> Vec<bool> {
        groups.report_again(now);
        let all = std::iter::from_fn(|| groups.due(now));
        all.map(|due| due.is_of_first_version).collect()
    };
    let until = BEGIN.plus(FIRST_VERSION_V4);
    assert_eq!(first_version(BEGIN), [true, false, false]);
    assert_eq!(first_version(before(until)), [true, false, false]);
    assert_eq!(first_version(until), [false; 3]);
    groups.hear(&query_v6(), None, until);
    let until = until.plus(FIRST_VERSION_V6);
    groups.report_again(before(until));
    let all: Vec<Due> = std::iter::from_fn(|| groups.due(before(until))).collect();
    assert_eq!((all[2].group, all[2].is_of_first_version), (six, true));
    groups.report_again(until);
    assert!(std::iter::from_fn(|| groups.due(until)).all(|due| !due.is_of_first_version));
}

/// A query of multicast listener discovery, version 1, for all groups.
fn query_v6() -> Vec<u8> {
    let own = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0x99);
    let message = (Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1), true);
    let mut frame = reports::report(MAC, own, Membership::Member, message).unwrap();
    frame[62] = 130;
    frame[70..].fill(0);
    let mut query = smoltcp::wire::Icmpv6Packet::new_unchecked(&mut frame[62..]);
    query.fill_checksum(&own, &message.0);
    frame
}

#[test]
fn groups_of_all_stations_and_of_the_station_itself_are_not_reported() {
    for (text, expected) in [
        ("224.0.0.1", false),
        ("224.0.0.251", true),
        ("239.1.1.1", true),
        ("ff02::1", false),
        ("ff01::5", false),
        ("ff10::5", false),
        ("ff02::5", true),
        ("ff15::5", true),
    ] {
        assert_eq!(is_reported(text.parse().unwrap()), expected, "{text}");
    }
}
