use super::*;
use crate::farewell::{self, Farewell};
use ringside_bus::{Direction, Iova, Refusal};
use ringside_cm::mad::{Mad, Message};
use ringside_cm::message::{DisconnectReply, DisconnectRequest};
use ringside_config::LocalAddress;
use ringside_model::Fault;
use ringside_pmd::rdma::Gid as RdmaGid;
use ringside_testkit::{bring_up_all, config, threaded};

const WAIT: Duration = Duration::from_secs(20);

fn own(device: &Device) -> Gid {
    device.local_addresses().unwrap()[0].into()
}

/// A message between two devices.
fn message(from: &Device, to: &Device) -> OutgoingMad {
    OutgoingMad {
        source: own(from),
        vlan: None,
        destination: own(to),
        traffic_class: 0,
        payload: Box::new([7; MAD_BYTES]),
    }
}

/// The host refuses the device the write of a completion: that completion queue fails alone.
#[test]
fn messages_arrive_again_after_the_completion_queue_has_failed() {
    let model = threaded();
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let [near, far] = &devices;
    let macs = [near, far].map(|device| device.facts().mac().unwrap());
    let mut service = Service::open(near).unwrap();
    let mut peer = Service::open(far).unwrap();
    let former = service.queue_number();
    let ring = service.queue.query().unwrap().ring;
    let refusal = Fault::DmaRefused(Refusal {
        direction: Some(Direction::Write),
        accesses: Some(1),
        first: Iova(ring),
        bytes: 1,
    });
    model.with(move |world| world.inject(0, refusal));
    service.send(message(near, far), &|_, _| Lookup::Found(macs[1]));

    let limit = Instant::now() + WAIT;
    while service.queue_number() == former {
        assert!(Instant::now() < limit, "the failed queue stays in use");
        near.poll_events(&mut Vec::new()).unwrap();
        service.poll(|_| {});
    }
    assert!(near.failure().is_none() && !service.is_sending());
    let mut received = false;
    peer.send(message(far, near), &|_, _| Lookup::Found(macs[0]));
    while !received {
        assert!(Instant::now() < limit, "no message arrives");
        peer.poll(|_| {});
        service.poll(|arrived| received = arrived.payload == [7; MAD_BYTES]);
    }
}

/// Two devices with queue pair 1 each, and the MAC address of the second.
struct Ends {
    _model: ringside_model::Threaded,
    devices: [Device; 2],
    near: Service,
    far: Service,
    mac: MacAddress,
}

impl Ends {
    fn new() -> Self {
        let model = threaded();
        let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
        let [near, far] = [0, 1].map(|index| Service::open(&devices[index]).unwrap());
        let mac = devices[1].facts().mac().unwrap();
        Self {
            _model: model,
            devices,
            near,
            far,
            mac,
        }
    }

    /// A message to the second device, which it knows by its number.
    fn numbered(&self, number: u16) -> OutgoingMad {
        let [near, far] = &self.devices;
        let mut payload = Box::new([0; MAD_BYTES]);
        payload[..2].copy_from_slice(&number.to_be_bytes());
        OutgoingMad {
            payload,
            ..message(near, far)
        }
    }

    fn send(&mut self, number: u16, found: Lookup) {
        let message = self.numbered(number);
        self.near.send(message, &|_, _| found);
    }

    /// The second service, and the devices, after the first device has said these for a process
    /// that was killed.
    fn said(self, farewells: &[Farewell]) -> Heard {
        drop(self.near);
        assert_eq!(farewell::say(&self.devices[0], farewells).unwrap(), 0);
        Heard {
            far: self.far,
            devices: self.devices,
            _model: self._model,
        }
    }

    /// Waits until the device has sent what the first service has posted.
    fn sent(&mut self) {
        let limit = Instant::now() + WAIT;
        while self.near.is_sending() {
            assert!(Instant::now() < limit, "messages stay under way");
            self.near.poll(|_| {});
        }
    }

    /// The numbers of `count` messages that arrive at the second service, and of those that are
    /// there beside them.
    fn arrived(&mut self, count: usize) -> Vec<u16> {
        let number = |payload: &[u8]| u16::from_be_bytes([payload[0], payload[1]]);
        let mut numbers = Vec::new();
        let limit = Instant::now() + WAIT;
        while numbers.len() < count {
            assert!(Instant::now() < limit, "{} of {count}", numbers.len());
            self.far
                .poll(|arrived| numbers.push(number(arrived.payload)));
        }
        self.far
            .poll(|arrived| numbers.push(number(arrived.payload)));
        numbers
    }
}

/// See [`Ends::said`].
struct Heard {
    far: Service,
    devices: [Device; 2],
    _model: ringside_model::Threaded,
}

