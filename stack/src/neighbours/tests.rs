use super::*;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const MAC: MacAddress = [2, 0, 0, 0, 0, 9];

fn peer(number: u32) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0A00_0000 + number))
}

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn answer(address: IpAddr) -> Said {
    Said {
        address,
        mac: MAC,
        how: How::Answer,
    }
}

fn is_ours(address: IpAddr) -> bool {
    address == OWN
}

#[test]
fn an_address_is_asked_for_three_times_a_second_apart_and_then_has_no_host() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (None, peer(2));
    assert_eq!(table.find(key, OWN, at(0)), Found::Pending);
    let mut sent = Vec::new();
    for ms in 0..3500 {
        if !table.due(at(ms)).is_empty() {
            sent.push(ms);
        }
    }
    assert_eq!(sent, [0, 1000, 2000]);
    let failed = Found::Failed {
        probes: 3,
        waited: Duration::from_secs(3),
    };
    assert_eq!(table.find(key, OWN, at(3500)), failed);
    // Queried again a second later.
    assert_eq!(table.find(key, OWN, at(4100)), Found::Pending);
    assert_eq!(table.due(at(4100)).len(), 1);
}

#[test]
fn an_answer_counts_for_its_lifetime_and_then_the_same_station_is_asked_first() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (Some(7), peer(2));
    table.find(key, OWN, at(0));
    table.due(at(0));
    // Of another VLAN: another neighbour.
    table.learn_from(None, &answer(peer(2)), is_ours, at(1));
    assert_eq!(table.find(key, OWN, at(2)), Found::Pending);
    table.learn_from(Some(7), &answer(peer(2)), is_ours, at(3));
    assert_eq!(table.find(key, OWN, at(29_000)), Found::Mac(MAC));
    assert_eq!(table.find(key, OWN, at(31_000)), Found::Pending);
    let asked: Vec<_> = (31_000..33_500)
        .flat_map(|ms| table.due(at(ms)))
        .map(|question| question.to)
        .collect();
    assert_eq!(asked, [Some(MAC), None, None]);
}

#[test]
fn a_host_that_claims_our_address_and_strangers_are_not_learnt() {
    let mut table = Neighbours::new(ResolveSettings::default());
    table.learn_from(None, &answer(OWN), is_ours, at(0));
    table.learn_from(None, &answer(peer(3)), is_ours, at(0));
    // Under our own address it asks for us.
    let asks = Said {
        how: How::Question { target: OWN },
        ..answer(OWN)
    };
    table.learn_from(None, &asks, is_ours, at(0));
    assert!(table.list(at(0)).is_empty());
    let question = Said {
        how: How::Question { target: OWN },
        ..answer(peer(3))
    };
    table.learn_from(None, &question, is_ours, at(0));
    assert_eq!(table.find((None, peer(3)), OWN, at(1)), Found::Mac(MAC));
}

#[test]
fn a_moved_address_is_followed_and_a_hint_moves_none() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (None, peer(2));
    table.find(key, OWN, at(0));
    table.learn_from(None, &answer(peer(2)), is_ours, at(0));
    let moved = [2, 0, 0, 0, 0, 10];
    let says = |how| Said {
        mac: moved,
        how,
        ..answer(peer(2))
    };
    table.learn_from(None, &says(How::Hint), is_ours, at(1));
    assert_eq!(table.find(key, OWN, at(2)), Found::Mac(MAC));
    table.learn_from(None, &says(How::Answer), is_ours, at(3));
    assert_eq!(table.find(key, OWN, at(4)), Found::Mac(moved));
}

/// While the known station alone is queried, its MAC address stays; once all are, any answer
/// counts.
#[test]
fn a_hint_of_another_station_does_not_take_the_place_of_the_known_one_that_is_queried() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (None, peer(2));
    table.find(key, OWN, at(0));
    table.learn_from(None, &answer(peer(2)), is_ours, at(0));
    let moved = [2, 0, 0, 0, 0, 10];
    let hint = Said {
        mac: moved,
        how: How::Hint,
        ..answer(peer(2))
    };
    assert_eq!(table.find(key, OWN, at(31_000)), Found::Pending);
    table.learn_from(None, &hint, is_ours, at(31_000));
    assert_eq!(table.due(at(31_000))[0].to, Some(MAC));
    table.learn_from(None, &hint, is_ours, at(31_500));
    assert_eq!(table.find(key, OWN, at(31_600)), Found::Pending);
    assert_eq!(table.due(at(32_000))[0].to, None);
    table.learn_from(None, &hint, is_ours, at(32_100));
    assert_eq!(table.find(key, OWN, at(32_200)), Found::Mac(moved));
}

/// A table full of neighbours, each heard of a millisecond after the one before.
fn full() -> Neighbours {
    let mut table = Neighbours::new(ResolveSettings::default());
    for number in 0..ENTRIES as u32 {
        let (address, now) = (peer(100 + number), at(number.into()));
        assert_eq!(table.find((None, address), OWN, now), Found::Pending);
        table.learn_from(None, &answer(address), is_ours, now);
    }
    table
}

