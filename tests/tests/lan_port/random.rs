//! Random filters, VSIs, rules and resets of a port, with refused commands among them. After each
//! step packets from the other end arrive where an oracle expects them: at which stations, on which
//! queue, with which mark.
//!
//! `RINGSIDE_RANDOM_SEEDS=1000..2000` runs these seeds instead of the few that each run of the
//! tests takes, `RINGSIDE_RANDOM_STEPS=3,17` only these steps of each.

mod oracle;
mod steps;

use crate::rig::{Flow, Rig, ip_frame, plain_frame, poll};
use oracle::{Frame, Kind, Station};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringside_lan::Packet;
use ringside_pmd::lan::{OpenVsi, Vsi, VsiSettings};

/// Steps of a run.
const STEPS: usize = 120;
/// Further VSIs at most.
const FURTHER: usize = 3;
/// Packets that are sent after each step.
const PACKETS: usize = 6;
/// Rounds of 10 us after which a packet has arrived.
const ROUNDS: usize = 100;
/// Addresses of single stations that are added and sent to.
const STATIONS: [[u8; 6]; 5] = [
    [0x02, 0xBB, 0, 0, 0, 1],
    [0x02, 0xBB, 0, 0, 0, 2],
    [0x02, 0xBB, 0, 0, 0, 3],
    [0x02, 0xBB, 0, 0, 0, 4],
    [0x02, 0xBB, 0, 0, 0, 5],
];
const GROUPS: [[u8; 6]; 3] = [
    [0x33, 0x33, 0, 0, 0, 1],
    [0x33, 0x33, 0, 0, 0, 2],
    [0x01, 0x00, 0x5E, 1, 2, 3],
];
const ALL: [u8; 6] = [0xFF; 6];
const VLANS: [u16; 3] = [5, 6, 4094];
/// Long enough that no frame needs padding.
const PAYLOAD: &[u8] = &[0x5A; 40];
const PORTS: [u16; 4] = [7, 8, 2000, 2001];

/// A further VSI, its settings, and what is expected of it.
struct Further {
    open: OpenVsi,
    settings: VsiSettings,
    expected: Station,
}

/// A run: the port of device 1 with its further VSIs, and the oracle.
struct Run {
    seed: u64,
    step: usize,
    random: StdRng,
    rig: Rig,
    port: Station,
    /// The function's own address.
    own: [u8; 6],
    further: Vec<Further>,
    /// The calls so far.
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let queues = random.random_range(1..=4);
        let rig = Rig::with(&crate::rig::settings(), &steps::settings(queues));
        let own = rig.b.mac();
        let entries = rig.b.open.port.hash_table_entries();
        Self {
            seed,
            step: 0,
            random,
            port: Station::new(own, queues, entries),
            own,
            rig,
            further: Vec::new(),
            log: Vec::new(),
        }
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// The control path of a station: 0 is the port.
    fn vsi(&self, station: usize) -> &Vsi {
        match station {
            0 => &self.rig.b.open.port,
            further => &self.further[further - 1].open.vsi,
        }
    }

    fn expected(&mut self, station: usize) -> &mut Station {
        match station {
            0 => &mut self.port,
            further => &mut self.further[further - 1].expected,
        }
    }

    fn stations(&self) -> Vec<&Station> {
        let further = self.further.iter().map(|one| &one.expected);
        std::iter::once(&self.port).chain(further).collect()
    }

    fn context(&self) -> String {
        let from = self.log.len().saturating_sub(40);
        let log = self.log[from..].join("\n  ");
        format!("seed {}, step {}; before:\n  {log}", self.seed, self.step)
    }

    /// A frame to an address that matters or to one that nothing asks for.
    fn frame(&mut self) -> Frame {
        let mut addresses = [&STATIONS[..], &GROUPS, &[ALL, self.own]].concat();
        addresses.extend(self.stations().iter().map(|station| station.mac));
        let to = self.one_of(&addresses);
        let kind = self.one_of(&[Kind::Plain, Kind::Udp, Kind::Udp, Kind::Tcp, Kind::Udp6]);
        let ports = (self.one_of(&PORTS), self.one_of(&PORTS));
        let vlan = self.one_of(&[None, None, Some(5), Some(6), Some(7), Some(4094)]);
        Frame {
            to,
            kind,
            ports,
            vlan,
        }
    }