/// A program that ends 200 connections at once says 200 messages at once.
#[test]
fn messages_beyond_the_sends_of_queue_pair_1_leave_in_their_order_as_others_have_left() {
    const ALL: u16 = 3 * SENDS as u16 + 5;
    let mut ends = Ends::new();
    let found = Lookup::Found(ends.mac);
    let mac = ends.mac;
    // Sends complete only in a poll.
    for number in 0..ALL {
        assert_eq!(ends.near.idle.is_empty(), usize::from(number) >= SENDS);
        ends.send(number, found);
    }
    assert!(!ends.near.has_room());
    let neighbour = |_, _| Lookup::Found(mac);
    assert!(ends.near.retry(&neighbour), "none has left");
    let limit = Instant::now() + WAIT;
    let mut numbers = Vec::new();
    while ends.near.retry(&neighbour) {
        assert!(Instant::now() < limit, "messages wait for ever");
        ends.sent();
        numbers.extend(ends.arrived(SENDS));
    }
    ends.sent();
    numbers.extend(ends.arrived(usize::from(ALL) - numbers.len()));
    assert_eq!(numbers, (0..ALL).collect::<Vec<u16>>());
    assert!(ends.near.has_room() && !ends.near.idle.is_empty());
    ends.send(200, found);
    assert_eq!(ends.arrived(1), [200]);
}

/// A process that was killed may have had hundreds of connections.
#[test]
fn farewells_beyond_the_sends_of_queue_pair_1_leave_as_others_have_left() {
    const ALL: u16 = 3 * SENDS as u16;
    let ends = Ends::new();
    let farewells: Vec<_> = (0..ALL)
        .map(|number| Farewell {
            message: ends.numbered(number),
            mac: ends.mac,
        })
        .collect();
    let mut heard = ends.said(&farewells);
    let (mut arrived, limit) = (0, Instant::now() + WAIT);
    while arrived < ALL {
        assert!(Instant::now() < limit, "{arrived} of {ALL}");
        heard.far.poll(|_| arrived += 1);
    }
}

/// Each goes by its own VLAN to the MAC address that it names, though a station without VLAN has
/// the same address.
#[test]
fn farewells_of_a_vlan_leave_on_it_from_the_address_that_the_process_had_there() {
    const ALL: u16 = 2 * SENDS as u16 + 2;
    let ends = Ends::new();
    let own = ends.devices[0].local_addresses().unwrap()[0];
    let target = ends.devices[1].local_addresses().unwrap()[0];
    let there = LocalAddress {
        vlan: Some(5),
        ..LocalAddress::new(target, 24)
    };
    ends.devices[1].add_address(there).unwrap();
    let farewells: Vec<_> = (0..ALL)
        .map(|number| {
            let is_on_vlan = number % 2 == 1;
            Farewell {
                message: OutgoingMad {
                    vlan: is_on_vlan.then_some(5),
                    ..ends.numbered(number)
                },
                mac: match is_on_vlan {
                    true => ends.mac,
                    false => [2, 0, 0, 0, 0, 0x77],
                },
            }
        })
        .collect();
    let mut heard = ends.said(&farewells);
    let gids = heard.devices[0].gids().unwrap();
    let is_there = |gid: &RdmaGid| (gid.address.address, gid.address.vlan) == (own, Some(5));
    assert!(gids.iter().any(is_there), "{gids:?}");
    let (mut arrived, limit) = (0, Instant::now() + WAIT);
    while arrived < ALL / 2 {
        assert!(Instant::now() < limit, "{arrived} of {ALL}");
        heard.far.poll(|one| {
            assert_eq!(one.vlan, Some(5));
            arrived += 1;
        });
    }
}

#[test]
fn a_farewell_is_said_until_its_peer_confirms_the_end() {
    let mut ends = Ends::new();
    let own_mac = ends.devices[0].facts().mac().unwrap();
    let farewells: Vec<_> = (1..=2)
        .map(|number| Farewell {
            message: OutgoingMad {
                payload: request([number, 100 + number]),
                ..ends.numbered(0)
            },
            mac: ends.mac,
        })
        .collect();
    let back = message(&ends.devices[1], &ends.devices[0]);
    drop(ends.near);
    let mut heard = [0; 2];
    let (devices, far) = (&ends.devices, &mut ends.far);
    let left = std::thread::scope(|scope| {
        let saying = scope.spawn(|| farewell::say(&devices[0], &farewells).unwrap());
        while !saying.is_finished() {
            let mut answers = Vec::new();
            far.poll(|arrived| {
                let Ok(Message::Disconnect(request)) =
                    Mad::decode(arrived.payload).map(|mad| mad.message)
                else {
                    panic!("another message");
                };
                heard[request.local_comm_id as usize - 1] += 1;
                // The second one has no answer.
                if request.local_comm_id == 1 {
                    answers.push(mad(Message::DisconnectReply(DisconnectReply {
                        local_comm_id: request.remote_comm_id,
                        remote_comm_id: request.local_comm_id,
                        private_data: [0; 224],
                    })));
                }
            });
            for payload in answers {
                let answer = OutgoingMad {
                    payload,
                    ..back.clone()
                };
                far.send(answer, &|_, _| Lookup::Found(own_mac));
            }
        }
        saying.join().unwrap()
    });
    assert_eq!(left, 1, "the second one");
    assert_eq!(heard[1], 3, "{heard:?}");
}