#[test]
fn the_table_is_bounded_and_the_oldest_goes_first() {
    let mut table = full();
    table.learn_from(None, &answer(peer(100)), is_ours, at(5000));
    let one_more = (None, peer(2));
    assert_eq!(table.find(one_more, OWN, at(5002)), Found::Pending);
    assert_eq!(table.list(at(5002)).len(), ENTRIES);
    assert!(!table.forget((None, peer(101))), "the oldest answer");
    assert!(table.forget((None, peer(100))));
    assert!(table.forget((None, peer(102))));
}

/// A host that sends from a thousand addresses a second, which no host has, for a minute.
#[test]
fn addresses_that_no_host_has_leave_half_of_the_table_to_those_that_are_known() {
    let mut table = full();
    let mut is_full = false;
    for ms in 2000..62_000 {
        let invented = peer(10_000 + ms as u32);
        is_full |= table.find((None, invented), OWN, at(ms)) == Found::Full;
        table.due(at(ms));
    }
    assert!(is_full, "half of them at once");
    let entries = table.list(at(62_000));
    assert_eq!(entries.len(), ENTRIES);
    let is_known = |one: &&Neighbour| matches!(one.state, NeighbourState::Stale(_));
    assert_eq!(entries.iter().filter(is_known).count(), ENTRIES / 2);
    // Those are queried again as ever.
    let last = (None, peer(99 + ENTRIES as u32));
    assert_eq!(table.find(last, OWN, at(62_000)), Found::Pending);
    assert_eq!(table.due(at(62_000)).len(), 1);
}

fn question_of(address: IpAddr) -> Said {
    Said {
        how: How::Question { target: OWN },
        ..answer(address)
    }
}

/// A host that asks for the port's address from a thousand addresses, and answers to as many.
#[test]
fn strangers_take_the_place_of_strangers_and_of_no_neighbour_that_has_answered() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let neighbours = 0..10;
    for number in neighbours.clone() {
        let address = peer(100 + number);
        assert_eq!(table.find((None, address), OWN, at(0)), Found::Pending);
        table.learn_from(None, &answer(address), is_ours, at(0));
    }
    let flood = |table: &mut Neighbours, from: u32| {
        for number in from..from + 2 * ENTRIES as u32 {
            let (mut said, now) = (question_of(peer(number)), at(number.into()));
            if number % 2 == 0 {
                said.how = How::Reply { target: OWN };
            }
            table.learn_from(None, &said, is_ours, now);
        }
    };
    flood(&mut table, 10_000);
    for number in neighbours {
        let key = (None, peer(100 + number));
        assert_eq!(table.find(key, OWN, at(20_000)), Found::Mac(MAC));
        assert_eq!(table.known(None, 10)[9 - number as usize].0, key.1);
    }
    assert_eq!(table.list(at(20_000)).len(), ENTRIES);
    // One that is looked up has room, and is known once it has answered.
    let wanted = (None, peer(2));
    assert_eq!(table.find(wanted, OWN, at(20_000)), Found::Pending);
    table.learn_from(None, &answer(peer(2)), is_ours, at(20_001));
    flood(&mut table, 20_000);
    assert_eq!(table.find(wanted, OWN, at(24_000)), Found::Mac(MAC));

    let mut table = full();
    flood(&mut table, 10_000);
    assert!(
        table.lists((None, peer(100))),
        "the oldest that has answered"
    );
}

/// A stranger that is in use is asked once its time is over, and stays from then on.
#[test]
fn a_stranger_that_answers_a_query_is_a_neighbour() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (None, peer(2));
    table.learn_from(None, &question_of(peer(2)), is_ours, at(0));
    table.learn_from(None, &answer(peer(2)), is_ours, at(1));
    assert_eq!(table.find(key, OWN, at(30_000)), Found::Mac(MAC));
    assert_eq!(table.find(key, OWN, at(30_001)), Found::Pending);
    assert_eq!(table.due(at(30_001))[0].to, Some(MAC));
    table.learn_from(None, &answer(peer(2)), is_ours, at(30_002));
    for number in 10_000..10_000 + ENTRIES as u32 {
        table.learn_from(None, &question_of(peer(number)), is_ours, at(31_000));
    }
    assert_eq!(table.find(key, OWN, at(31_000)), Found::Mac(MAC));
}

/// It may come from another interface of the station, which is not the way to it.
#[test]
fn an_answer_without_a_mac_address_confirms_the_known_one() {
    let mut table = Neighbours::new(ResolveSettings::default());
    let key = (None, peer(2));
    let confirmation = Said {
        mac: [2, 0, 0, 0, 0, 8],
        how: How::Confirmation,
        ..answer(peer(2))
    };
    table.find(key, OWN, at(0));
    table.learn_from(None, &confirmation, is_ours, at(1));
    assert_eq!(table.find(key, OWN, at(2)), Found::Pending, "none is known");
    table.learn_from(None, &answer(peer(2)), is_ours, at(3));
    assert_eq!(table.find(key, OWN, at(31_000)), Found::Pending);
    table.due(at(31_000));
    table.learn_from(None, &confirmation, is_ours, at(31_001));
    assert_eq!(table.find(key, OWN, at(31_002)), Found::Mac(MAC));
}