    /// The packets that have arrived at each station, with their queues.
    fn arrivals(&mut self) -> Vec<Vec<(usize, Packet)>> {
        let mut found: Vec<Vec<(usize, Packet)>> = Vec::new();
        found.resize_with(1 + self.further.len(), Vec::new);
        for _ in 0..ROUNDS {
            self.rig.pass();
            found[0].extend(self.rig.b.poll());
            for (one, found) in self.further.iter_mut().zip(&mut found[1..]) {
                found.extend(poll(&mut one.open.receive));
            }
        }
        found
    }

    fn send(&mut self, frame: &Frame) -> Vec<u8> {
        let from = self.rig.a.mac();
        let flow = |v6, protocol| Flow {
            v6,
            protocol,
            ports: frame.ports,
        };
        let bytes = match frame.kind {
            Kind::Plain => plain_frame(frame.to, from, 100, 1),
            Kind::Udp => ip_frame(frame.to, from, flow(false, 17), PAYLOAD),
            Kind::Udp6 => ip_frame(frame.to, from, flow(true, 17), PAYLOAD),
            Kind::Tcp => ip_frame(frame.to, from, flow(false, 6), PAYLOAD),
        };
        let mut packet = self.rig.a.packet(&bytes);
        packet.set_vlan(frame.vlan);
        self.rig.a.send([packet]);
        bytes
    }

    /// Sends a frame, and compares what arrives with the oracle.
    fn check(&mut self, frame: &Frame) {
        let bytes = self.send(frame);
        let found = self.arrivals();
        for (station, (found, expected)) in found.iter().zip(self.stations()).enumerate() {
            let wanted = expected.verdict(frame);
            let context = || format!("{frame:?} at station {station}, {}", self.context());
            let Some(wanted) = wanted else {
                assert!(found.is_empty(), "{found:?}: {}", context());
                continue;
            };
            assert_eq!(found.len(), 1, "expected {wanted:?}: {}", context());
            let (queue, packet) = &found[0];
            assert!(
                wanted.queues.contains(queue),
                "queue {queue} of {:?}: {}",
                wanted.queues,
                context()
            );
            assert_eq!(packet.mark(), wanted.mark, "{}", context());
            let tag = if expected.strips { frame.vlan } else { None };
            assert_eq!(packet.vlan(), tag, "{}", context());
            let mut whole = packet.to_vec();
            if let (Some(vlan), false) = (frame.vlan, expected.strips) {
                let tag: Vec<u8> = whole.drain(12..16).collect();
                let [high, low] = vlan.to_be_bytes();
                assert_eq!(tag, [0x81, 0x00, high, low], "{}", context());
            }
            assert_eq!(whole, bytes, "{}", context());
        }
    }

    /// The settings that can be read are those that were asked for.
    fn check_setups(&self) {
        for (station, expected) in self.stations().into_iter().enumerate() {
            let setup = self.vsi(station).setup();
            assert_eq!(
                setup,
                expected.setup(),
                "station {station}, {}",
                self.context()
            );
        }
    }

    fn play(mut self) {
        for step in steps() {
            self.step = step;
            // The choices of a step do not depend on those before it: fewer steps do the same.
            self.random = StdRng::seed_from_u64(self.seed << 16 | step as u64);
            self.take_step();
            self.check_setups();
            for _ in 0..PACKETS {
                let frame = self.frame();
                self.check(&frame);
            }
        }
        while !self.further.is_empty() {
            self.remove_vsi(0);
        }
        let context = self.context();
        let breaches = self.rig.world.with(|world| world.breaches(1));
        assert!(breaches.is_empty(), "{breaches:#?}: {context}");
        self.rig.finish();
    }
}

/// The steps of a run: all, or those that are to be tried alone.
fn steps() -> Vec<usize> {
    match std::env::var("RINGSIDE_RANDOM_STEPS") {
        Ok(steps) => steps
            .split(',')
            .map(|step| step.parse().expect("a step"))
            .collect(),
        Err(_) => (0..STEPS).collect(),
    }
}

#[test]
fn packets_arrive_where_the_steps_so_far_have_them_arrive() {
    let seeds = std::env::var("RINGSIDE_RANDOM_SEEDS").unwrap_or_else(|_| "1..7".to_owned());
    let ends: Vec<u64> = seeds
        .split("..")
        .map(|end| end.parse().expect("FIRST..END"))
        .collect();
    let [first, end] = ends[..] else {
        panic!("RINGSIDE_RANDOM_SEEDS={seeds}: FIRST..END");
    };
    for seed in first..end {
        Run::new(seed).play();
    }
}