/// DREQ or DREP of a connection.
fn mad(message: Message) -> Box<[u8; MAD_BYTES]> {
    let mad = Mad {
        transaction_id: 7,
        attribute_modifier: 0,
        message,
    };
    Box::new(mad.encode())
}

/// DREQ of the side that numbers the connection `own`, to the one that numbers it `peer`.
fn request([own, peer]: [u32; 2]) -> Box<[u8; MAD_BYTES]> {
    mad(Message::Disconnect(DisconnectRequest {
        local_comm_id: own,
        remote_comm_id: peer,
        remote_qpn: 9,
        private_data: [0; 220],
    }))
}

/// Two nodes may end their connections with each other at the same time.
#[test]
fn a_side_that_tells_its_peers_confirms_the_ends_that_they_ask_for() {
    let mut ends = Ends::new();
    let own_mac = ends.devices[0].facts().mac().unwrap();
    let asked = OutgoingMad {
        payload: request([5, 6]),
        ..message(&ends.devices[1], &ends.devices[0])
    };
    ends.far.send(asked, &|_, _| Lookup::Found(own_mac));
    let limit = Instant::now() + WAIT;
    while ends.far.is_sending() {
        assert!(Instant::now() < limit, "the message stays under way");
        ends.far.poll(|_| {});
    }
    let own = OutgoingMad {
        payload: request([6, 5]),
        ..ends.numbered(0)
    };
    let found = Lookup::Found(ends.mac);
    assert_eq!(farewell::tell(&mut ends.near, [own], &|_, _| found), 0);
    let mut confirmed = Vec::new();
    while confirmed.is_empty() {
        assert!(Instant::now() < limit, "no answer");
        ends.far.poll(|arrived| {
            let mad = Mad::decode(arrived.payload).unwrap();
            if let Message::DisconnectReply(reply) = mad.message {
                confirmed.push((reply.local_comm_id, reply.remote_comm_id));
            }
        });
    }
    assert_eq!(confirmed, [(6, 5)]);
}

#[test]
fn messages_that_wait_for_others_are_limited_in_number_and_in_time() {
    let mut ends = Ends::new();
    let (found, mac) = (Lookup::Found(ends.mac), ends.mac);
    for number in 0..(SENDS + MAX_QUEUED) as u16 + 3 {
        ends.send(number, found);
    }
    assert_eq!(ends.near.queued.len(), MAX_QUEUED);
    let over = Instant::now();
    for (_, limit) in &mut ends.near.queued {
        *limit = over;
    }
    ends.sent();
    assert!(!ends.near.retry(&|_, _| Lookup::Found(mac)));
    assert_eq!(ends.arrived(SENDS).len(), SENDS);
}

#[test]
fn queue_pair_1_has_its_receives_again_after_more_messages_than_that() {
    let mut ends = Ends::new();
    let found = Lookup::Found(ends.mac);
    // The peer reads nothing meanwhile: what is beyond its receives is lost.
    for number in 0..RECEIVES as u16 + 10 {
        ends.send(number, found);
        ends.sent();
    }
    let kept: Vec<u16> = (0..RECEIVES as u16).collect();
    assert_eq!(ends.arrived(RECEIVES), kept);
    for number in 0..RECEIVES as u16 {
        ends.send(number, found);
        ends.sent();
    }
    assert_eq!(ends.arrived(RECEIVES), kept);
}

