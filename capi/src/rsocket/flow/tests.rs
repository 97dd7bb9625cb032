use super::{CONTROLS, Incoming, Outgoing, Part};
use crate::rsocket::wire::{Greeting, Target};

const BUFFER: u32 = 8192;

fn greeting(credits: u16) -> Greeting {
    Greeting {
        credits,
        mappings: 0,
        is_swapped: false,
        targets: Target {
            address: 0x1000,
            key: 1,
            length: 2,
        },
        buffer: Target {
            address: 0x10_0000,
            key: 2,
            length: BUFFER / 2,
        },
    }
}

fn sender(credits: u16) -> Outgoing {
    let mut sender = Outgoing::new(16, BUFFER);
    sender.begin(&greeting(credits));
    sender
}

#[test]
fn a_sender_stops_where_the_peer_has_no_receive() {
    let mut sender = sender(2);
    for _ in 0..2 {
        assert!(sender.can_send());
        sender.aim(1);
        sender.take(1);
        sender.count_message();
    }
    assert!(!sender.can_send(), "no credit");
    sender.grant(3);
    assert!(sender.can_send());
}

#[test]
fn a_sender_stops_where_its_requests_or_its_buffer_end() {
    let mut slots = sender(100);
    for _ in 0..16 - CONTROLS {
        assert!(slots.can_send());
        slots.take(0);
    }
    assert!(!slots.can_send(), "no request left");
    assert!(!slots.is_idle());
    slots.complete(0);
    assert!(slots.can_send());
    let mut buffer = sender(100);
    buffer.take(BUFFER - super::LOW_WATER + 1);
    assert!(!buffer.can_send(), "less room than a transfer begins with");
    buffer.complete(BUFFER - super::LOW_WATER + 1);
    assert!(buffer.can_send() && buffer.is_idle());
}

#[test]
fn a_sender_uses_one_target_up_before_the_next() {
    let mut sender = sender(100);
    assert_eq!(sender.room(), BUFFER / 2);
    assert_eq!(sender.aim(4000).address, 0x10_0000);
    assert_eq!(sender.room(), 96);
    assert_eq!(sender.aim(96).address, 0x10_0000 + 4000);
    assert_eq!(sender.exhausted(), Some(1), "the other entry is awaited");
    assert!(!sender.can_send());
    sender.refill(Target {
        address: 0x20_0000,
        key: 3,
        length: 10,
    });
    assert_eq!(sender.aim(10).address, 0x20_0000);
    assert_eq!(sender.exhausted(), Some(0));
}

#[test]
fn the_send_buffer_is_a_ring() {
    let mut sender = sender(100);
    sender.take(6000);
    sender.complete(6000);
    let [first, second] = sender.take(3000);
    assert_eq!(
        (first, second),
        (
            Part {
                offset: 6000,
                length: 2192
            },
            Part {
                offset: 0,
                length: 808
            }
        )
    );
    sender.complete(3000);
    assert_eq!(sender.take(1)[0].offset, 808);
}

#[test]
fn a_peer_that_writes_more_than_it_may_is_found_out() {
    let mut receiver = Incoming::new(16, BUFFER);
    receiver.arrived(BUFFER / 2).unwrap();
    assert!(receiver.arrived(1).is_err());
    let (_, half) = receiver.settle();
    assert_eq!(half.unwrap().offset, BUFFER / 2);
    receiver.arrived(BUFFER / 2).unwrap();
    assert!(receiver.arrived(1).is_err());
}

#[test]
fn each_half_is_granted_again_once_it_was_read() {
    let mut receiver = Incoming::new(16, BUFFER);
    assert!(
        receiver.owes(),
        "the second half is free from the beginning"
    );
    receiver.settle();
    assert!(!receiver.owes());
    receiver.arrived(3000).unwrap();
    receiver.arrived(1096).unwrap();
    receiver.consume(4095);
    assert!(!receiver.owes(), "a byte of the half is unread");
    receiver.consume(1);
    assert!(receiver.owes());
    let (limit, half) = receiver.settle();
    assert_eq!((limit, half.unwrap().offset), (18, 0));
}

#[test]
fn receives_are_granted_again_after_half_of_them() {
    let mut receiver = Incoming::new(16, BUFFER);
    receiver.settle();
    for _ in 0..7 {
        receiver.arrived(1).unwrap();
        receiver.consume(1);
        assert!(!receiver.owes());
    }
    receiver.arrived(0).unwrap();
    assert!(receiver.owes(), "an empty message spends a receive too");
    assert_eq!(receiver.settle(), (24, None));
}

#[test]
fn unread_bytes_are_seen_in_parts_and_taken_in_order() {
    let mut receiver = Incoming::new(16, BUFFER);
    receiver.settle();
    receiver.arrived(4096).unwrap();
    receiver.arrived(4000).unwrap();
    receiver.consume(8000);
    assert_eq!(receiver.settle().1.unwrap().offset, 0);
    receiver.arrived(1000).unwrap();
    let first = receiver.unread(0, 5000).unwrap();
    assert_eq!((first.offset, first.length), (8000, 192));
    let second = receiver.unread(192, 5000).unwrap();
    assert_eq!((second.offset, second.length), (0, 904));
    assert_eq!(receiver.unread(1096, 5000), None);
    assert_eq!(receiver.unread(0, 7).unwrap().length, 7);
    receiver.consume(1096);
    assert!(!receiver.has_data());
}

#[test]
fn numbers_count_on_beyond_sixteen_bits() {
    let mut sender = sender(4);
    let mut receiver = Incoming::new(4, BUFFER);
    for _ in 0..100_000 {
        assert!(sender.can_post());
        sender.count_message();
        receiver.arrived(0).unwrap();
        if receiver.owes() {
            sender.grant(receiver.settle().0);
        }
    }
    let mut ahead = 0;
    while sender.can_post() {
        sender.count_message();
        ahead += 1;
        assert!(ahead <= 4, "the peer has four receives");
    }
}
