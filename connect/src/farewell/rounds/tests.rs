use super::*;
use ringside_cm::Gid;
use ringside_cm::mad::MAD_BYTES;
use ringside_cm::message::DisconnectRequest;

const MILLISECOND: Duration = Duration::from_millis(1);

fn message(payload: [u8; MAD_BYTES]) -> OutgoingMad {
    OutgoingMad {
        source: Gid([1; 16]),
        vlan: None,
        destination: Gid([2; 16]),
        traffic_class: 0,
        payload: Box::new(payload),
    }
}

/// DREQ of a connection.
fn request(id: u32) -> OutgoingMad {
    let mad = Mad {
        transaction_id: 7,
        attribute_modifier: 0,
        message: Message::Disconnect(DisconnectRequest {
            local_comm_id: id,
            remote_comm_id: 100_000 + id,
            remote_qpn: 9,
            private_data: [0; 220],
        }),
    };
    message(mad.encode())
}

/// The connections of messages.
fn ids(messages: &[OutgoingMad]) -> Vec<u32> {
    let id = |one: &OutgoingMad| match Mad::decode(one.payload.as_slice()).map(|mad| mad.message) {
        Ok(Message::Disconnect(request)) => request.local_comm_id,
        _ => panic!("another message"),
    };
    messages.iter().map(id).collect()
}

/// A time after the begin.
fn at(begin: Instant, milliseconds: u32) -> Instant {
    begin + milliseconds * MILLISECOND
}

#[test]
fn a_message_without_an_answer_is_repeated_after_50_and_100_ms() {
    let begin = Instant::now();
    let mut rounds = Rounds::new(begin, [request(1), request(2)]);
    let mut sent = Vec::new();
    for milliseconds in 0..400 {
        let now = at(begin, milliseconds);
        for id in ids(&rounds.due(now, usize::MAX)) {
            sent.push((milliseconds, id));
        }
        if milliseconds == 60 {
            rounds.confirm(now, 1);
            rounds.confirm(now, 3);
        }
        assert!(!rounds.is_late(now), "{milliseconds}");
        assert_eq!(rounds.is_over(), milliseconds >= 350, "{milliseconds}");
    }
    let expected = [(0, 1), (0, 2), (50, 1), (50, 2), (150, 2)];
    assert_eq!(sent, expected);
    assert_eq!(rounds.left(), 1);
}

#[test]
fn at_most_128_messages_wait_for_an_answer_at_a_time() {
    const ALL: u32 = 1000;
    let begin = Instant::now();
    let mut rounds = Rounds::new(begin, (0..ALL).map(request));
    let first = ids(&rounds.due(begin, usize::MAX));
    assert_eq!(first, (0..128).collect::<Vec<u32>>());
    assert_eq!(rounds.due(at(begin, 49), usize::MAX).len(), 0, "no answer");
    for id in 10..20 {
        rounds.confirm(at(begin, 49), id);
    }
    let next = ids(&rounds.due(at(begin, 49), usize::MAX));
    assert_eq!(next, (128..138).collect::<Vec<u32>>());
    // The peers that have heard nothing go before those that have not answered.
    let next = ids(&rounds.due(at(begin, 50), usize::MAX));
    assert_eq!(next, (138..256).collect::<Vec<u32>>());
    // An answer that comes after its time counts.
    rounds.confirm(at(begin, 51), 0);
    let mut now = at(begin, 51);
    while !rounds.is_over() {
        let due = rounds.due(now, usize::MAX);
        assert!(due.len() <= 128, "{}", due.len());
        for id in ids(&due) {
            assert_ne!(id, 0, "it was answered");
        }
        for id in 0..ALL {
            rounds.confirm(now, id);
        }
        now += MILLISECOND;
    }
    assert_eq!(rounds.left(), 0);
    assert!(!rounds.is_late(now));
}

/// Peers of which none answers hear of the end once, most of them twice; the time is limited.
#[test]
fn the_time_counts_from_the_last_progress() {
    const ALL: u32 = 4000;
    let begin = Instant::now();
    let mut rounds = Rounds::new(begin, (0..ALL).map(request));
    let mut heard = vec![0; ALL as usize];
    let mut milliseconds = 0;
    let mut last = 0;
    while !rounds.is_late(at(begin, milliseconds)) {
        for id in ids(&rounds.due(at(begin, milliseconds), usize::MAX)) {
            heard[id as usize] += 1;
            last = match heard[id as usize] {
                1 => milliseconds,
                _ => last,
            };
        }
        milliseconds += 1;
    }
    assert!(heard.iter().all(|times| *times > 0), "{heard:?}");
    assert_eq!(milliseconds, last + 1000);
    assert_eq!(rounds.left(), ALL as usize);
}

#[test]
fn the_time_has_an_end_though_answers_come() {
    const ALL: u32 = 4000;
    let begin = Instant::now();
    let mut rounds = Rounds::new(begin, (0..ALL).map(request));
    let mut milliseconds = 0;
    while !rounds.is_late(at(begin, milliseconds)) {
        let now = at(begin, milliseconds);
        rounds.due(now, usize::MAX);
        if milliseconds % 500 == 499 {
            rounds.confirm(now, ALL - 1 - milliseconds / 500);
        }
        milliseconds += 1;
        assert!(milliseconds <= 5000, "no end");
    }
    assert_eq!(milliseconds, 5000);
}

#[test]
fn messages_without_an_answer_leave_once_and_are_not_waited_for() {
    let begin = Instant::now();
    let all = (0..130).map(|_| message([7; MAD_BYTES]));
    let mut rounds = Rounds::new(begin, all);
    assert_eq!(rounds.due(begin, usize::MAX).len(), 128);
    assert_eq!(
        rounds.due(at(begin, 4), usize::MAX).len(),
        0,
        "the peer has not looked"
    );
    assert!(!rounds.is_over());
    assert_eq!(rounds.due(at(begin, 5), usize::MAX).len(), 2);
    assert!(rounds.is_over());
    assert_eq!(rounds.due(at(begin, 300), usize::MAX).len(), 0);
    assert_eq!(rounds.left(), 0);
}
