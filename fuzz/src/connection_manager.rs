//! The connection manager, which receives any MADs at any time, between any calls of its program.
//!
//! Checked: an accepted MAD is encoded again with the same fields; the manager sends valid MADs; an
//! event names a connection that exists; a connection begins only by a call or by a request that
//! was reported to the program; after [`Manager::tick`] no timer is overdue; without connections
//! there are no timers.

use crate::source::Source;
use ringside_cm::mad::MAD_BYTES;
use ringside_cm::{
    Accept, Action, Arrived, Connect, ConnectionId, EventKind, Gid, Identity, LISTENER_WAIT, Mad,
    Manager, PortSpace, Reason, Refused, Resolve, ServiceAnswer, ServiceId, ServiceStatus, gsi,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const TCP: ServiceId = ServiceId::of(PortSpace::Tcp, 7471);
const UDP: ServiceId = ServiceId::of(PortSpace::Udp, 7174);
/// Calls and MADs of one input.
const MAX_STEPS: usize = 256;
/// First byte of a message's data after the header of a MAD.
const DATA: usize = 24;

struct DrivenManager {
    manager: Manager,
    now: Duration,
    open: Vec<ConnectionId>,
}

impl DrivenManager {
    fn one(&self, source: &mut Source) -> Option<ConnectionId> {
        let which = usize::from(source.byte());
        let count = self.open.len().max(1);
        self.open.get(which % count).copied()
    }

    /// A MAD with a valid header and any content; often for a connection that exists.
    fn receive(&mut self, source: &mut Source) {
        let mut mad = [0; MAD_BYTES];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[17] = 0x10 + source.byte() % 12;
        let own = self.one(source).map_or(0, ConnectionId::number);
        let length = usize::from(source.byte()) % (MAD_BYTES - DATA);
        for (place, byte) in mad[DATA..].iter_mut().zip(source.some(length)) {
            *place = *byte;
        }
        match (mad[17], source.byte() % 4) {
            // The service of a listener, and addresses that it accepts.
            (0x10 | 0x17, kind @ 1..) => {
                let (service, header, gid) = if mad[17] == 0x10 {
                    (8, 140, 72)
                } else {
                    (8, 16, 0)
                };
                let id = if kind == 1 { TCP } else { UDP };
                mad[DATA + service..DATA + service + 8].copy_from_slice(&id.0.to_be_bytes());
                mad[DATA + header..DATA + header + 2].copy_from_slice(&[0, 0x40]);
                mad[DATA + header + 16..DATA + header + 20].copy_from_slice(&[10, 0, 0, 2]);
                mad[DATA + header + 32..DATA + header + 36].copy_from_slice(&[10, 0, 0, 1]);
                if gid > 0 {
                    mad[DATA + 48..DATA + 50].copy_from_slice(&[0xFF, 0xFF]);
                    mad[DATA + gid - 16..DATA + gid].copy_from_slice(&Gid::from(PEER).0);
                    mad[DATA + gid..DATA + gid + 16].copy_from_slice(&Gid::from(OWN).0);
                    mad[DATA + 96..DATA + 98].copy_from_slice(&[0, 0]);
                }
            }
            (0x18, 1..) => mad[DATA..DATA + 4].copy_from_slice(&own.to_be_bytes()),
            (_, 1..) => mad[DATA + 4..DATA + 8].copy_from_slice(&own.to_be_bytes()),
            _ => {}
        }
        self.arrive(&mad);
    }

    fn arrive(&mut self, payload: &[u8]) {
        if let Ok(mad) = Mad::decode(payload) {
            let again = Mad::decode(&mad.encode()).expect("a MAD written by us");
            assert_eq!(again, mad);
        }
        let before = self.manager.connections();
        let _ = self.manager.receive(
            self.now,
            &Arrived {
                source: PEER.into(),
                destination: OWN.into(),
                vlan: vlan_by(payload.get(15).copied().unwrap_or(0)),
                traffic_class: 0,
                partition_key: gsi::PARTITION_KEY,
                destination_qp: gsi::QUEUE_PAIR,
                queue_key: gsi::QUEUE_KEY,
                payload,
            },
        );
        let made = self.manager.connections() - before;
        assert_eq!(made, self.take_actions(), "a connection without a request");
    }

    /// Takes actions; returns the number of requests reported.
    fn take_actions(&mut self) -> usize {
        let mut requests = 0;
        while let Some(action) = self.manager.next_action() {
            match action {
                Action::Send(mad) => {
                    let sent = Mad::decode(&*mad.payload).expect("a MAD");
                    assert_eq!(&sent.encode(), &*mad.payload);
                    assert_eq!(mad.source, Gid::from(OWN));
                }
                Action::Event(event) => {
                    let known = self.manager.state(event.id).is_some();
                    assert!(
                        known,
                        "an event of a connection that was removed: {event:?}"
                    );
                    let request = matches!(
                        event.kind,
                        EventKind::Request { .. } | EventKind::ServiceRequest { .. }
                    );
                    if request {
                        requests += 1;
                        self.open.push(event.id);
                    }
                }
            }
        }
        requests
    }

    fn ask(&mut self, source: &mut Source) {
        let source_port = source.half();
        let vlan = vlan_by(source_port as u8);
        let connect = Connect {
            local: OWN,
            vlan,
            remote: PEER,
            service: TCP,
            source_port,
            queue_pair: source.number(),
            shared_receive_queue: source.flag(),
            responder_resources: source.byte(),
            initiator_depth: source.byte(),
            flow_control: source.flag(),
            retry_count: source.byte(),
            rnr_retry_count: source.byte(),
            path_mtu: source.byte(),
            traffic_class: source.byte(),
            ack_timeout: source.flag().then(|| source.byte()),
            private_data: source.some(57).to_vec(),
        };
        let resolve = Resolve {
            local: OWN,
            vlan,
            remote: PEER,
            service: UDP,
            source_port,
            traffic_class: 0,
            private_data: connect.private_data.clone(),
        };
        let made = match source.flag() {
            true => self.manager.connect(self.now, &connect),
            false => self.manager.resolve(self.now, &resolve),
        };
        self.open.extend(made);
    }

    fn call(&mut self, kind: u8, source: &mut Source) {
        let Some(id) = self.one(source) else { return };
        let accept = Accept {
            queue_pair: source.number(),
            shared_receive_queue: source.flag(),
            responder_resources: source.byte(),
            initiator_depth: source.byte(),
            flow_control: source.flag(),
            rnr_retry_count: source.byte(),
            private_data: source.some(200).to_vec(),
        };
        let refusal = Refused {
            reason: Reason(source.half()),
            additional_information: source.some(80).to_vec(),
            private_data: accept.private_data.clone(),
        };
        let answer = ServiceAnswer {
            status: ServiceStatus(source.byte()),
            queue_pair: accept.queue_pair,
            queue_key: source.number(),
            private_data: accept.private_data.clone(),
        };
        // Refused in most states: a refused call must change nothing, which the table test checks.
        let _ = match kind {
            0 => self.manager.accept(self.now, id, &accept),
            1 => self.manager.reject(id, &refusal),
            2 => self.manager.ready(id, &accept.private_data),
            3 => self.manager.disconnect(self.now, id),
            4 => self.manager.answer(id, &answer),
            5 => {
                self.manager.packet_arrived(id);
                Ok(())
            }
            6 => {
                self.manager.lose_device();
                Ok(())
            }
            _ => {
                // Events of a connection are taken before it is removed.
                self.take_actions();
                self.manager.destroy(self.now, id);
                self.open.retain(|other| *other != id);
                Ok(())
            }
        };
    }
}

/// A VLAN by a byte of the input: mostly none, else one on which the node has its address, or not.
const fn vlan_by(byte: u8) -> Option<u16> {
    match byte % 8 {
        0..5 => None,
        5 | 6 => Some(100),
        _ => Some(101),
    }
}

/// Any MADs and calls, in any order.
pub fn connection_manager(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut manager = Manager::new(Identity::of(0xAAAA, source.word()));
    manager.add_address(OWN, None);
    manager.add_address(OWN, Some(100));
    manager.listen(TCP, None, 8).expect("a free service");
    manager.listen(UDP, Some(OWN), 8).expect("a free service");
    let mut driven = DrivenManager {
        manager,
        now: Duration::from_secs(1),
        open: Vec::new(),
    };
    for _ in 0..MAX_STEPS {
        if source.is_empty() {
            break;
        }
        match source.byte() % 18 {
            0..=6 => driven.receive(&mut source),
            7 => {
                let payload: [u8; MAD_BYTES] = source.array();
                driven.arrive(&payload);
            }
            8 => {
                driven.now += Duration::from_millis(source.half().into());
                driven.manager.tick(driven.now);
                let next = driven.manager.deadline();
                assert!(next.is_none_or(|next| next > driven.now), "overdue");
            }
            9 => driven.ask(&mut source),
            kind => driven.call(kind - 10, &mut source),
        }
        driven.take_actions();
        assert_eq!(driven.manager.connections(), driven.open.len());
    }
    for id in std::mem::take(&mut driven.open) {
        driven.manager.destroy(driven.now, id);
    }
    // A request that waits for a listener has a timer of its own, without a connection.
    driven.now += LISTENER_WAIT;
    driven.manager.tick(driven.now);
    driven.take_actions();
    assert_eq!(driven.manager.connections(), 0);
    assert_eq!(
        driven.manager.deadline(),
        None,
        "a timer without a connection"
    );
}