/// Any host can send faster than this one reads: the caller has to come to its other work.
#[test]
fn a_poll_ends_although_each_message_that_is_read_brings_another_one() {
    /// More than the completions that a poll takes at a time.
    const BEFORE: usize = 40;
    const ALL: usize = RECEIVES + 2 * BEFORE;
    let mut ends = Ends::new();
    let found = Lookup::Found(ends.mac);
    for number in 0..BEFORE as u16 {
        ends.send(number, found);
        ends.sent();
    }
    let next = ends.numbered(BEFORE as u16);
    let Ends { near, far, .. } = &mut ends;
    let limit = Instant::now() + WAIT;
    let mut arrived = 0;
    while arrived < ALL {
        let before = arrived;
        let has_more = far.poll(|_| {
            arrived += 1;
            if arrived + BEFORE > ALL {
                return;
            }
            near.send(next.clone(), &|_, _| found);
            while near.is_sending() {
                assert!(Instant::now() < limit, "a message stays under way");
                near.poll(|_| {});
            }
        });
        let taken = arrived - before;
        assert!(taken <= RECEIVES, "{taken}");
        assert_eq!(has_more, taken == RECEIVES, "{taken}");
        assert!(Instant::now() < limit, "{arrived} of {ALL}");
    }
}

#[test]
fn messages_wait_for_an_address_in_their_order_and_no_more_than_there_is_room_for() {
    let mut ends = Ends::new();
    assert!(ends.near.has_room());
    for number in 0..MAX_WAITING as u16 + 3 {
        let has_room = usize::from(number) < MAX_WAITING / 2;
        assert_eq!(ends.near.has_room(), has_room, "{number}");
        ends.send(number, Lookup::Asked);
    }
    assert_eq!(ends.near.waiting.len(), MAX_WAITING);
    assert!(ends.near.retry(&|_, _| Lookup::Asked), "they still wait");
    assert!(!ends.near.is_sending());
    let mac = ends.mac;
    assert!(
        !ends.near.retry(&|_, _| Lookup::Found(mac)),
        "all were sent"
    );
    ends.sent();
    let all: Vec<u16> = (0..MAX_WAITING as u16).collect();
    assert_eq!(ends.arrived(MAX_WAITING), all);
    // A peer that is not there keeps nothing waiting.
    ends.send(7, Lookup::Unknown);
    // The handle of this way is known, so that the message is sent all the same.
    assert_eq!(ends.arrived(1), [7]);
}

#[test]
fn a_message_whose_time_is_over_waits_no_longer() {
    let mut ends = Ends::new();
    let message = ends.numbered(1);
    let over = Instant::now();
    ends.near.send_until(message, over, &|_, _| Lookup::Asked);
    assert!(!ends.near.retry(&|_, _| Lookup::Asked));
    ends.send(2, Lookup::Unknown);
    assert!(!ends.near.retry(&|_, _| Lookup::Asked));
    assert!(!ends.near.is_sending());
}

/// The device lets more messages name a handle than there are handles.
#[test]
fn ways_beyond_the_limit_wait_for_messages_under_way_and_replace_the_former_ones() {
    let mut ends = Ends::new();
    ends.near.handles_most = 2;
    let found = Lookup::Found(ends.mac);
    for class in 0..3 {
        let message = OutgoingMad {
            traffic_class: class << 2,
            ..ends.numbered(class.into())
        };
        ends.near.send(message, &|_, _| found);
    }
    assert_eq!((ends.near.handles.len(), ends.near.waiting.len()), (2, 1));
    ends.sent();
    assert!(!ends.near.retry(&|_, _| found));
    assert_eq!(ends.near.handles.len(), 1);
    ends.sent();
    assert_eq!(ends.arrived(3), [0, 1, 2]);
}

#[test]
fn a_handle_of_a_former_address_stays_while_a_message_names_it() {
    let mut ends = Ends::new();
    let found = Lookup::Found(ends.mac);
    ends.send(1, Lookup::Found([2, 0, 0, 0, 0, 0x77]));
    ends.send(2, found);
    ends.send(3, Lookup::Found([2, 0, 0, 0, 0, 0x78]));
    // Nothing is known to have left before the next poll.
    assert_eq!((ends.near.handles.len(), ends.near.former.len()), (1, 2));
    ends.sent();
    assert_eq!(ends.arrived(1), [2]);
    ends.send(4, found);
    // The former ones of before are gone, that of message 3 is not.
    assert_eq!((ends.near.handles.len(), ends.near.former.len()), (1, 1));
}

#[test]
fn a_message_that_queue_pair_1_does_not_take_keeps_no_place() {
    let mut ends = Ends::new();
    let found = Lookup::Found(ends.mac);
    drop(ends.near.pair.take());
    ends.send(1, found);
    assert!(!ends.near.is_sending(), "nothing is under way");
    let limit = Instant::now() + WAIT;
    while ends.near.pair.is_none() {
        assert!(Instant::now() < limit, "it is not made again");
        ends.near.poll(|_| {});
    }
    ends.send(2, found);
    assert_eq!(ends.arrived(1), [2]);
}
